// Finish reasons, and the text and tokens that are reported at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/engine_fixture.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;

class EngineFinishTest : public EngineTest {};

TEST_F(EngineFinishTest, AStopTokenEndsTheSequenceAndIsReportedWithoutText) {
  model_->ScriptTokens(2, {7, 8, 28});
  SequenceOptions options = Greedy();
  options.stop_token_ids = {5, 28};
  const int64_t id = Submit({1, 2}, options);

  StepUntilIdle();

  EXPECT_EQ(output_[id].text, "hi");
  EXPECT_THAT(output_[id].token_ids, ElementsAre(7, 8, 28));
  EXPECT_EQ(output_[id].finish_reason, FinishReason::kStop);
  EXPECT_EQ(output_[id].prompt_tokens, 2);
  EXPECT_EQ(output_[id].completion_tokens, 3);
}

TEST_F(EngineFinishTest, AStopStringAcrossTokensAndTheTextAfterItAreNotReported) {
  model_->ScriptTokens(1, {0, 29, 30, 1});
  SequenceOptions options = Greedy();
  options.stop = {"TO", "XYZ"};
  const int64_t id = Submit({1}, options);

  StepUntilIdle();

  EXPECT_EQ(output_[id].text, "aS");
  EXPECT_THAT(output_[id].token_ids, ElementsAre(0, 29, 30));
  EXPECT_EQ(output_[id].finish_reason, FinishReason::kStop);
  EXPECT_EQ(output_[id].completion_tokens, 3);
}

TEST_F(EngineFinishTest, TextThatMayStartAStopStringIsHeldBack) {
  model_->ScriptTokens(1, {29, 30, 1, 2, 3});
  SequenceOptions options = Greedy(5);
  options.stop = {"STOP!"};
  const int64_t id = Submit({1}, options);

  engine_->Step();
  engine_->Step();
  Collect();
  EXPECT_EQ(output_[id].text, "");
  EXPECT_EQ(output_[id].completion_tokens, 2);
  StepUntilIdle();

  EXPECT_EQ(output_[id].text, "STOPbcd");
}

TEST_F(EngineFinishTest, HeldBackTextIsReportedWhenTheSequenceEnds) {
  model_->ScriptTokens(1, {0, 29, 26, 28});
  SequenceOptions by_length = Greedy(2);
  by_length.stop = {"STOP"};
  SequenceOptions by_token = Greedy();
  by_token.stop_token_ids = {28};
  const int64_t first = Submit({1}, by_length);
  const int64_t second = Submit({1}, by_token);

  StepUntilIdle();

  EXPECT_EQ(output_[first].text, "aST");
  EXPECT_EQ(output_[first].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[second].text, "aST\xef\xbf\xbd");
  EXPECT_EQ(output_[second].finish_reason, FinishReason::kStop);
}

TEST_F(EngineFinishTest, ACharacterOfTwoTokensIsReportedAtOnce) {
  model_->ScriptTokens(1, {26, 27, 0});
  const int64_t id = Submit({1}, Greedy(3));

  engine_->Step();
  Collect();
  EXPECT_EQ(output_[id].text, "");
  EXPECT_THAT(output_[id].token_ids, ElementsAre(26));
  StepUntilIdle();

  EXPECT_EQ(output_[id].text,
            "\xc3\xa9"
            "a");
}

TEST_F(EngineFinishTest, MaxTokensEndsTheSequenceWithLength) {
  const int64_t id = Submit({1, 2, 3}, Greedy(4));

  StepUntilIdle();

  EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[id].completion_tokens, 4);
  EXPECT_EQ(output_[id].token_ids.size(), 4u);
}

TEST_F(EngineFinishTest, AFullContextWindowEndsTheSequenceWithLength) {
  Open({.context_window = 10});
  const int64_t without_limit = Submit({1, 2, 3}, Greedy());
  const int64_t with_limit = Submit(std::vector<int32_t>(9, 1), Greedy(100));

  StepUntilIdle();

  EXPECT_EQ(output_[without_limit].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[without_limit].completion_tokens, 7);
  EXPECT_EQ(output_[with_limit].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[with_limit].completion_tokens, 1);
}

TEST_F(EngineFinishTest, AFullKvCacheEndsTheSequenceWithLength) {
  Open({.context_window = 64, .page_size = 4, .num_pages = 3});
  const int64_t id = Submit({1, 2, 3}, Greedy());

  StepUntilIdle();

  EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[id].completion_tokens, 9);
}

}  // namespace
}  // namespace aiomlc
