#include "metrics/meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

int64_t Count(const Histogram& histogram) {
  return std::accumulate(histogram.counts().begin(), histogram.counts().end(), int64_t{0});
}

SequenceOptions Greedy(int64_t max_tokens) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

void StepUntilIdle(Engine* engine) {
  while (engine->Step()) {
  }
}

std::vector<std::pair<EventKind, int64_t>> KindsOf(Engine* engine) {
  std::vector<std::pair<EventKind, int64_t>> kinds;
  for (const Event& event : engine->trace().Read(0).events) {
    kinds.emplace_back(event.kind, event.sequence_id);
  }
  return kinds;
}

TEST(MeterTest, EveryTokenExceptTheFirstHasAnInterTokenLatency) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.Submit({1, 2, 3}, Greedy(4));
  engine.Submit({4}, Greedy(2));
  StepUntilIdle(&engine);

  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(Count(statistics.queue_seconds), 2);
  EXPECT_EQ(Count(statistics.first_token_seconds), 2);
  EXPECT_EQ(Count(statistics.inter_token_seconds), 3 + 1);
  EXPECT_EQ(Count(statistics.request_seconds), 2);
  EXPECT_DOUBLE_EQ(statistics.request_prompt_tokens.sum(), 4);
  EXPECT_DOUBLE_EQ(statistics.request_completion_tokens.sum(), 6);
  EXPECT_EQ(Count(statistics.batch_size), statistics.steps);
  EXPECT_EQ(statistics.ended[static_cast<size_t>(FinishReason::kLength)], 2);
}

TEST(MeterTest, CountsDecodeStepsByTheirRows) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.Submit({1}, Greedy(4));
  engine.Submit({2}, Greedy(2));
  StepUntilIdle(&engine);

  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(statistics.decode_steps[1].count, 1);
  EXPECT_EQ(statistics.decode_steps[0].count, 2);
}

TEST(MeterTest, AnAbortedSequenceDoesNotCountAsCompleted) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.Cancel(engine.Submit({1}, Greedy(4)));
  StepUntilIdle(&engine);

  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(statistics.ended[static_cast<size_t>(FinishReason::kAbort)], 1);
  EXPECT_EQ(Count(statistics.request_seconds), 0);
  EXPECT_LT(statistics.last_finished.timing.total_seconds, 0);
}

TEST(MeterTest, TheTimingOfTheLastRecordIsOrdered) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.Submit({1}, Greedy(3));
  StepUntilIdle(&engine);

  const RequestTiming timing = engine.Drain().at(0).timing;
  EXPECT_GE(timing.queue_seconds, 0);
  EXPECT_GE(timing.first_token_seconds, timing.queue_seconds);
  EXPECT_GE(timing.total_seconds, timing.first_token_seconds);
}

TEST(MeterTest, TheTraceContainsTheLifecycleOfASequence) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.trace().Enable();
  const int64_t id = engine.Submit({1, 2, 3}, Greedy(2));
  StepUntilIdle(&engine);

  EXPECT_THAT(KindsOf(&engine),
              ElementsAre(Pair(EventKind::kSubmitted, id), Pair(EventKind::kAdmitted, id),
                          Pair(EventKind::kPrefill, id), Pair(EventKind::kFirstToken, id),
                          Pair(EventKind::kStep, -1), Pair(EventKind::kDecode, id),
                          Pair(EventKind::kEnded, id), Pair(EventKind::kStep, -1)));
}

TEST(MeterTest, TheTraceNamesThePreemptedSequence) {
  // Three pages of four tokens for two sequences that grow to eight tokens each.
  FakeModel model({.page_size = 4, .num_pages = 3});
  Engine engine(&model, {}, {});
  engine.trace().Enable();
  engine.Submit({1, 2, 3}, Greedy(5));
  const int64_t later = engine.Submit({4, 5, 6}, Greedy(5));
  StepUntilIdle(&engine);

  EXPECT_THAT(KindsOf(&engine), ::testing::Contains(Pair(EventKind::kPreempted, later)));
  EXPECT_EQ(engine.GetStatistics().preemptions, 1);
  EXPECT_EQ(Count(engine.GetStatistics().queue_seconds), 2) << "only the first admission counts";
}

TEST(MeterTest, RecordsNoEventsUnlessTheTraceIsEnabled) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  engine.Submit({1}, Greedy(2));
  StepUntilIdle(&engine);

  EXPECT_TRUE(engine.trace().Read(0).events.empty());
}

}  // namespace
}  // namespace aiomlc
