// User-defined logits processors in the engine.
#include "options/logits_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using Tokens = FakeModel::Tokens;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SequenceOptions WithProcessor(int64_t max_tokens, LogitsProcessor processor) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  options.logits_processor = std::move(processor);
  return options;
}

LogitsProcessor Force(int32_t token_id) {
  return [token_id](std::span<const int32_t>, std::span<float> logits) {
    logits[static_cast<size_t>(token_id)] = 1000;
  };
}

std::map<int64_t, Record> Finish(Engine* engine) {
  while (engine->Step()) engine->CheckInvariants();
  std::map<int64_t, Record> records;
  for (Record& record : engine->Drain()) records[record.sequence_id] = std::move(record);
  return records;
}

TEST(LogitsProcessor, GetsAllPreviousTokensAndUnmodifiedLogits) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  std::vector<Tokens> seen;
  SequenceOptions options =
      WithProcessor(4, [&](std::span<const int32_t> ids, std::span<float> row) {
        seen.emplace_back(ids.begin(), ids.end());
        std::vector<float> expected(32);
        FakeModel::HashedLogits(seen.back(), &expected);
        EXPECT_EQ(std::vector<float>(row.begin(), row.end()), expected);
        row[7] = 1000;
      });
  options.logits.logit_bias = {{3, 100}};
  options.top_logprobs = 1;
  const int64_t id = engine.Submit({1, 2}, options);
  const Record record = Finish(&engine).at(id);

  EXPECT_THAT(record.token_ids, ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(
      seen, ElementsAre(Tokens{1, 2}, Tokens{1, 2, 7}, Tokens{1, 2, 7, 7}, Tokens{1, 2, 7, 7, 7}));
  EXPECT_NE(record.logprobs[0].top[0].token_id, 7)
      << "log-probabilities are computed from the unmodified logits";
}

TEST(LogitsProcessor, RunsBeforeLogitBiasAndAffectsOnlyItsSequence) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  SequenceOptions options = WithProcessor(3, Force(7));
  options.logits.logit_bias = {{7, -100}};
  options.logits.frequency_penalty = 2;
  options.logits.repetition_penalty = 1000;
  const int64_t biased = engine.Submit({1}, options);
  const int64_t forced = engine.Submit({1}, WithProcessor(3, Force(7)));
  const int64_t plain = engine.Submit({1}, WithProcessor(3, nullptr));
  const auto records = Finish(&engine);

  EXPECT_EQ(records.at(biased).token_ids[0], 7);
  EXPECT_NE(records.at(biased).token_ids[1], 7) << "898 / 1000 is below the other logits";
  EXPECT_THAT(records.at(forced).token_ids, Each(7));
  FakeModel single_model({});
  Engine single_engine(&single_model, {}, {});
  const int64_t id = single_engine.Submit({1}, WithProcessor(3, nullptr));
  EXPECT_EQ(records.at(plain).token_ids, Finish(&single_engine).at(id).token_ids);
}

TEST(LogitsProcessor, AFailureEndsOnlyItsSequence) {
  FakeModel model({});
  Engine engine(&model, {}, {.max_recycling_sequences = 8});
  const int64_t failing =
      engine.Submit({1}, WithProcessor(9, [](std::span<const int32_t> ids, std::span<float>) {
                      if (ids.size() == 3) throw LogitsProcessorError("processor error");
                    }));
  const int64_t empty =
      engine.Submit({1}, WithProcessor(9, [](std::span<const int32_t>, std::span<float> row) {
                      for (float& logit : row) logit = -std::numeric_limits<float>::infinity();
                    }));
  const int64_t healthy = engine.Submit({1}, WithProcessor(9, Force(4)));
  const auto records = Finish(&engine);

  EXPECT_EQ(records.at(failing).finish_reason, FinishReason::kError);
  EXPECT_EQ(records.at(failing).error, "processor error");
  EXPECT_EQ(records.at(failing).token_ids.size(), 2u);
  EXPECT_EQ(records.at(empty).finish_reason, FinishReason::kError);
  EXPECT_THAT(records.at(empty).error, HasSubstr("processor"));
  EXPECT_EQ(records.at(healthy).finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine.Failure(), "");
}

TEST(LogitsProcessor, AnInvalidRowOfTheModelIsNotReportedAsItsFailure) {
  FakeModel model({});
  model.PoisonToken(9);
  Engine engine(&model, {}, {});
  const int64_t id = engine.Submit({9}, WithProcessor(3, [](auto, auto) {}));
  EXPECT_THAT(Finish(&engine).at(id).error, HasSubstr("the model's logits"));
}

TEST(LogitsProcessor, ExcludingAllTokensIsNotReportedAsAModelFailure) {
  FakeModel model({});
  Engine engine(&model, {}, {.max_recycling_sequences = 8});
  engine.Submit({1, 2, 3}, WithProcessor(2, nullptr));
  Finish(&engine);
  const int64_t num_recycling = engine.GetStatistics().num_recycling;
  SequenceOptions options = WithProcessor(9, nullptr);
  options.min_tokens = 1;
  options.stop_token_ids = {4};
  options.grammar = FakeGrammar({{4}, {5}}).Clone();
  const int64_t id = engine.Submit({7}, options);

  EXPECT_THAT(Finish(&engine).at(id).error, HasSubstr("no token is allowed"));
  EXPECT_GE(engine.GetStatistics().num_recycling, num_recycling)
      << "the prefix cache is not cleared";
}

TEST(LogitsProcessor, MayCallTheEngine) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  int64_t id = 0;
  int64_t submitted = 0;
  id = engine.Submit({1}, WithProcessor(50, [&](std::span<const int32_t> ids, std::span<float>) {
                       if (ids.size() != 3) return;
                       submitted = engine.Submit({2}, WithProcessor(2, nullptr));
                       engine.Cancel(id);
                       engine.GetStatistics();
                       engine.Drain();
                     }));
  const auto records = Finish(&engine);
  EXPECT_EQ(records.at(id).finish_reason, FinishReason::kAbort);
  EXPECT_EQ(records.at(id).completion_tokens, 3);
  EXPECT_EQ(records.at(submitted).token_ids.size(), 2u);
}

TEST(LogitsProcessor, IsCalledOncePerTokenDespitePreemptions) {
  FakeModel model({.num_pages = 20, .prefill_chunk_size = 5});
  Engine engine(&model, {}, {.speculative_mode = SpeculativeMode::kPromptLookup});
  std::map<int64_t, std::vector<size_t>> sizes;
  for (int64_t i = 1; i <= 20; ++i) {
    // Alternating tokens, for which prompt lookup would propose drafts.
    engine.Submit({1},
                  WithProcessor(30, [&, i](std::span<const int32_t> ids, std::span<float> row) {
                    sizes[i].push_back(ids.size());
                    row[ids.size() % 2] = 1000;
                  }));
  }
  Finish(&engine);
  const Statistics statistics = engine.GetStatistics();
  EXPECT_GT(statistics.preemptions, 0);
  EXPECT_EQ(statistics.draft_tokens, 0);
  for (const auto& [id, call_sizes] : sizes) {
    ASSERT_EQ(call_sizes.size(), 30u);
    for (size_t i = 0; i < call_sizes.size(); ++i) EXPECT_EQ(call_sizes[i], i + 1);
  }
}

}  // namespace
}  // namespace aiomlc
