// Submission, lifetime and statistics of the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace aiomlc {
namespace {

TEST_F(EngineTest, SubmitRejectsInvalidPromptsAndOptions) {
  const auto kind = [&](std::vector<int32_t> prompt, const SequenceOptions& options) {
    try {
      engine_->Submit(std::move(prompt), options);
    } catch (const EngineError& error) {
      return std::string(ErrorKindName(error.kind()));
    }
    return std::string("none");
  };
  const auto with = [](auto change) {
    SequenceOptions options;
    change(options);
    return options;
  };

  EXPECT_EQ(kind({}, {}), "BadRequestError");
  EXPECT_EQ(kind({32}, {}), "BadRequestError");
  EXPECT_EQ(kind({-1}, {}), "BadRequestError");
  EXPECT_EQ(kind(std::vector<int32_t>(64, 1), {}), "PromptTooLongError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.max_tokens = 0; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.temperature = -0.1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) {
                   o.sampling.temperature = std::numeric_limits<double>::quiet_NaN();
                 })),
            "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.top_p = -0.1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.top_p = 1.1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.top_k = -1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.min_p = 1.5; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.stop = {"a", ""}; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.stop = {"\xff"}; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.stop_token_ids = {-1}; })), "BadRequestError");
}

TEST_F(EngineTest, PromptTooLongErrorContainsBothCounts) {
  Open({.context_window = 64, .page_size = 4, .num_pages = 3});
  try {
    engine_->Submit(std::vector<int32_t>(12, 1), {});
    FAIL() << "the prompt was accepted";
  } catch (const PromptTooLongError& error) {
    EXPECT_EQ(error.prompt_tokens(), 12);
    EXPECT_EQ(error.context_window(), 12);
    EXPECT_STREQ(error.what(), "prompt has 12 tokens, context window is 12");
  }
}

TEST_F(EngineTest, TheConstructorRejectsInvalidOptions) {
  EXPECT_THROW(Engine(model_.get(), Letters(), {.step_token_budget = 0}), EngineError);
}

TEST_F(EngineTest, RunReturnsAtOnceAfterAPrecedingStop) {
  engine_->Stop();
  engine_->Run();

  EXPECT_EQ(engine_->GetStatistics().steps, 0);
}

TEST_F(EngineTest, CloseEndsEverySequenceAndRejectsNewSequences) {
  const int64_t running = Submit({1}, Greedy());
  engine_->Step();
  const int64_t in_inbox = Submit({2}, Greedy());

  engine_->Close();
  engine_->Close();
  engine_->Run();

  Collect();
  EXPECT_EQ(output_[running].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(output_[in_inbox].finish_reason, FinishReason::kAbort);
  EXPECT_FALSE(engine_->Step());
  EXPECT_THAT([&] { engine_->Submit({1}, Greedy()); },
              ::testing::Throws<EngineError>(
                  ::testing::Property(&EngineError::kind, ErrorKind::kEngineClosed)));
}

TEST_F(EngineTest, StepReturnsWhetherThereIsMoreWork) {
  EXPECT_FALSE(engine_->Step());
  Submit({1}, Greedy(2));

  EXPECT_TRUE(engine_->Step());
  EXPECT_FALSE(engine_->Step());
}

TEST_F(EngineTest, TheWakeDescriptorIsReadableWhileThereAreRecords) {
  const auto is_readable = [&] {
    pollfd entry{engine_->wake_fd(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  };
  Submit({1}, Greedy(3));
  EXPECT_FALSE(is_readable());

  engine_->Step();
  engine_->Step();
  EXPECT_TRUE(is_readable());

  Collect();
  EXPECT_FALSE(is_readable());
}

TEST_F(EngineTest, StatisticsCountTokensStepsAndPages) {
  Open({.page_size = 4, .num_pages = 64, .prefill_chunk_size = 4});
  Submit({1, 2, 3, 4, 5, 6}, Greedy(3));
  Submit({1}, Greedy(1));
  EXPECT_EQ(engine_->GetStatistics().num_waiting, 2);

  engine_->Step();
  const Statistics during = engine_->GetStatistics();
  StepUntilIdle();
  const Statistics after = engine_->GetStatistics();

  EXPECT_EQ(during.num_running, 2);
  EXPECT_EQ(during.num_waiting, 0);
  EXPECT_EQ(during.free_pages, 61);
  EXPECT_EQ(after.total_pages, 64);
  EXPECT_EQ(after.free_pages, 64);
  EXPECT_EQ(after.prompt_tokens, 7);
  EXPECT_EQ(after.completion_tokens, 4);
  EXPECT_EQ(after.prefill_tokens, 7);
  EXPECT_EQ(after.decode_tokens, 2);
  EXPECT_EQ(after.steps, 4);
  EXPECT_GT(after.prefill_seconds, 0);
  EXPECT_GT(after.decode_seconds, 0);
}

TEST_F(EngineTest, SequencesWithoutASeedHaveDifferentSeeds) {
  SequenceOptions options;
  options.max_tokens = 40;
  const int64_t first = Submit({1}, options);
  const int64_t second = Submit({1}, options);

  StepUntilIdle();

  EXPECT_NE(output_[first].token_ids, output_[second].token_ids);
}

}  // namespace
}  // namespace aiomlc
