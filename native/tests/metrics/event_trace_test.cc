#include "metrics/event_trace.h"

#include <gtest/gtest.h>

namespace aiomlc {
namespace {

Event Numbered(int64_t number) {
  Event event;
  event.start_ns = number;
  return event;
}

TEST(EventTraceTest, IsDisabledAndEmptyAtFirst) {
  EventTrace trace;

  EXPECT_FALSE(trace.is_enabled());
  EXPECT_TRUE(trace.Read(0).events.empty());
}

TEST(EventTraceTest, AReaderContinuesWhereItStopped) {
  EventTrace trace;
  trace.Enable();
  for (int64_t number = 0; number < 3; ++number) trace.Record(Numbered(number));

  const EventBatch first = trace.Read(0);
  trace.Record(Numbered(3));
  const EventBatch next = trace.Read(first.first + static_cast<int64_t>(first.events.size()));

  EXPECT_EQ(first.events.size(), 3u);
  ASSERT_EQ(next.events.size(), 1u);
  EXPECT_EQ(next.first, 3);
  EXPECT_EQ(next.events[0].start_ns, 3);
  EXPECT_TRUE(trace.Read(99).events.empty());
}

TEST(EventTraceTest, AFullRingDropsTheOldestEvents) {
  EventTrace trace;
  trace.Enable();
  const int64_t capacity = static_cast<int64_t>(EventTrace::kCapacity);
  for (int64_t number = 0; number < capacity + 5; ++number) trace.Record(Numbered(number));

  const EventBatch batch = trace.Read(0);

  EXPECT_EQ(batch.first, 5);
  ASSERT_EQ(batch.events.size(), EventTrace::kCapacity);
  EXPECT_EQ(batch.events.front().start_ns, 5);
  EXPECT_EQ(batch.events.back().start_ns, capacity + 4);
}

}  // namespace
}  // namespace aiomlc
