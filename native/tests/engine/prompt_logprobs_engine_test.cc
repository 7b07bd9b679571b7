// Prompt log-probabilities: reported once, and independent of the prefix cache and of preemption.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using Tokens = FakeModel::Tokens;
using ::testing::HasSubstr;

SequenceOptions Scored(std::optional<int64_t> num_top, int64_t max_tokens = 1) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  options.prompt_logprobs = num_top;
  return options;
}

Tokens Prompt(int32_t size, int32_t seed = 0) {
  Tokens tokens;
  for (int32_t i = 0; i < size; ++i) tokens.push_back((7 * i + 3 * seed + i * i) % 32);
  return tokens;
}

/*! \return The expected log-probabilities of a prompt. */
std::vector<TokenLogprobs> Reference(const Tokens& prompt, int64_t num_top) {
  std::vector<TokenLogprobs> scored;
  std::vector<float> logits(32);
  for (size_t i = 1; i < prompt.size(); ++i) {
    FakeModel::HashedLogits(Tokens(prompt.begin(), prompt.begin() + static_cast<int64_t>(i)),
                            &logits);
    scored.push_back(ComputeLogprobs(logits.data(), 32, prompt[i], num_top));
  }
  return scored;
}

void ExpectEqual(const std::vector<TokenLogprobs>& actual,
                 const std::vector<TokenLogprobs>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].token_id, expected[i].token_id);
    EXPECT_EQ(actual[i].logprob, expected[i].logprob);
    ASSERT_EQ(actual[i].top.size(), expected[i].top.size());
    for (size_t j = 0; j < actual[i].top.size(); ++j) {
      EXPECT_EQ(actual[i].top[j].token_id, expected[i].top[j].token_id);
      EXPECT_EQ(actual[i].top[j].logprob, expected[i].top[j].logprob);
    }
  }
}

/*! \brief Step until there is no more work. \return The prompt log-probabilities by sequence id. */
std::map<int64_t, std::vector<TokenLogprobs>> Finish(Engine* engine) {
  std::map<int64_t, std::vector<TokenLogprobs>> logprobs;
  for (bool has_work = true; has_work;) {
    has_work = engine->Step();
    engine->CheckInvariants();
    for (const Record& record : engine->Drain()) {
      std::vector<TokenLogprobs>& all = logprobs[record.sequence_id];
      all.insert(all.end(), record.prompt_logprobs.begin(), record.prompt_logprobs.end());
    }
  }
  return logprobs;
}

TEST(PromptLogprobsEngine, SubmitRejectsAnInvalidNumberAndNamesTheOption) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  for (int64_t num_top : {-1, 21}) {
    try {
      engine.Submit({1}, Scored(num_top));
      FAIL() << "not rejected";
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      EXPECT_THAT(error.what(), HasSubstr("prompt_logprobs"));
    }
  }
}

TEST(PromptLogprobsEngine, AreReportedOnceWithTheFirstToken) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.Submit(Prompt(40), Scored(3, 4));
  std::vector<Record> records;
  for (bool has_work = true; has_work;) {
    has_work = engine.Step();
    for (Record& record : engine.Drain()) records.push_back(std::move(record));
  }
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].token_ids.size(), 1u);
  ExpectEqual(records[0].prompt_logprobs, Reference(Prompt(40), 3));
  for (size_t i = 1; i < records.size(); ++i) EXPECT_TRUE(records[i].prompt_logprobs.empty());
}

TEST(PromptLogprobsEngine, AreEmptyForAPromptOfOneToken) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  const int64_t id = engine.Submit({5}, Scored(2));
  EXPECT_TRUE(Finish(&engine).at(id).empty());
}

TEST(PromptLogprobsEngine, ACachedPromptIsRecomputedAndCachedAgain) {
  FakeModel model({});
  Engine engine(&model, {}, {.max_recycling_sequences = 8});
  engine.Submit(Prompt(30), Scored(std::nullopt));
  Finish(&engine);
  const int64_t scored = engine.Submit(Prompt(30), Scored(2));
  ExpectEqual(Finish(&engine).at(scored), Reference(Prompt(30), 2));
  EXPECT_EQ(engine.GetStatistics().cached_tokens, 0);

  engine.Submit(Prompt(30), Scored(std::nullopt));
  Finish(&engine);
  EXPECT_EQ(engine.GetStatistics().cached_tokens, 29);
}

TEST(PromptLogprobsEngine, TheLogitsOfAStepAreLimited) {
  FakeModel model({.context_window = 600, .num_pages = 600, .prefill_chunk_size = 400});
  Engine engine(&model, {}, {});
  const int64_t first = engine.Submit(Prompt(300), Scored(0));
  const int64_t second = engine.Submit(Prompt(300, 1), Scored(0));
  const int64_t plain = engine.Submit(Prompt(250, 2), Scored(std::nullopt));
  const auto logprobs = Finish(&engine);
  ExpectEqual(logprobs.at(first), Reference(Prompt(300), 0));
  ExpectEqual(logprobs.at(second), Reference(Prompt(300, 1), 0));
  EXPECT_TRUE(logprobs.at(plain).empty());
  size_t max_logits = 0;
  for (const ForwardInput& input : model.forwards()) {
    max_logits = std::max(max_logits, input.logit_positions.size());
  }
  EXPECT_GE(max_logits, 128u);
  EXPECT_LE(max_logits, 128u + 3u);
}

TEST(PromptLogprobsEngine, TokensScoredBeforeAPreemptionAreNotScoredAgain) {
  FakeModel model({.page_size = 4, .num_pages = 8});
  Engine engine(&model, {}, {.step_token_budget = 2});
  const int64_t greedy = engine.Submit(Prompt(4), Scored(std::nullopt, 24));
  const int64_t scored = engine.Submit(Prompt(17, 1), Scored(1));
  const auto logprobs = Finish(&engine);
  EXPECT_GT(engine.GetStatistics().preemptions, 0);
  EXPECT_TRUE(logprobs.at(greedy).empty());
  ExpectEqual(logprobs.at(scored), Reference(Prompt(17, 1), 1));
  size_t num_logits = 0;
  for (const ForwardInput& input : model.forwards()) num_logits += input.logit_positions.size();
  EXPECT_EQ(num_logits, 24u + 16u + 1u);
}

TEST(PromptLogprobsEngine, AResumedPrefillContinuesAtTheSameToken) {
  FakeModel model({.prefill_chunk_size = 8});
  Engine engine(&model, {}, {.max_recycling_sequences = 8});
  const int64_t id = engine.Submit(Prompt(30), Scored(2));
  engine.Step();
  engine.Pause(id);
  engine.Step();
  engine.CheckInvariants();
  engine.Resume(id);
  ExpectEqual(Finish(&engine).at(id), Reference(Prompt(30), 2));
  EXPECT_EQ(engine.GetStatistics().prefill_tokens, 30) << "computed tokens were not reused";
}

TEST(PromptLogprobsEngine, NaNLogitsOfAChunkFailOnlyTheirSequenceImmediately) {
  FakeModel model({});
  model.PoisonToken(Prompt(40, 1)[0]);
  Engine engine(&model, {}, {.max_recycling_sequences = 8});
  const int64_t poisoned = engine.Submit(Prompt(40, 1), Scored(0));
  const int64_t finite = engine.Submit(Prompt(40), Scored(0));
  std::map<int64_t, Record> last;
  while (engine.Step()) engine.CheckInvariants();
  for (Record& record : engine.Drain()) last[record.sequence_id] = std::move(record);
  EXPECT_EQ(last.at(poisoned).finish_reason, FinishReason::kError);
  EXPECT_THAT(last.at(poisoned).error, HasSubstr("finite"));
  EXPECT_EQ(model.forwards().size(), 4u) << "the rest of the prompt must not be computed";
  ExpectEqual(last.at(finite).prompt_logprobs, Reference(Prompt(40), 0));
}

TEST(PromptLogprobsEngine, NaNLogitsOfAPromptEmptyThePrefixCache) {
  FakeModel model({});
  model.PoisonToken(Prompt(40, 1)[0]);
  Engine engine(&model, {}, {.max_recycling_sequences = 8});
  engine.Submit(Prompt(30), Scored(0));
  Finish(&engine);
  EXPECT_EQ(engine.GetStatistics().num_recycling, 1);
  engine.Submit(Prompt(40, 1), Scored(0));
  Finish(&engine);
  EXPECT_EQ(engine.GetStatistics().num_recycling, 0);
  EXPECT_EQ(model.num_sequences(), 0u);
}

// With few pages, a small token budget, prompts with common prefixes, and pauses.
TEST(PromptLogprobsEngine, DoNotDependOnOtherSequences) {
  std::mt19937 random(20260101);
  const auto draw = [&](uint32_t below) { return static_cast<int32_t>(random() % below); };
  for (int round = 0; round < 60; ++round) {
    FakeModel model({.num_pages = 24, .prefill_chunk_size = 7});
    EngineOptions options{.max_recycling_sequences = draw(4)};
    if (round % 3 == 0) options.speculative_mode = SpeculativeMode::kPromptLookup;
    Engine engine(&model, {}, options);
    std::map<int64_t, std::pair<Tokens, std::optional<int64_t>>> requests;
    for (int step = 0; step < 40; ++step) {
      if (step < 12) {
        const Tokens prompt = Prompt(1 + draw(40), draw(2));
        const std::optional<int64_t> num_top =
            draw(3) == 0 ? std::nullopt : std::optional<int64_t>(draw(4));
        requests[engine.Submit(prompt, Scored(num_top, 1 + draw(20)))] = {prompt, num_top};
      }
      const int64_t any = 1 + draw(12);
      if (draw(4) == 0) engine.Pause(any);
      if (draw(2) == 0) engine.Resume(any);
      engine.Step();
      engine.CheckInvariants();
    }
    for (int64_t id = 0; id < 14; ++id) engine.Resume(id);
    std::map<int64_t, std::vector<TokenLogprobs>> logprobs = Finish(&engine);
    for (const auto& [id, request] : requests) {
      const auto& [prompt, num_top] = request;
      ExpectEqual(logprobs[id],
                  num_top ? Reference(prompt, *num_top) : std::vector<TokenLogprobs>());
    }
  }
}

}  // namespace
}  // namespace aiomlc
