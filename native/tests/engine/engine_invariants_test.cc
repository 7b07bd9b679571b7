#include "engine/engine_invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

EngineSnapshot Healthy() {
  EngineSnapshot snapshot;
  snapshot.total_pages = 10;
  snapshot.free_pages = 3;
  snapshot.recycling_pages = 2;
  snapshot.page_size = 4;
  snapshot.max_running = 2;
  snapshot.max_sequence_tokens = 40;
  snapshot.live_ids = {3, 1, 2};
  snapshot.running = {{1, 9, 8, 3}, {3, 5, 0, 2}};
  snapshot.waiting = {{2, 30, 0, 0}};
  return snapshot;
}

std::string OnlyViolation(const EngineSnapshot& snapshot) {
  const std::vector<std::string> violations = FindViolations(snapshot);
  return violations.size() == 1 ? violations[0] : std::to_string(violations.size());
}

TEST(FindViolations, AHealthyEngineHasNone) { EXPECT_THAT(FindViolations(Healthy()), IsEmpty()); }

TEST(FindViolations, SeesALostPage) {
  EngineSnapshot snapshot = Healthy();
  snapshot.free_pages = 2;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("not all pages"));
}

TEST(FindViolations, SeesTokensWithoutPages) {
  EngineSnapshot snapshot = Healthy();
  snapshot.running[0].num_pages = 1;
  snapshot.free_pages = 5;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("sequence 1 has more tokens in the cache"));
}

TEST(FindViolations, SeesASequenceWithNothingToDo) {
  EngineSnapshot snapshot = Healthy();
  snapshot.running[0].num_computed = 9;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("sequence 1 runs with nothing to compute"));
}

TEST(FindViolations, SeesASequenceWithoutRoom) {
  EngineSnapshot snapshot = Healthy();
  snapshot.max_sequence_tokens = 9;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("no room"));
}

TEST(FindViolations, SeesTooManyRows) {
  EngineSnapshot snapshot = Healthy();
  snapshot.max_running = 1;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("more sequences run"));
}

TEST(FindViolations, SeesRowsOutOfOrder) {
  EngineSnapshot snapshot = Healthy();
  std::swap(snapshot.running[0], snapshot.running[1]);
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("order of priority and arrival"));
}

TEST(FindViolations, SeesAWaitingSequenceThatHoldsSomething) {
  EngineSnapshot snapshot = Healthy();
  snapshot.waiting[0].num_pages = 1;
  snapshot.waiting[0].num_computed = 1;
  EXPECT_THAT(FindViolations(snapshot),
              ElementsAre(HasSubstr("holds pages"), HasSubstr("tokens in the cache")));
}

TEST(FindViolations, SeesALostSequenceAndOneScheduledTwice) {
  EngineSnapshot lost = Healthy();
  lost.waiting.clear();
  EngineSnapshot twice = Healthy();
  twice.waiting.push_back(twice.waiting[0]);
  EXPECT_THAT(OnlyViolation(lost), HasSubstr("lost or scheduled twice"));
  EXPECT_THAT(OnlyViolation(twice), HasSubstr("lost or scheduled twice"));
}

}  // namespace
}  // namespace aiomlc
