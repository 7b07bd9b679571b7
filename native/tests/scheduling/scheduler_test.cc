#include "scheduling/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerTest : public ::testing::Test {
 protected:
  explicit SchedulerTest(bool separate_prefill = false)
      : scheduler_({.total_pages = 8,
                    .page_size = 4,
                    .max_batch_size = 3,
                    .step_token_budget = 6,
                    .separate_prefill = separate_prefill}) {}

  Sequence* Add(int64_t prompt_tokens) {
    SequenceOptions options;
    options.seed = 0;
    owned_.push_back(std::make_unique<Sequence>(
        std::vector<int32_t>(static_cast<size_t>(prompt_tokens), 1), options, 100, &vocabulary_));
    owned_.back()->id = static_cast<int64_t>(owned_.size());
    owned_.back()->cache_id = owned_.back()->id;
    scheduler_.Add(owned_.back().get());
    return owned_.back().get();
  }

  /*! \brief One step whose model gives every sequence that asks one token. */
  StepPlan Step() {
    StepPlan plan = scheduler_.Plan();
    scheduler_.ApplyPlan(plan);
    for (const StepRow& row : plan.rows) {
      row.sequence->num_computed += row.num_tokens;
      if (row.needs_logits) row.sequence->token_ids.push_back(2);
    }
    return plan;
  }

  static std::vector<int64_t> Tokens(const StepPlan& plan) {
    std::vector<int64_t> tokens;
    for (const StepRow& row : plan.rows) tokens.push_back(row.num_tokens);
    return tokens;
  }

  Vocabulary vocabulary_;
  std::vector<std::unique_ptr<Sequence>> owned_;
  Scheduler scheduler_;
};

TEST_F(SchedulerTest, ALongPromptIsComputedInChunks) {
  Sequence* sequence = Add(14);

  EXPECT_THAT(Tokens(Step()), ElementsAre(6));
  EXPECT_THAT(Tokens(Step()), ElementsAre(6));
  EXPECT_FALSE(sequence->is_decoding());
  const StepPlan last = Step();

  EXPECT_THAT(Tokens(last), ElementsAre(2));
  EXPECT_TRUE(last.rows[0].needs_logits);
  EXPECT_TRUE(sequence->is_decoding());
}

TEST_F(SchedulerTest, DecodesGoFirstAndPrefillsGetTheRest) {
  Add(2);
  Step();
  Sequence* prefill = Add(20);

  const StepPlan plan = Step();

  EXPECT_THAT(Tokens(plan), ElementsAre(1, 5));
  EXPECT_EQ(plan.rows[1].sequence, prefill);
  EXPECT_FALSE(plan.rows[1].needs_logits);
  EXPECT_EQ(plan.decode_tokens, 1);
  EXPECT_EQ(plan.prefill_tokens, 5);
}

class AlonePrefills : public SchedulerTest {
 protected:
  AlonePrefills() : SchedulerTest(true) {}
};

TEST_F(AlonePrefills, ComeBeforeDecodes) {
  Sequence* first = Add(2);
  Step();
  Sequence* second = Add(9);

  const StepPlan whole = Step();
  const StepPlan rest = Step();
  const StepPlan decodes = Step();

  EXPECT_THAT(Tokens(whole), ElementsAre(6));
  EXPECT_EQ(whole.rows[0].sequence, second);
  EXPECT_EQ(whole.decode_tokens, 0);
  EXPECT_EQ(whole.prefill_tokens, 6);
  EXPECT_THAT(Tokens(rest), ElementsAre(3));
  EXPECT_THAT(Tokens(decodes), ElementsAre(1, 1));
  EXPECT_EQ(decodes.rows[0].sequence, first);
  EXPECT_EQ(decodes.decode_tokens, 2);
}

TEST_F(SchedulerTest, PlanningChangesNothing) {
  Add(5);
  Add(5);

  scheduler_.Plan();

  EXPECT_EQ(scheduler_.waiting().size(), 2u);
  EXPECT_THAT(scheduler_.running(), IsEmpty());
  EXPECT_EQ(scheduler_.pages().free_pages(), 8);
}

TEST_F(SchedulerTest, AdmissionReservesThePagesOfTheWholePrompt) {
  Sequence* sequence = Add(14);

  Step();

  EXPECT_EQ(sequence->num_pages, 4);
  EXPECT_EQ(scheduler_.pages().free_pages(), 4);
}

TEST_F(SchedulerTest, TheLatestArrivalIsPreemptedAndWaitsInFrontOfTheQueue) {
  Sequence* first = Add(15);
  Sequence* second = Add(12);
  Sequence* third = Add(30);
  while (scheduler_.pages().free_pages() > 0) Step();
  StepPlan plan;

  while (plan.preempted.empty()) plan = Step();

  EXPECT_THAT(plan.preempted, ElementsAre(second));
  EXPECT_THAT(plan.admitted, IsEmpty());
  EXPECT_THAT(scheduler_.running(), ElementsAre(first));
  EXPECT_THAT(scheduler_.waiting(), ElementsAre(second, third));
  EXPECT_EQ(second->num_computed, 0);
  EXPECT_EQ(second->num_pages, 0);
  EXPECT_GT(second->num_completion_tokens(), 0);
}

TEST_F(SchedulerTest, NobodyIsAdmittedIntoPagesThatWereJustTakenFromAnother) {
  Add(15);
  Add(12);
  while (scheduler_.Plan().preempted.empty()) Step();
  Add(1);

  const StepPlan plan = Step();

  EXPECT_EQ(plan.preempted.size(), 1u);
  EXPECT_THAT(plan.admitted, IsEmpty());
  EXPECT_GT(scheduler_.pages().free_pages(), 1);
}

TEST_F(SchedulerTest, TheFreePageForARunningSequenceIsBeyondTheOneItTakesNow) {
  Add(16);
  for (int i = 0; i < 3; ++i) Step();
  ASSERT_EQ(scheduler_.pages().free_pages(), 4);
  Add(12);

  EXPECT_THAT(scheduler_.Plan().admitted, IsEmpty());
}

TEST_F(SchedulerTest, PrefillsShareTheStepInTheOrderOfArrival) {
  Sequence* first = Add(17);
  Sequence* passed = Add(20);
  Sequence* passing = Add(8);
  Step();
  ASSERT_THAT(scheduler_.running(), ElementsAre(first, passing));
  scheduler_.Remove(first);

  const StepPlan plan = Step();

  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].sequence, passed);
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].sequence, passed);
  EXPECT_EQ(plan.rows[0].num_tokens, 6);
}

TEST_F(SchedulerTest, APreemptedSequenceRecomputesItsTokensAndDecodesOn) {
  Sequence* sequence = Add(3);
  Step();
  sequence->num_computed = 0;

  const StepPlan plan = Step();

  EXPECT_THAT(Tokens(plan), ElementsAre(4));
  EXPECT_EQ(plan.prefill_tokens, 4);
  EXPECT_TRUE(plan.rows[0].needs_logits);
}

TEST_F(SchedulerTest, MoreRowsThanTokensAreNeverAdmitted) {
  Scheduler narrow({.total_pages = 8, .page_size = 4, .max_batch_size = 3, .step_token_budget = 2});

  EXPECT_EQ(narrow.max_running(), 2);
  EXPECT_EQ(scheduler_.max_running(), 3);
}

TEST_F(SchedulerTest, RemovingASequenceFreesItsPages) {
  Sequence* running = Add(9);
  Step();
  Sequence* waiting = Add(9);

  scheduler_.Remove(waiting);
  scheduler_.Remove(running);

  EXPECT_EQ(scheduler_.pages().free_pages(), 8);
  EXPECT_THROW(scheduler_.Remove(running), std::logic_error);
}

/*! \brief A scheduler that keeps what ends; its prompts are given token by token. */
class CachingSchedulerTest : public ::testing::Test {
 protected:
  Sequence* Add(std::vector<int32_t> prompt) {
    SequenceOptions options;
    options.seed = 0;
    owned_.push_back(std::make_unique<Sequence>(std::move(prompt), options, 100, &vocabulary_));
    owned_.back()->id = static_cast<int64_t>(owned_.size());
    owned_.back()->cache_id = owned_.back()->id;
    scheduler_.Add(owned_.back().get());
    return owned_.back().get();
  }

  StepPlan Step() {
    StepPlan plan = scheduler_.Plan();
    scheduler_.ApplyPlan(plan);
    for (const StepRow& row : plan.rows) {
      row.sequence->num_computed += row.num_tokens;
      if (!row.needs_logits) continue;
      scheduler_.Share(*row.sequence);
      row.sequence->token_ids.push_back(99);
    }
    return plan;
  }

  /*! \brief An ended sequence of so many tokens, beginning with `first`. */
  Sequence* Keep(int32_t first, size_t num_tokens) {
    std::vector<int32_t> prompt(num_tokens, 1);
    prompt[0] = first;
    Sequence* sequence = Add(std::move(prompt));
    while (sequence->num_completion_tokens() == 0) Step();
    EXPECT_THAT(scheduler_.Recycle(sequence), IsEmpty());
    return sequence;
  }

  static std::vector<int32_t> Prompt(int32_t first, size_t num_tokens, size_t num_others) {
    std::vector<int32_t> prompt(num_tokens, 1);
    prompt[0] = first;
    prompt.insert(prompt.end(), num_others, 2);
    return prompt;
  }

  Vocabulary vocabulary_;
  std::vector<std::unique_ptr<Sequence>> owned_;
  Scheduler scheduler_{{.total_pages = 8,
                        .page_size = 4,
                        .max_batch_size = 4,
                        .step_token_budget = 40,
                        .max_recycling = -1}};
};

TEST_F(CachingSchedulerTest, WhatIsKeptIsAvailable) {
  const Sequence* kept = Keep(7, 6);

  EXPECT_EQ(scheduler_.pages().free_pages(), 6);
  EXPECT_EQ(scheduler_.available_pages(), 8);
  EXPECT_THAT(scheduler_.EvictAll(), ElementsAre(kept->id));
  EXPECT_EQ(scheduler_.pages().free_pages(), 8);
}

TEST_F(CachingSchedulerTest, APromptForksFromTheLongestBeginningAndComputesTheRest) {
  Keep(7, 3);
  const Sequence* kept = Keep(8, 6);
  Sequence* sequence = Add(Prompt(8, 6, 3));

  const StepPlan plan = Step();

  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].prefix.id, kept->id);
  EXPECT_EQ(plan.admitted[0].prefix.num_tokens, 6);
  EXPECT_EQ(plan.rows[0].num_tokens, 3);
  EXPECT_EQ(sequence->num_cached, 6);
  EXPECT_THAT(plan.evicted, IsEmpty());
}

TEST_F(CachingSchedulerTest, TheLeastRecentlyUsedGivesWayAndTheSourceLast) {
  const Sequence* source = Keep(7, 6);
  const Sequence* older = Keep(8, 6);
  const Sequence* newer = Keep(9, 6);
  Add(Prompt(7, 6, 8));

  const StepPlan plan = Step();

  EXPECT_THAT(plan.evicted, ElementsAre(older->id));
  EXPECT_EQ(plan.admitted[0].prefix.num_tokens, 6);
  EXPECT_THAT(scheduler_.prefix_cache().eviction_order(), ElementsAre(newer->id, source->id));
}

TEST_F(CachingSchedulerTest, ASourceThatIsEvictedIsForkedAtTheEndOfAPage) {
  const Sequence* source = Keep(7, 6);
  Add(Prompt(7, 6, 24));

  const StepPlan plan = Step();

  EXPECT_THAT(plan.evicted, ElementsAre(source->id));
  EXPECT_EQ(plan.admitted[0].prefix.num_tokens, 4);
  EXPECT_EQ(plan.rows[0].num_tokens, 26);
  EXPECT_EQ(scheduler_.pages().free_pages(), 0);
}

TEST_F(CachingSchedulerTest, ARunningSequenceIsNotPreemptedWhileThereIsSomethingToEvict) {
  const Sequence* kept = Keep(7, 10);
  Add(Prompt(8, 11, 0));
  Add(Prompt(9, 8, 0));
  std::vector<int64_t> evicted;
  for (int i = 0; i < 4; ++i) {
    const StepPlan plan = Step();
    evicted.insert(evicted.end(), plan.evicted.begin(), plan.evicted.end());
    EXPECT_THAT(plan.preempted, IsEmpty());
  }

  EXPECT_THAT(evicted, ElementsAre(kept->id));
}

TEST_F(CachingSchedulerTest, WhoWaitsForACommonBeginningDoesNotCountAsPassing) {
  Sequence* first = Add(Prompt(7, 6, 0));
  Sequence* big = Add(Prompt(8, 30, 0));
  Sequence* same = Add(Prompt(7, 6, 1));

  const StepPlan plan = Step();

  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].sequence, first);
  EXPECT_EQ(big->times_bypassed, 0);
  EXPECT_THAT(scheduler_.waiting(), ElementsAre(big, same));
  EXPECT_EQ(Step().admitted[0].prefix.num_tokens, 6);
}

TEST_F(CachingSchedulerTest, ASequenceThatComputedNothingIsNotKept) {
  Sequence* sequence = Add({1, 2, 3});

  EXPECT_THAT(scheduler_.Recycle(sequence), ElementsAre(sequence->id));
  EXPECT_EQ(scheduler_.prefix_cache().num_recycling(), 0);
}

TEST(PageBudget, RefusesToLendWhatItDoesNotHave) {
  PageBudget pages(4, 16);
  pages.Reserve(3);

  EXPECT_EQ(pages.free_pages(), 1);
  EXPECT_THROW(pages.Reserve(2), std::logic_error);
  EXPECT_THROW(pages.Release(4), std::logic_error);
}

TEST(PageBudget, CountsBegunPages) {
  const PageBudget pages(4, 16);

  EXPECT_EQ(pages.PagesFor(0), 0);
  EXPECT_EQ(pages.PagesFor(1), 1);
  EXPECT_EQ(pages.PagesFor(16), 1);
  EXPECT_EQ(pages.PagesFor(17), 2);
}

}  // namespace
}  // namespace aiomlc
