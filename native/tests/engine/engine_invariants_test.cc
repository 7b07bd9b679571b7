#include "engine/engine_invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

EngineSnapshot ValidSnapshot() {
  EngineSnapshot snapshot;
  snapshot.total = {.pages = 10, .slots = 4};
  snapshot.free = {.pages = 3, .slots = 2};
  snapshot.kept = {.pages = 2};
  snapshot.max_running = 2;
  snapshot.max_sequence_tokens = 40;
  snapshot.live_ids = {3, 1, 2};
  snapshot.running = {{1, 9, 8, {3, 1}, {2, 1}}, {3, 5, 0, {2, 1}, {}}};
  snapshot.waiting = {{2, 30, 0, {}, {}}};
  return snapshot;
}

std::string OnlyViolation(const EngineSnapshot& snapshot) {
  const std::vector<std::string> violations = FindViolations(snapshot);
  return violations.size() == 1 ? violations[0] : std::to_string(violations.size());
}

TEST(FindViolations, ReturnsNothingForAValidSnapshot) {
  EXPECT_THAT(FindViolations(ValidSnapshot()), IsEmpty());
}

TEST(FindViolations, FindsALostPage) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.free.pages = 2;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("do not sum to the total"));
}

TEST(FindViolations, FindsALostSlot) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.free.slots = 1;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("do not sum to the total"));
}

TEST(FindViolations, FindsComputedTokensWithoutResources) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.running[0].reserved.pages = 1;
  snapshot.free.pages = 5;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("sequence 1 has more computed tokens"));
}

TEST(FindViolations, FindsARunningSequenceWithoutTokensToCompute) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.running[0].num_computed = 9;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("sequence 1 runs without tokens to compute"));
}

TEST(FindViolations, FindsARunningSequenceWithoutRoom) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.max_sequence_tokens = 9;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("without room"));
}

TEST(FindViolations, FindsTooManyRunningSequences) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.max_running = 1;
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("more sequences run than max_running"));
}

TEST(FindViolations, FindsRunningSequencesOutOfOrder) {
  EngineSnapshot snapshot = ValidSnapshot();
  std::swap(snapshot.running[0], snapshot.running[1]);
  EXPECT_THAT(OnlyViolation(snapshot), HasSubstr("not sorted by priority and arrival"));
}

TEST(FindViolations, FindsAWaitingSequenceWithResourcesAndComputedTokens) {
  EngineSnapshot snapshot = ValidSnapshot();
  snapshot.waiting[0].reserved.pages = 1;
  snapshot.waiting[0].num_computed = 1;
  EXPECT_THAT(FindViolations(snapshot), ElementsAre(HasSubstr("holds resources, but"),
                                                    HasSubstr("has computed tokens, but")));
}

TEST(FindViolations, FindsSequencesThatAreNotScheduledOrScheduledTwice) {
  EngineSnapshot unscheduled = ValidSnapshot();
  unscheduled.waiting.clear();
  EngineSnapshot twice = ValidSnapshot();
  twice.waiting.push_back(twice.waiting[0]);
  EXPECT_THAT(OnlyViolation(unscheduled), HasSubstr("not scheduled, or is scheduled twice"));
  EXPECT_THAT(OnlyViolation(twice), HasSubstr("not scheduled, or is scheduled twice"));
}

}  // namespace
}  // namespace aiomlc
