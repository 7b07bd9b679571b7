// Continuous batching, chunked prefill and preemption.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace aiomlc {
namespace {

class EngineBatchingTest : public EngineTest {};

TEST_F(EngineBatchingTest, TokensDependNeitherOnTheBatchNorOnTheChunks) {
  Open({.num_pages = 200, .max_batch_size = 6, .prefill_chunk_size = 7});
  std::mt19937 random(11);
  std::map<int64_t, std::pair<std::vector<int32_t>, SequenceOptions>> requests;
  for (int i = 0; i < 30; ++i) {
    std::vector<int32_t> prompt(1 + random() % 30);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 32);
    SequenceOptions options = Seeded(random(), 1 + random() % 20);
    if (i % 3 == 0) options.sampling.temperature = 0;
    if (i % 3 == 1) options.sampling.top_p = 0.8;
    requests[Submit(prompt, options)] = {prompt, options};
    for (size_t steps = random() % 4; steps > 0; --steps) engine_->Step();
  }

  StepUntilIdle();

  for (const auto& [id, request] : requests) {
    const Record alone = GenerateAlone(request.first, request.second);
    EXPECT_EQ(output_[id].token_ids, alone.token_ids) << id;
    EXPECT_EQ(output_[id].text, alone.text) << id;
  }
}

TEST_F(EngineBatchingTest, PreemptionDoesNotChangeTheOutput) {
  Open({.page_size = 4, .num_pages = 12, .prefill_chunk_size = 5});
  std::map<int64_t, std::pair<std::vector<int32_t>, SequenceOptions>> requests;
  for (int32_t i = 0; i < 4; ++i) {
    const std::vector<int32_t> prompt = {i, 9};
    const SequenceOptions options = Seeded(static_cast<uint64_t>(i), 35);
    requests[Submit(prompt, options)] = {prompt, options};
  }

  StepUntilIdle();

  const Statistics statistics = engine_->GetStatistics();
  EXPECT_GT(statistics.prefill_tokens, statistics.prompt_tokens) << "nothing was preempted";
  for (const auto& [id, request] : requests) {
    const Record alone = GenerateAlone(request.first, request.second);
    EXPECT_EQ(output_[id].token_ids, alone.token_ids) << id;
    EXPECT_EQ(output_[id].text, alone.text) << id;
    EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
    EXPECT_EQ(output_[id].completion_tokens, 35);
  }
}

TEST_F(EngineBatchingTest, ALongPromptDoesNotStallARunningSequence) {
  Open({.prefill_chunk_size = 4});
  const int64_t running = Submit({1}, Greedy(20));
  engine_->Step();
  Submit(std::vector<int32_t>(30, 2), Greedy(1));

  for (int64_t step = 2; step <= 8; ++step) {
    engine_->Step();
    Collect();
    EXPECT_EQ(output_[running].completion_tokens, step);
  }
}

TEST_F(EngineBatchingTest, TheStepTokenBudgetLimitsEveryForwardPass) {
  Open({.prefill_chunk_size = 64}, {.step_token_budget = 3});
  Submit(std::vector<int32_t>(20, 2), Greedy(3));
  Submit(std::vector<int32_t>(20, 3), Greedy(3));

  StepUntilIdle();

  for (const ForwardInput& input : model_->forwards()) EXPECT_LE(input.token_ids.size(), 3u);
}

TEST_F(EngineBatchingTest, SmallerSequencesBypassOneThatDoesNotFitALimitedNumberOfTimes) {
  Open({.page_size = 4, .num_pages = 16});
  Submit({1}, Greedy(50));
  engine_->Step();
  const int64_t big = Submit(std::vector<int32_t>(60, 2), Greedy(1));
  std::vector<int64_t> small;
  for (int i = 0; i < 40; ++i) small.push_back(Submit({3}, Greedy(2)));

  while (output_[big].finish_reason == FinishReason::kNone) {
    ASSERT_TRUE(engine_->Step());
    Collect();
  }

  int finished_before = 0;
  for (int64_t id : small) {
    finished_before += output_.contains(id) && output_[id].finish_reason != FinishReason::kNone;
  }
  EXPECT_EQ(finished_before, 16);
  StepUntilIdle();
}

TEST_F(EngineBatchingTest, UnderRandomLoadEverySequenceEndsOnceAndAllPagesAreFreed) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    Open({.page_size = 4,
          .num_pages = 17,
          .max_batch_size = static_cast<int64_t>(1 + random() % 8),
          .prefill_chunk_size = static_cast<int64_t>(1 + random() % 20)});
    submitted_.clear();
    output_.clear();
    num_finals_.clear();
    for (int step = 0; step < 1500; ++step) {
      if (random() % 4 == 0) {
        std::vector<int32_t> prompt(1 + random() % (random() % 5 == 0 ? 60 : 12));
        for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 32);
        SequenceOptions options = Seeded(random(), 1 + random() % 50);
        options.stop = {"ab", "q"};
        options.stop_token_ids = {28};
        Submit(prompt, options);
      }
      if (random() % 8 == 0 && !submitted_.empty()) {
        engine_->Cancel(submitted_[random() % submitted_.size()]);
      }
      if (random() % 5 != 0) engine_->Step();
      if (random() % 3 == 0) Collect();
      engine_->CheckInvariants();
      ASSERT_LE(model_->pages_in_use(), 17 - engine_->GetStatistics().free_pages);
    }
    StepUntilIdle();
    ASSERT_GT(submitted_.size(), 300u);
    for (int64_t id : submitted_) ASSERT_EQ(num_finals_[id], 1) << "sequence " << id;
    ASSERT_EQ(model_->num_sequences(), 0u);
    ASSERT_EQ(engine_->GetStatistics().free_pages, 17);
  }
}

}  // namespace
}  // namespace aiomlc
