#include "scheduling/scheduler_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CountSurvivors, AllKeepRunningIfThePagesSuffice) {
  EXPECT_EQ(CountSurvivors({}, 0), 0u);
  EXPECT_EQ(CountSurvivors({{3, 3}, {2, 2}}, 0), 2u);
  EXPECT_EQ(CountSurvivors({{3, 4}, {2, 3}}, 2), 2u);
}

TEST(CountSurvivors, TheLatestArrivalIsPreempted) {
  EXPECT_EQ(CountSurvivors({{3, 4}, {2, 2}, {1, 1}}, 0), 2u);
  EXPECT_EQ(CountSurvivors({{3, 4}, {2, 3}, {1, 1}}, 0), 1u);
  EXPECT_EQ(CountSurvivors({{3, 4}, {2, 3}, {2, 2}}, 0), 2u);
}

TEST(CountSurvivors, TheLatestArrivalIsPreemptedEvenIfOnlyItNeedsPages) {
  EXPECT_EQ(CountSurvivors({{3, 3}, {2, 2}, {1, 2}}, 0), 2u);
}

TEST(CountSurvivors, TheFirstKeepsRunningAloneIfItNeedsAllPages) {
  EXPECT_EQ(CountSurvivors({{1, 6}, {2, 2}, {3, 3}}, 0), 1u);
}

TEST(ChooseAdmissions, AdmitsInOrderWhileRowsAndPagesSuffice) {
  EXPECT_THAT(ChooseAdmissions({{2, 0}, {2, 0}, {2, 0}}, 100, 0, 2).admitted, ElementsAre(0, 1));
  EXPECT_THAT(ChooseAdmissions({{2, 0}, {2, 0}, {2, 0}}, 5, 0, 8).admitted, ElementsAre(0, 1));
  EXPECT_THAT(ChooseAdmissions({}, 5, 0, 8).admitted, IsEmpty());
}

TEST(ChooseAdmissions, LeavesAPageForEachRunningSequence) {
  EXPECT_THAT(ChooseAdmissions({{4, 0}}, 6, 3, 8).admitted, IsEmpty());
  EXPECT_THAT(ChooseAdmissions({{4, 0}}, 7, 3, 8).admitted, ElementsAre(0));
}

TEST(ChooseAdmissions, AdmitsASequenceThatNeedsAllPagesIfNoneIsRunning) {
  EXPECT_THAT(ChooseAdmissions({{6, 0}}, 6, 0, 8).admitted, ElementsAre(0));
}

TEST(ChooseAdmissions, ASmallerSequenceBypassesOneThatDoesNotFit) {
  const Admissions admissions = ChooseAdmissions({{9, 0}, {2, 0}, {9, 0}, {2, 0}}, 8, 0, 8);

  EXPECT_THAT(admissions.admitted, ElementsAre(1, 3));
  EXPECT_THAT(admissions.newly_bypassed, ElementsAre(2, 0, 1, 0));
}

TEST(ChooseAdmissions, NoSequenceBypassesOneAtTheBypassLimit) {
  EXPECT_THAT(ChooseAdmissions({{9, kMaxTimesBypassed}, {2, 0}}, 8, 0, 8).admitted, IsEmpty());
  EXPECT_THAT(ChooseAdmissions({{9, kMaxTimesBypassed - 1}, {2, 0}, {2, 0}}, 8, 0, 8).admitted,
              ElementsAre(1));
  EXPECT_THAT(ChooseAdmissions({{2, 0}, {9, kMaxTimesBypassed}, {2, 0}}, 8, 0, 8).admitted,
              ElementsAre(0));
}

TEST(SplitBudget, GrantsRequestsInOrderWhileTheBudgetLasts) {
  EXPECT_THAT(SplitBudget({1, 1, 5, 5}, 9), ElementsAre(1, 1, 5, 2));
  EXPECT_THAT(SplitBudget({1, 1, 5, 5}, 2), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(SplitBudget({3}, 8), ElementsAre(3));
  EXPECT_THAT(SplitBudget({}, 8), IsEmpty());
}

TEST(IsWorthWaiting, IfItSavesAtLeastHalfOfThePrefill) {
  EXPECT_TRUE(IsWorthWaiting(0, 50, 100));
  EXPECT_FALSE(IsWorthWaiting(0, 49, 100));
  EXPECT_TRUE(IsWorthWaiting(80, 90, 100));
  EXPECT_FALSE(IsWorthWaiting(80, 89, 100));
  EXPECT_FALSE(IsWorthWaiting(0, 0, 1)) << "nothing can be saved";
}

}  // namespace
}  // namespace aiomlc
