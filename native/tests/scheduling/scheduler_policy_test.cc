#include "scheduling/scheduler_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Resources kOnePage{.pages = 1};

RunningCounters Pages(int64_t held, int64_t needed) { return {{.pages = held}, {.pages = needed}}; }

RunningCounters Slots(int64_t held, int64_t needed) { return {{.slots = held}, {.slots = needed}}; }

TEST(CountSurvivors, AllKeepRunningIfThePagesSuffice) {
  EXPECT_EQ(CountSurvivors({}, {.pages = 0}), 0u);
  EXPECT_EQ(CountSurvivors({Pages(3, 3), Pages(2, 2)}, {.pages = 0}), 2u);
  EXPECT_EQ(CountSurvivors({Pages(3, 4), Pages(2, 3)}, {.pages = 2}), 2u);
}

TEST(CountSurvivors, TheLatestArrivalIsPreempted) {
  EXPECT_EQ(CountSurvivors({Pages(3, 4), Pages(2, 2), Pages(1, 1)}, {.pages = 0}), 2u);
  EXPECT_EQ(CountSurvivors({Pages(3, 4), Pages(2, 3), Pages(1, 1)}, {.pages = 0}), 1u);
  EXPECT_EQ(CountSurvivors({Pages(3, 4), Pages(2, 3), Pages(2, 2)}, {.pages = 0}), 2u);
}

TEST(CountSurvivors, TheLatestArrivalIsPreemptedEvenIfOnlyItNeedsPages) {
  EXPECT_EQ(CountSurvivors({Pages(3, 3), Pages(2, 2), Pages(1, 2)}, {.pages = 0}), 2u);
}

TEST(CountSurvivors, TheFirstKeepsRunningAloneIfItNeedsAllPages) {
  EXPECT_EQ(CountSurvivors({Pages(1, 6), Pages(2, 2), Pages(3, 3)}, {.pages = 0}), 1u);
}

TEST(CountSurvivors, EveryKindOfResourceMustSuffice) {
  const std::vector<RunningCounters> running = {Slots(1, 2), Pages(1, 2), Slots(2, 2)};

  EXPECT_EQ(CountSurvivors(running, {.pages = 1, .slots = 1}), 3u);
  EXPECT_EQ(CountSurvivors(running, {.pages = 1}), 2u);
  EXPECT_EQ(CountSurvivors(running, {.slots = 1}), 1u);
}

TEST(ChooseAdmissions, EveryKindOfResourceMustSuffice) {
  const std::vector<WaitingCounters> waiting = {{{.pages = 2, .slots = 1}, 0}};
  const Resources growth{.pages = 1, .slots = 1};

  EXPECT_THAT(ChooseAdmissions(waiting, {.pages = 2, .slots = 1}, growth, 0, 8).admitted,
              ElementsAre(0));
  EXPECT_THAT(ChooseAdmissions(waiting, {.pages = 9}, growth, 0, 8).admitted, IsEmpty());
  EXPECT_THAT(ChooseAdmissions(waiting, {.pages = 9, .slots = 2}, growth, 2, 8).admitted,
              IsEmpty());
}

TEST(ChooseAdmissions, AdmitsInOrderWhileRowsAndPagesSuffice) {
  EXPECT_THAT(ChooseAdmissions({{{.pages = 2}, 0}, {{.pages = 2}, 0}, {{.pages = 2}, 0}},
                               {.pages = 100}, kOnePage, 0, 2)
                  .admitted,
              ElementsAre(0, 1));
  EXPECT_THAT(ChooseAdmissions({{{.pages = 2}, 0}, {{.pages = 2}, 0}, {{.pages = 2}, 0}},
                               {.pages = 5}, kOnePage, 0, 8)
                  .admitted,
              ElementsAre(0, 1));
  EXPECT_THAT(ChooseAdmissions({}, {.pages = 5}, kOnePage, 0, 8).admitted, IsEmpty());
}

TEST(ChooseAdmissions, LeavesAPageForEachRunningSequence) {
  EXPECT_THAT(ChooseAdmissions({{{.pages = 4}, 0}}, {.pages = 6}, kOnePage, 3, 8).admitted,
              IsEmpty());
  EXPECT_THAT(ChooseAdmissions({{{.pages = 4}, 0}}, {.pages = 7}, kOnePage, 3, 8).admitted,
              ElementsAre(0));
}

TEST(ChooseAdmissions, AdmitsASequenceThatNeedsAllPagesIfNoneIsRunning) {
  EXPECT_THAT(ChooseAdmissions({{{.pages = 6}, 0}}, {.pages = 6}, kOnePage, 0, 8).admitted,
              ElementsAre(0));
}

TEST(ChooseAdmissions, ASmallerSequenceBypassesOneThatDoesNotFit) {
  const Admissions admissions =
      ChooseAdmissions({{{.pages = 9}, 0}, {{.pages = 2}, 0}, {{.pages = 9}, 0}, {{.pages = 2}, 0}},
                       {.pages = 8}, kOnePage, 0, 8);

  EXPECT_THAT(admissions.admitted, ElementsAre(1, 3));
  EXPECT_THAT(admissions.newly_bypassed, ElementsAre(2, 0, 1, 0));
}

TEST(ChooseAdmissions, NoSequenceBypassesOneAtTheBypassLimit) {
  EXPECT_THAT(ChooseAdmissions({{{.pages = 9}, kMaxTimesBypassed}, {{.pages = 2}, 0}}, {.pages = 8},
                               kOnePage, 0, 8)
                  .admitted,
              IsEmpty());
  EXPECT_THAT(ChooseAdmissions(
                  {{{.pages = 9}, kMaxTimesBypassed - 1}, {{.pages = 2}, 0}, {{.pages = 2}, 0}},
                  {.pages = 8}, kOnePage, 0, 8)
                  .admitted,
              ElementsAre(1));
  EXPECT_THAT(
      ChooseAdmissions({{{.pages = 2}, 0}, {{.pages = 9}, kMaxTimesBypassed}, {{.pages = 2}, 0}},
                       {.pages = 8}, kOnePage, 0, 8)
          .admitted,
      ElementsAre(0));
}

TEST(SplitBudget, GrantsRequestsInOrderWhileTheBudgetLasts) {
  const auto all = [](size_t /*row*/, int64_t tokens) { return tokens; };
  EXPECT_THAT(SplitBudget({1, 1, 5, 5}, 9, all), ElementsAre(1, 1, 5, 2));
  EXPECT_THAT(SplitBudget({1, 1, 5, 5}, 2, all), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(SplitBudget({3}, 8, all), ElementsAre(3));
  EXPECT_THAT(SplitBudget({}, 8, all), IsEmpty());
}

TEST(SplitBudget, TokensThatARowCannotUseAreLeftForTheNext) {
  const auto even = [](size_t row, int64_t tokens) {
    return row == 0 ? tokens - tokens % 2 : tokens;
  };
  EXPECT_THAT(SplitBudget({8, 5}, 5, even), ElementsAre(4, 1));
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
