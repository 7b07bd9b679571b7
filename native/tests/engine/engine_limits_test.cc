// Timeouts, the queue limit, priorities, pausing and resetting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <span>
#include <thread>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EngineLimits : public ::testing::Test {
 protected:
  void Open(FakeModel::Sizes sizes, EngineOptions options = {}) {
    options.now = [this] { return now_; };
    engine_.reset();  // It uses the model.
    model_ = std::make_unique<FakeModel>(sizes);
    engine_ = std::make_unique<Engine>(model_.get(), Vocabulary(), options);
  }
  void SetUp() override { Open({}, {.max_recycling_sequences = 4}); }

  void TearDown() override {
    engine_->CheckInvariants();
    engine_->Close();
    EXPECT_EQ(model_->num_sequences(), 0u);
  }

  static SequenceOptions Options(uint64_t seed, int64_t max_tokens) {
    SequenceOptions options;
    options.seed = seed;
    options.max_tokens = max_tokens;
    return options;
  }

  bool Step() {
    const bool has_work = engine_->Step();
    engine_->CheckInvariants();
    for (Record& record : engine_->Drain()) {
      Record& output = outputs_[record.sequence_id];
      output.token_ids.insert(output.token_ids.end(), record.token_ids.begin(),
                              record.token_ids.end());
      output.finish_reason = record.finish_reason;
      output.error = record.error;
      if (record.finish_reason != FinishReason::kNone) ended_.push_back(record.sequence_id);
    }
    return has_work;
  }
  void StepUntilIdle() {
    while (Step()) {
    }
  }
  void StepTimes(int count) {
    for (int i = 0; i < count; ++i) Step();
  }

  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
  std::map<int64_t, Record> outputs_;
  std::vector<int64_t> ended_;
};

TEST_F(EngineLimits, TheTimeoutEndsASequenceAndKeepsItsOutput) {
  SequenceOptions options = Options(1, 50);
  options.time_limits.timeout = 1.0;
  const int64_t id = engine_->Submit({1, 2}, options);

  StepTimes(3);
  EXPECT_EQ(outputs_[id].finish_reason, FinishReason::kNone);
  now_ += milliseconds(1000);
  EXPECT_FALSE(Step());

  EXPECT_EQ(outputs_[id].finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(outputs_[id].error, "timeout");
  EXPECT_EQ(outputs_[id].token_ids.size(), 3u);
  const Statistics statistics = engine_->GetStatistics();
  EXPECT_EQ(statistics.ended[static_cast<size_t>(FinishReason::kTimeout)], 1);
  EXPECT_EQ(statistics.ended[static_cast<size_t>(FinishReason::kLength)], 0);
}

TEST_F(EngineLimits, FirstTokenTimeoutEndsASequenceWithoutTokens) {
  SequenceOptions options = Options(1, 5);
  options.time_limits.first_token_timeout = 1.0;
  const int64_t on_time = engine_->Submit({1}, options);
  Step();
  now_ += milliseconds(1500);
  const int64_t late = engine_->Submit({2}, options);
  now_ += milliseconds(1500);
  StepUntilIdle();

  EXPECT_EQ(outputs_[on_time].finish_reason, FinishReason::kLength);
  EXPECT_EQ(outputs_[late].finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(outputs_[late].error, "first_token_timeout");
}

TEST_F(EngineLimits, ForcedTokensOfAWaitingSequenceDoNotStartInterTokenTimeout) {
  Open({.max_batch_size = 1});
  engine_->Submit({1}, Options(1, 4));
  Step();
  FakeGrammar grammar({{4}, {5, 6}});
  grammar.has_forced_tokens = true;
  SequenceOptions options = Options(2, 20);
  options.grammar = grammar.Clone();
  options.time_limits.inter_token_timeout = 1.0;
  const int64_t patient = engine_->Submit({2}, options);
  options.time_limits = {.first_token_timeout = 1.0};
  const int64_t impatient = engine_->Submit({3}, options);
  Step();
  engine_->Pause(patient);
  Step();
  engine_->Resume(patient);
  now_ += milliseconds(1500);
  StepUntilIdle();

  EXPECT_EQ(outputs_[patient].finish_reason, FinishReason::kStop);
  EXPECT_EQ(outputs_[impatient].finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(outputs_[impatient].error, "first_token_timeout");
  EXPECT_THAT(outputs_[impatient].token_ids, ElementsAre(4));
}

TEST_F(EngineLimits, EveryTokenRestartsInterTokenTimeout) {
  SequenceOptions options = Options(1, 50);
  options.time_limits.inter_token_timeout = 1.0;
  const int64_t id = engine_->Submit({1}, options);
  now_ += milliseconds(5000);  // Before the first token, so not an inter-token time.
  for (int i = 0; i < 5; ++i) {
    Step();
    now_ += milliseconds(900);
  }
  EXPECT_EQ(outputs_[id].finish_reason, FinishReason::kNone);
  now_ += milliseconds(200);
  Step();

  EXPECT_EQ(outputs_[id].finish_reason, FinishReason::kTimeout);
  EXPECT_EQ(outputs_[id].error, "inter_token_timeout");
}

TEST_F(EngineLimits, TheTimeoutEndsAWaitingSequence) {
  Open({.max_batch_size = 1});
  engine_->Submit({1}, Options(1, 20));
  SequenceOptions options = Options(2, 5);
  options.time_limits.timeout = 1.0;
  const int64_t waiting = engine_->Submit({2}, options);
  Step();
  now_ += milliseconds(1100);
  Step();

  EXPECT_EQ(outputs_[waiting].finish_reason, FinishReason::kTimeout);
  StepUntilIdle();
}

TEST_F(EngineLimits, AHugeTimeoutNeverExpires) {
  SequenceOptions options = Options(1, 5);
  options.time_limits.timeout = 1e300;
  const int64_t id = engine_->Submit({1}, options);
  StepUntilIdle();

  EXPECT_EQ(outputs_[id].finish_reason, FinishReason::kLength);
}

TEST_F(EngineLimits, SubmitRejectsATimeoutOfZero) {
  SequenceOptions options = Options(1, 5);
  options.time_limits.inter_token_timeout = 0;

  EXPECT_THROW(engine_->Submit({1}, options), EngineError);
}

TEST_F(EngineLimits, SequencesRunInOrderOfPriorityAndArrival) {
  Open({.max_batch_size = 1});
  std::vector<int64_t> ids;
  for (int64_t priority : {0, 5, -5, 0}) {
    SequenceOptions options = Options(1, 3);
    options.priority = priority;
    ids.push_back(engine_->Submit({1, 2}, options));
  }
  StepUntilIdle();

  EXPECT_THAT(ended_, ElementsAre(ids[2], ids[0], ids[3], ids[1]));
}

TEST_F(EngineLimits, TheLowestPriorityIsPreempted) {
  Open({.num_pages = 8});
  SequenceOptions options = Options(1, 20);
  options.priority = 1;
  const int64_t preempted = engine_->Submit({1, 2}, options);
  Step();
  options.priority = 0;
  const int64_t urgent = engine_->Submit({3, 4}, options);
  StepUntilIdle();

  EXPECT_THAT(ended_, ElementsAre(urgent, preempted));
  EXPECT_EQ(outputs_[preempted].token_ids.size(), 20u);
}

TEST_F(EngineLimits, AFullQueueRejectsSequencesWithoutAffectingOthers) {
  Open({.max_batch_size = 2}, {.max_queue_size = 1});
  for (uint64_t i = 0; i < 3; ++i) engine_->Submit({1}, Options(i, 3));

  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      engine_->Submit({1}, Options(9, 3));
      FAIL() << "the sequence was not rejected";
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kEngineOverloaded);
      EXPECT_THAT(error.what(), HasSubstr("3 sequences"));
    }
    Step();
  }
  StepUntilIdle();
  engine_->Submit({1}, Options(9, 3));
  StepUntilIdle();

  EXPECT_EQ(ended_.size(), 4u);
}

TEST_F(EngineLimits, TheQueueLimitHoldsDuringAStep) {
  Open({.max_batch_size = 1}, {.max_queue_size = 0});
  int num_rejected = 0;
  SequenceOptions options = Options(0, 3);
  options.logits_processor = [&](auto, auto) {
    EXPECT_THROW(engine_->Submit({1}, Options(1, 3)), EngineError);
    ++num_rejected;
  };
  engine_->Submit({1}, options);
  StepUntilIdle();

  EXPECT_EQ(num_rejected, 3);
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_F(EngineLimits, ALogitsProcessorThatWritesNanIsNamed) {
  SequenceOptions options = Options(1, 4);
  options.logits_processor = [](auto, std::span<float> logits) {
    logits[3] = std::numeric_limits<float>::quiet_NaN();
  };
  const int64_t id = engine_->Submit({1}, options);
  StepUntilIdle();

  EXPECT_EQ(outputs_[id].finish_reason, FinishReason::kError);
  EXPECT_THAT(outputs_[id].error, HasSubstr("a logits processor has set a logit to NaN"));
}

TEST_F(EngineLimits, PausedSequencesCountTowardsTheQueueLimit) {
  Open({.max_batch_size = 1}, {.max_queue_size = 1});
  for (uint64_t i = 0; i < 2; ++i) {
    const int64_t paused = engine_->Submit({1}, Options(i, 9));
    Step();
    engine_->Pause(paused);
    Step();
  }

  EXPECT_EQ(engine_->GetStatistics().num_paused, 2);
  EXPECT_THROW(engine_->Submit({1}, Options(9, 3)), EngineError);
}

TEST_F(EngineLimits, PausingDoesNotChangeTheOutput) {
  for (int64_t max_recycling : {0, 4}) {
    Open({}, {.max_recycling_sequences = max_recycling});
    const int64_t plain = engine_->Submit({1, 2, 3}, Options(7, 20));
    StepUntilIdle();
    const int64_t paused = engine_->Submit({1, 2, 3}, Options(7, 20));
    StepTimes(4);
    const size_t num_tokens = outputs_[paused].token_ids.size();
    engine_->Pause(paused);
    EXPECT_FALSE(Step());
    EXPECT_EQ(engine_->GetStatistics().num_paused, 1);
    EXPECT_EQ(engine_->GetStatistics().num_running, 0);
    StepTimes(3);
    EXPECT_EQ(outputs_[paused].token_ids.size(), num_tokens);
    engine_->Resume(paused);
    StepUntilIdle();

    EXPECT_EQ(outputs_[paused].token_ids, outputs_[plain].token_ids);
    outputs_.clear();
    engine_->Close();
  }
}

TEST_F(EngineLimits, ComputedTokensOfAPausedSequenceAreKeptWhileThereAreFreePages) {
  const int64_t id = engine_->Submit({1, 2, 3, 4, 5, 6}, Options(7, 10));
  StepTimes(3);
  engine_->Pause(id);
  Step();
  const size_t before = model_->forwards().size();
  engine_->Resume(id);
  Step();

  EXPECT_EQ(model_->forwards().size(), before + 1);
  EXPECT_EQ(model_->forwards().back().token_ids.size(), 1u);
  StepUntilIdle();
}

TEST_F(EngineLimits, APausedSequenceDoesNotBlockOthers) {
  Open({.num_pages = 5}, {.max_recycling_sequences = 4});
  const int64_t paused = engine_->Submit({1, 2, 3}, Options(1, 15));
  StepTimes(8);
  engine_->Pause(paused);
  const int64_t other = engine_->Submit({4, 5, 6}, Options(2, 15));
  StepUntilIdle();
  EXPECT_THAT(ended_, ElementsAre(other));
  engine_->Resume(paused);
  StepUntilIdle();

  EXPECT_EQ(outputs_[paused].token_ids.size(), 15u);
}

TEST_F(EngineLimits, APausedSequenceCanBeCancelledAndHasOnlyTheTotalTimeout) {
  SequenceOptions options = Options(1, 20);
  options.time_limits = {.timeout = 10.0, .first_token_timeout = {}, .inter_token_timeout = 1.0};
  const int64_t timed = engine_->Submit({1}, options);
  const int64_t cancelled = engine_->Submit({2}, Options(2, 20));
  const int64_t queued = engine_->Submit({3}, Options(3, 20));
  engine_->Pause(queued);  // Before its first step.
  Step();
  engine_->Pause(timed);
  engine_->Pause(cancelled);
  engine_->Pause(cancelled);
  Step();
  EXPECT_EQ(engine_->GetStatistics().num_paused, 3);
  engine_->Cancel(cancelled);
  now_ += milliseconds(5000);
  Step();
  EXPECT_EQ(outputs_[timed].finish_reason, FinishReason::kNone);
  EXPECT_EQ(outputs_[cancelled].finish_reason, FinishReason::kAbort);
  now_ += milliseconds(6000);
  Step();

  EXPECT_EQ(outputs_[timed].error, "timeout");
  engine_->Resume(queued);
  StepUntilIdle();
  EXPECT_EQ(outputs_[queued].finish_reason, FinishReason::kLength);
}

TEST_F(EngineLimits, ResetEmptiesThePrefixCacheAndTheCountersWithoutAffectingSequences) {
  engine_->Submit({1, 2, 3, 4, 5, 6}, Options(1, 4));
  StepUntilIdle();
  const int64_t cancelled = engine_->Submit({7}, Options(1, 40));
  const int64_t running = engine_->Submit({8}, Options(2, 10));
  Step();
  engine_->Cancel(cancelled);
  engine_->Reset();
  Step();
  const Statistics statistics = engine_->GetStatistics();
  StepUntilIdle();

  EXPECT_EQ(statistics.num_recycling, 0);
  EXPECT_EQ(statistics.prompt_tokens, 0);
  EXPECT_EQ(statistics.steps, 1);
  EXPECT_EQ(outputs_[running].token_ids.size(), 10u);
  engine_->Reset();
  EXPECT_FALSE(Step());
  EXPECT_EQ(engine_->GetStatistics().completion_tokens, 0);
}

TEST_F(EngineLimits, ResetCountsTheSequencesThatWereSubmittedAtTheSameTime) {
  FakeGrammar grammar({{4}, {5}, {6, 7}});
  grammar.has_forced_tokens = true;
  SequenceOptions options = Options(1, 3);
  options.grammar = grammar.Clone();
  engine_->Submit({1, 2, 3}, options);
  const int64_t cancelled = engine_->Submit({4, 5}, Options(1, 2));
  engine_->Cancel(cancelled);
  engine_->Reset();
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().prompt_tokens, 3);
  EXPECT_EQ(engine_->GetStatistics().completion_tokens, 3);
  EXPECT_EQ(engine_->GetStatistics().forced_tokens, 2);
}

TEST(EngineRun, WakesForADeadline) {
  FakeModel model{FakeModel::Sizes()};
  Engine engine(&model, {}, {});
  SequenceOptions options;
  options.time_limits.timeout = 0.05;
  options.seed = 1;
  const int64_t id = engine.Submit({1}, options);
  engine.Pause(id);
  std::jthread runner([&] { engine.Run(); });

  std::vector<Record> records;
  while (records.empty() || records.back().finish_reason == FinishReason::kNone) {
    for (Record& record : engine.Drain()) records.push_back(std::move(record));
    std::this_thread::yield();
  }
  engine.Stop();

  EXPECT_EQ(records.back().finish_reason, FinishReason::kTimeout);
}

}  // namespace
}  // namespace aiomlc
