// Cancellation, and failures of the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace aiomlc {
namespace {

using ::testing::HasSubstr;

class EngineFailureTest : public EngineTest {};

TEST_F(EngineFailureTest, CancellationFreesPagesAndDoesNotAffectOtherSequences) {
  const int64_t survivor = Submit({1, 2}, Seeded(1, 12));
  const int64_t running = Submit({3, 4}, Seeded(2, 50));
  engine_->Step();
  const int64_t waiting = Submit({5}, Seeded(3, 50));
  engine_->Cancel(running);
  engine_->Cancel(waiting);
  engine_->Cancel(12345);

  engine_->Step();

  EXPECT_EQ(model_->num_sequences(), 1u);
  StepUntilIdle();
  EXPECT_EQ(output_[running].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(output_[running].completion_tokens, 1);
  EXPECT_EQ(output_[waiting].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(output_[survivor].token_ids, GenerateAlone({1, 2}, Seeded(1, 12)).token_ids);
}

TEST_F(EngineFailureTest, CancellingAnEndedSequenceHasNoEffect) {
  const int64_t id = Submit({1}, Greedy(1));
  StepUntilIdle();

  engine_->Cancel(id);
  engine_->Cancel(id);
  StepUntilIdle();

  EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
}

TEST_F(EngineFailureTest, NaNLogitsFailOnlyTheirSequence) {
  model_->PoisonToken(13);
  const int64_t first = Submit({1}, Seeded(1, 5));
  const int64_t failed = Submit({13}, Seeded(2, 5));
  const int64_t last = Submit({2}, Seeded(3, 5));

  StepUntilIdle();

  EXPECT_EQ(output_[failed].finish_reason, FinishReason::kError);
  EXPECT_THAT(output_[failed].error, HasSubstr("not finite"));
  EXPECT_EQ(output_[failed].completion_tokens, 0);
  EXPECT_EQ(output_[first].token_ids, GenerateAlone({1}, Seeded(1, 5)).token_ids);
  EXPECT_EQ(output_[last].token_ids, GenerateAlone({2}, Seeded(3, 5)).token_ids);
}

TEST_F(EngineFailureTest, AnExceptionOfTheModelEndsEverySequenceAndTheEngine) {
  model_->ThrowAt(2);
  const int64_t first = Submit({1}, Greedy());
  const int64_t second = Submit({2}, Greedy());
  engine_->Step();
  engine_->Step();
  const int64_t waiting = Submit({3}, Greedy());
  EXPECT_EQ(engine_->Failure(), "");

  EXPECT_THROW(engine_->Step(), EngineError);

  Collect();
  for (int64_t id : {first, second, waiting}) {
    EXPECT_EQ(output_[id].finish_reason, FinishReason::kError);
    EXPECT_EQ(output_[id].error, "the model failed: forward failed");
  }
  EXPECT_EQ(engine_->Failure(), "the model failed: forward failed");
  const auto is_dead = [](const EngineError& error) {
    return error.kind() == ErrorKind::kEngineDead &&
           std::string(error.what()) == "the model failed: forward failed";
  };
  EXPECT_THAT([&] { engine_->Step(); }, ::testing::Throws<EngineError>(::testing::Truly(is_dead)));
  EXPECT_THAT([&] { engine_->Run(); }, ::testing::Throws<EngineError>(::testing::Truly(is_dead)));
  EXPECT_THAT([&] { engine_->Submit({1}, Greedy()); },
              ::testing::Throws<EngineError>(::testing::Truly(is_dead)));
}

TEST_F(EngineFailureTest, SequencesSubmittedDuringTheFailingStepEnd) {
  model_->ThrowAt(0);
  model_->OnForward([&] { Submit({2}, Greedy()); });
  Submit({1}, Greedy());

  EXPECT_THROW(engine_->Step(), EngineError);

  Collect();
  ASSERT_EQ(submitted_.size(), 2u);
  EXPECT_EQ(output_[submitted_[1]].finish_reason, FinishReason::kError);
}

TEST_F(EngineFailureTest, ASequenceCancelledDuringPrefillEndsBeforeTheNextChunk) {
  Open({.prefill_chunk_size = 4});
  const int64_t id = Submit(std::vector<int32_t>(40, 1), Greedy());
  model_->OnForward([&] {
    if (model_->forwards().size() == 1) engine_->Cancel(id);
  });

  StepUntilIdle();

  EXPECT_EQ(model_->forwards().size(), 2u);
  EXPECT_EQ(output_[id].finish_reason, FinishReason::kAbort);
}

TEST_F(EngineFailureTest, EverySequenceEndsEvenIfTheModelCannotFreePages) {
  model_->ThrowOnRemove();
  Submit({1}, Greedy());
  Submit({2}, Greedy());
  engine_->Step();

  EXPECT_THAT([&] { engine_->Close(); },
              ::testing::ThrowsMessage<EngineError>(HasSubstr("cache error")));
}

}  // namespace
}  // namespace aiomlc
