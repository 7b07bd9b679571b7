#include "speculation/draft_depth.h"

#include <gtest/gtest.h>

namespace aiomlc {
namespace {

TEST(DraftDepth, GrowsWhileEntireDraftsAreAccepted) {
  DraftDepth depth(0, {});
  int64_t before = depth.depth();
  while (depth.depth() < DraftPolicy().max_depth) {
    depth.OnDraftVerified(depth.depth(), depth.depth());
    ASSERT_GT(depth.depth(), before);
    before = depth.depth();
  }
  depth.OnDraftVerified(DraftPolicy().max_depth, DraftPolicy().max_depth);
  EXPECT_EQ(depth.depth(), DraftPolicy().max_depth);
}

TEST(DraftDepth, AnAcceptedShortDraftDoesNotReduceTheDepth) {
  DraftDepth depth(0, {});
  depth.OnDraftVerified(6, 6);
  depth.OnDraftVerified(1, 1);
  EXPECT_EQ(depth.depth(), 12);
}

TEST(DraftDepth, FollowsTheAcceptedTokens) {
  DraftDepth depth(0, {});
  depth.OnDraftVerified(8, 2);
  EXPECT_EQ(depth.depth(), 3);
}

TEST(DraftDepth, ProposesLessThanOneTokenInFiftyStepsIfAllAreRejected) {
  DraftDepth depth(0, {});
  int64_t num_proposed = 0;
  for (int step = 0; step < 1000; ++step) {
    const int64_t proposed = depth.depth();
    depth.AdvanceStep();
    if (proposed > 0) depth.OnDraftVerified(proposed, 0);
    num_proposed += proposed;
  }
  EXPECT_GT(num_proposed, 0);
  EXPECT_LT(num_proposed, 20);
}

TEST(DraftDepth, OneAcceptedTokenEndsLongPauses) {
  DraftDepth depth(0, {});
  const auto pause = [&] {
    depth.OnDraftVerified(1, 0);
    int64_t steps = 0;
    for (; depth.depth() == 0; ++steps) depth.AdvanceStep();
    return steps;
  };
  EXPECT_EQ(pause(), DraftPolicy().first_pause);
  EXPECT_EQ(pause(), 2 * DraftPolicy().first_pause);
  for (int i = 0; i < 10; ++i) pause();
  EXPECT_EQ(pause(), DraftDepth::kMaxPause);
  depth.OnDraftVerified(1, 1);
  EXPECT_EQ(pause(), DraftPolicy().first_pause);
}

TEST(DraftDepth, AFirstPauseOfZeroIgnoresTheFirstRejection) {
  DraftDepth depth(0, {.first_pause = 0});
  depth.OnDraftVerified(3, 0);
  EXPECT_EQ(depth.depth(), 1);
  depth.OnDraftVerified(1, 0);
  EXPECT_EQ(depth.depth(), 0);
  depth.AdvanceStep();
  EXPECT_EQ(depth.depth(), 1);
}

TEST(DraftDepth, AFixedDepthNeverChanges) {
  DraftDepth depth(5, {});
  depth.OnDraftVerified(5, 0);
  EXPECT_EQ(depth.depth(), 5);
  depth.OnDraftVerified(5, 5);
  EXPECT_EQ(depth.depth(), 5);
}

}  // namespace
}  // namespace aiomlc
