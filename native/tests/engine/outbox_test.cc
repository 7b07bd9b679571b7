#include "engine/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <new>

#include "tests/doubles/failing_allocation.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

bool IsReadable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

Record Delta(int64_t id, const std::string& text, std::vector<int32_t> tokens, int64_t completed) {
  Record record;
  record.sequence_id = id;
  record.text = text;
  record.token_ids = std::move(tokens);
  record.prompt_tokens = 3;
  record.completion_tokens = completed;
  return record;
}

TEST(Outbox, IsReadableWhileItHoldsRecords) {
  Outbox outbox;
  EXPECT_FALSE(IsReadable(outbox.wake_fd()));

  outbox.Put(Delta(1, "a", {1}, 1));
  outbox.Put(Delta(2, "b", {2}, 1));
  EXPECT_TRUE(IsReadable(outbox.wake_fd()));

  EXPECT_EQ(outbox.Drain().size(), 2u);
  EXPECT_FALSE(IsReadable(outbox.wake_fd()));
  EXPECT_THAT(outbox.Drain(), IsEmpty());

  outbox.Put(Delta(1, "c", {3}, 2));
  EXPECT_TRUE(IsReadable(outbox.wake_fd()));
}

TEST(Outbox, MergesUndrainedRecordsOfASequence) {
  Outbox outbox;
  for (int32_t i = 1; i <= 100; ++i) {
    Record delta = Delta(7, "x", {i}, i);
    delta.logprobs.push_back({i, -static_cast<float>(i), {{i, -1.0f}}});
    if (i == 2) delta.prompt_logprobs.push_back({3, -0.5f, {}});
    outbox.Put(std::move(delta));
    outbox.Put(Delta(5, "y", {i, i}, 2 * i));
  }
  Record last = Delta(7, "!", {}, 101);
  last.finish_reason = FinishReason::kError;
  last.error = "failed";
  outbox.Put(std::move(last));

  const std::vector<Record> records = outbox.Drain();

  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sequence_id, 7);
  EXPECT_EQ(records[0].text, std::string(100, 'x') + "!");
  EXPECT_EQ(records[0].token_ids.size(), 100u);
  EXPECT_EQ(records[0].token_ids.back(), 100);
  EXPECT_EQ(records[0].logprobs.size(), 100u);
  EXPECT_EQ(records[0].logprobs.back().logprob, -100.0f);
  EXPECT_EQ(records[0].logprobs.back().top.at(0).token_id, 100);
  ASSERT_EQ(records[0].prompt_logprobs.size(), 1u);
  EXPECT_EQ(records[0].prompt_logprobs[0].token_id, 3);
  EXPECT_EQ(records[0].finish_reason, FinishReason::kError);
  EXPECT_EQ(records[0].error, "failed");
  EXPECT_EQ(records[0].prompt_tokens, 3);
  EXPECT_EQ(records[0].completion_tokens, 101);
  EXPECT_EQ(records[1].sequence_id, 5);
  EXPECT_EQ(records[1].finish_reason, FinishReason::kNone);
}

TEST(Outbox, DoesNotMergeIntoDrainedRecords) {
  Outbox outbox;
  outbox.Put(Delta(1, "a", {1}, 1));
  outbox.Drain();
  outbox.Put(Delta(1, "b", {2}, 2));

  const std::vector<Record> records = outbox.Drain();

  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].text, "b");
  EXPECT_THAT(records[0].token_ids, ElementsAre(2));
}

TEST(Outbox, IsUnchangedIfMemoryIsExhausted) {
  const std::string text(100, 'x');
  bool has_failed = true;
  for (int64_t index = 0; has_failed; ++index) {
    Outbox outbox;
    int64_t num_put = 0;
    Record first = Delta(7, text, {1, 2}, 2);
    Record second = Delta(7, text, {3, 4, 5}, 5);
    second.logprobs.push_back({3, -1.0f, {}});
    try {
      const FailingAllocation failure(index);
      outbox.Put(std::move(first));
      ++num_put;
      outbox.Put(std::move(second));
      ++num_put;
      has_failed = FailingAllocation::has_failed();
    } catch (const std::bad_alloc&) {
    }
    if (num_put == 0) outbox.Put(std::move(first));
    if (num_put < 2) outbox.Put(std::move(second));

    const std::vector<Record> records = outbox.Drain();
    ASSERT_EQ(records.size(), 1u) << "allocation " << index;
    EXPECT_EQ(records[0].text, text + text);
    EXPECT_THAT(records[0].token_ids, ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(records[0].logprobs.size(), 1u);
  }
}

}  // namespace
}  // namespace aiomlc
