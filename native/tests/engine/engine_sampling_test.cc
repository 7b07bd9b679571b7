#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/letter_vocabulary.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/*! \return The letters, and the halves of a two-byte character (26, 27). */
Vocabulary Letters() { return LetterVocabulary(26, {"\xc3", "\xa9"}); }

SequenceOptions Greedy(int64_t max_tokens) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

/*! \brief Step until there is no more work. \return The record of the only sequence. */
Record Finish(Engine* engine) {
  while (engine->Step()) engine->CheckInvariants();
  return engine->Drain().at(0);
}

Record Generate(FakeModel* model, const SequenceOptions& options) {
  Engine engine(model, Letters(), {});
  engine.Submit({1}, options);
  return Finish(&engine);
}

TEST(EngineSampling, ErrorsOfInvalidOptionsContainTheirNames) {
  FakeModel model({});
  Engine engine(&model, Letters(), {});
  const auto error_of = [&](auto change) {
    SequenceOptions options;
    change(options);
    try {
      engine.Submit({1}, options);
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      return std::string(error.what());
    }
    return std::string("none");
  };

  EXPECT_THAT(error_of([](auto& o) { o.logits.presence_penalty = 2.1; }),
              HasSubstr("presence_penalty"));
  EXPECT_THAT(error_of([](auto& o) { o.logits.frequency_penalty = -2.1; }),
              HasSubstr("frequency_penalty"));
  EXPECT_THAT(error_of([](auto& o) { o.logits.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty"));
  EXPECT_THAT(error_of([](auto& o) { o.logits.logit_bias = {{1, 100.5}}; }),
              HasSubstr("logit_bias"));
  EXPECT_THAT(error_of([](auto& o) { o.logits.logit_bias = {{32, 1}}; }), HasSubstr("token 32"));
  EXPECT_THAT(error_of([](auto& o) { o.logits.logit_bias = {{-1, 1}}; }), HasSubstr("token -1"));
  EXPECT_THAT(error_of([](auto& o) { o.logits.logit_bias = {{3, 1}, {3, 2}}; }),
              HasSubstr("two for token 3"));
  EXPECT_THAT(error_of([](auto& o) { o.min_tokens = -1; }), HasSubstr("min_tokens"));
  EXPECT_THAT(error_of([](auto& o) { o = Greedy(3), o.min_tokens = 4; }), HasSubstr("min_tokens"));
  EXPECT_THAT(error_of([](auto& o) { o.top_logprobs = 21; }), HasSubstr("top_logprobs"));
  EXPECT_THAT(error_of([](auto& o) { o.top_logprobs = -1; }), HasSubstr("top_logprobs"));
}

TEST(EngineSampling, ABiasForcesOrBansAToken) {
  FakeModel model({});
  model.Script([](const FakeModel::Tokens&) { return 4; });
  SequenceOptions options = Greedy(3);
  options.logits.logit_bias = {{7, 100}};
  EXPECT_THAT(Generate(&model, options).token_ids, ElementsAre(7, 7, 7));

  options.logits.logit_bias = {{4, -100}};
  EXPECT_THAT(Generate(&model, options).token_ids, ElementsAre(0, 0, 0));
}

TEST(EngineSampling, PenaltiesCountGeneratedTokensButNotThePrompt) {
  FakeModel model({});
  model.Script([](const FakeModel::Tokens&) { return 1; });  // The prompt's token has logit 9.
  SequenceOptions options = Greedy(6);
  options.logits.frequency_penalty = 2;
  EXPECT_THAT(Generate(&model, options).token_ids, ElementsAre(1, 1, 1, 1, 1, 0));

  options = Greedy(3);
  options.logits.repetition_penalty = 1000;
  options.logits.presence_penalty = 1;
  EXPECT_THAT(Generate(&model, options).token_ids, ElementsAre(1, 1, 1)) << "8 / 1000 is above 0";
}

TEST(EngineSampling, StopConditionsAreIgnoredBeforeMinTokens) {
  FakeModel model({});
  SequenceOptions options = Greedy(20);
  options.stop_token_ids = {3};
  options.stop = {"ee"};
  options.min_tokens = 4;
  model.Script([](const FakeModel::Tokens&) { return 3; });
  const Record stopped = Generate(&model, options);
  EXPECT_THAT(stopped.token_ids, ElementsAre(0, 0, 0, 0, 3));
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.completion_tokens, 5);

  model.Script([](const FakeModel::Tokens&) { return 4; });
  const Record matched = Generate(&model, options);
  EXPECT_THAT(matched.token_ids, ElementsAre(4, 4, 4, 4));
  EXPECT_EQ(matched.text, "ee") << "a match may begin before min_tokens, but not end there";
  EXPECT_EQ(matched.finish_reason, FinishReason::kStop);
}

TEST(EngineSampling, LogprobsAreComputedFromTheUnadjustedLogits) {
  FakeModel model({});
  SequenceOptions options = Greedy(12);
  options.top_logprobs = 3;
  const Record plain = Generate(&model, options);
  ASSERT_EQ(plain.logprobs.size(), plain.token_ids.size());
  FakeModel::Tokens tokens = {1};
  for (size_t i = 0; i < plain.token_ids.size(); ++i) {
    std::vector<float> logits(32);
    FakeModel::HashedLogits(tokens, &logits);
    const TokenLogprobs expected = ComputeLogprobs(logits.data(), 32, plain.token_ids[i], 3);
    EXPECT_EQ(plain.logprobs[i].logprob, expected.logprob);
    ASSERT_EQ(plain.logprobs[i].top.size(), 3u);
    EXPECT_EQ(plain.logprobs[i].top[0].token_id, plain.token_ids[i]) << "greedy";
    EXPECT_EQ(plain.logprobs[i].top[2].logprob, expected.top[2].logprob);
    tokens.push_back(plain.token_ids[i]);
  }

  SequenceOptions forced = options;
  forced.logits.logit_bias = {{5, 100}};
  forced.sampling.temperature = 2;
  forced.max_tokens = 1;
  const Record biased = Generate(&model, forced);
  EXPECT_THAT(biased.token_ids, ElementsAre(5));
  EXPECT_EQ(biased.logprobs[0].top[0].token_id, plain.token_ids[0]);
  EXPECT_EQ(biased.logprobs[0].top[0].logprob, plain.logprobs[0].logprob);
}

TEST(EngineSampling, HeldBackTextDoesNotDelayLogprobs) {
  FakeModel model({});
  model.ScriptTokens(1, {26, 27, 18, 19, 0, 5});
  SequenceOptions options = Greedy(10);
  options.top_logprobs = 0;
  options.stop = {"stop"};
  options.stop_token_ids = {5};
  Engine engine(&model, Letters(), {});
  engine.Submit({1}, options);
  std::vector<size_t> counts;
  std::string text;
  for (bool has_work = true; has_work;) {
    has_work = engine.Step();
    for (const Record& record : engine.Drain()) {
      EXPECT_EQ(record.logprobs.size(), record.token_ids.size());
      counts.push_back(record.logprobs.size());
      text += record.text;
    }
  }

  EXPECT_THAT(counts, ElementsAre(1, 1, 1, 1, 1, 1)) << "the last one is of the stop token";
  EXPECT_EQ(text, "\xc3\xa9sta");
}

/*! \return A combination of options that depends on `number`. */
SequenceOptions VariedOptions(uint32_t number) {
  SequenceOptions options;
  options.seed = number;
  options.max_tokens = 30;
  if (number % 2 == 0) options.sampling.temperature = 0;
  if (number % 3 == 0) options.logits.frequency_penalty = 0.3;
  if (number % 3 == 1) options.logits.repetition_penalty = 1.2;
  if (number % 4 == 0) options.logits.logit_bias = {{number % 20, 2}, {3, -100}};
  if (number % 5 == 0) options.top_logprobs = number % 4;
  options.stop_token_ids = {9};
  options.min_tokens = number % 7;
  return options;
}

// There are few pages, so that sequences are preempted and recomputed in chunks.
TEST(EngineSampling, OutputsDependNeitherOnTheBatchNorOnPreemption) {
  FakeModel crowded({.num_pages = 20, .prefill_chunk_size = 5});
  Engine engine(&crowded, Letters(), {});
  std::map<int64_t, SequenceOptions> requests;
  for (uint32_t number = 0; number < 24; ++number) {
    requests[engine.Submit({1}, VariedOptions(number))] = VariedOptions(number);
  }
  while (engine.Step()) engine.CheckInvariants();
  const Statistics statistics = engine.GetStatistics();
  EXPECT_GT(statistics.prefill_tokens, statistics.prompt_tokens) << "nothing was preempted";

  for (const Record& record : engine.Drain()) {
    const SequenceOptions& options = requests.at(record.sequence_id);
    FakeModel model({});
    const Record alone = Generate(&model, options);
    EXPECT_EQ(record.token_ids, alone.token_ids);
    EXPECT_EQ(record.logprobs.size(), options.top_logprobs ? alone.token_ids.size() : 0);
    for (size_t i = 0; i < record.logprobs.size(); ++i) {
      EXPECT_EQ(record.logprobs[i].logprob, alone.logprobs[i].logprob);
    }
  }
}

/*! \return The records of 8 requests that are sampled together. */
std::map<int64_t, Record> GenerateBatch(ThreadPool* pool) {
  constexpr int kVocabulary = 9000;
  FakeModel model({.vocab_size = kVocabulary});
  model.UseThreads(pool);
  model.PoisonToken(5);
  Engine engine(&model, LetterVocabulary(26, std::vector<std::string>(kVocabulary - 26, "-")), {});
  for (uint32_t number = 0; number < 8; ++number) {
    SequenceOptions options = VariedOptions(number);
    if (number == 3) {
      options.logits_processor = [](std::span<const int32_t>, std::span<float> logits) {
        logits[30] = 50;
      };
    }
    if (number == 6) options.sampling.top_p = 0.3;
    engine.Submit({number == 2 ? 5 : 1}, options);
  }
  while (engine.Step()) engine.CheckInvariants();
  std::map<int64_t, Record> records;
  for (Record& record : engine.Drain()) records[record.sequence_id] = std::move(record);
  return records;
}

TEST(EngineSampling, OutputsDoNotDependOnTheThreadsThatSample) {
  ThreadPool pool(3);
  const std::map<int64_t, Record> expected = GenerateBatch(nullptr);
  const std::map<int64_t, Record> records = GenerateBatch(&pool);

  ASSERT_EQ(records.size(), 8u);
  for (const auto& [id, record] : records) {
    EXPECT_EQ(record.token_ids, expected.at(id).token_ids);
    EXPECT_EQ(record.error, expected.at(id).error);
  }
}

}  // namespace
}  // namespace aiomlc
