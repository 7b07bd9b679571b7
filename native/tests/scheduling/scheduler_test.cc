#include "scheduling/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerTest : public ::testing::Test {
 protected:
  explicit SchedulerTest(bool separate_prefill = false, int64_t idle_step_token_budget = 0)
      : scheduler_(&model_, {.max_batch_size = 3,
                             .step_token_budget = 6,
                             .idle_step_token_budget = idle_step_token_budget,
                             .separate_prefill = separate_prefill}) {}

  Sequence* Add(int64_t prompt_tokens) {
    SequenceOptions options;
    options.seed = 0;
    sequences_.push_back(std::make_unique<Sequence>(
        std::vector<int32_t>(static_cast<size_t>(prompt_tokens), 1), options, 100, &vocabulary_));
    sequences_.back()->id = static_cast<int64_t>(sequences_.size());
    sequences_.back()->cache_id = sequences_.back()->id;
    scheduler_.Add(sequences_.back().get());
    return sequences_.back().get();
  }

  /*! \brief Run one step; every row that needs logits gets a token. */
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
  FakeModel model_{{.page_size = 4, .num_pages = 8}};
  std::vector<std::unique_ptr<Sequence>> sequences_;
  Scheduler scheduler_;
};

class IdleBudgetTest : public SchedulerTest {
 protected:
  IdleBudgetTest() : SchedulerTest(false, 10) {}
};

TEST_F(IdleBudgetTest, APromptThatDelaysNobodyIsPrefilledInLongerChunks) {
  Add(24);
  EXPECT_THAT(Tokens(Step()), ElementsAre(10));
  Sequence* other = Add(8);
  EXPECT_THAT(Tokens(Step()), ElementsAre(6));
  scheduler_.Remove(other);
  EXPECT_THAT(Tokens(Step()), ElementsAre(8));
}

TEST_F(IdleBudgetTest, APromptIsInShortChunksWhileASequenceWaitsForPages) {
  Add(27);  // 7 of 8 pages.
  Add(8);
  EXPECT_THAT(Tokens(Step()), ElementsAre(6));
}

TEST_F(SchedulerTest, ALongPromptIsPrefilledInChunks) {
  Sequence* sequence = Add(14);

  EXPECT_THAT(Tokens(Step()), ElementsAre(6));
  EXPECT_THAT(Tokens(Step()), ElementsAre(6));
  EXPECT_FALSE(sequence->is_decoding());
  const StepPlan last = Step();

  EXPECT_THAT(Tokens(last), ElementsAre(2));
  EXPECT_TRUE(last.rows[0].needs_logits);
  EXPECT_TRUE(sequence->is_decoding());
}

TEST_F(SchedulerTest, DecodesComeFirstAndPrefillsGetTheRest) {
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

class SeparatePrefillTest : public SchedulerTest {
 protected:
  SeparatePrefillTest() : SchedulerTest(true) {}
};

TEST_F(SeparatePrefillTest, PrefillsComeBeforeDecodes) {
  Sequence* first = Add(2);
  Step();
  Sequence* second = Add(9);

  const StepPlan first_chunk = Step();
  const StepPlan last_chunk = Step();
  const StepPlan decodes = Step();

  EXPECT_THAT(Tokens(first_chunk), ElementsAre(6));
  EXPECT_EQ(first_chunk.rows[0].sequence, second);
  EXPECT_EQ(first_chunk.decode_tokens, 0);
  EXPECT_EQ(first_chunk.prefill_tokens, 6);
  EXPECT_THAT(Tokens(last_chunk), ElementsAre(3));
  EXPECT_THAT(Tokens(decodes), ElementsAre(1, 1));
  EXPECT_EQ(decodes.rows[0].sequence, first);
  EXPECT_EQ(decodes.decode_tokens, 2);
}

TEST_F(SeparatePrefillTest, ForcedTokensShareAStepWithDecodes) {
  Sequence* first = Add(2);
  Sequence* forced = Add(2);
  Step();
  forced->token_ids.insert(forced->token_ids.end(), {3, 4});

  const StepPlan plan = Step();

  EXPECT_THAT(Tokens(plan), ElementsAre(1, 3));
  EXPECT_EQ(plan.rows[0].sequence, first);
  EXPECT_EQ(plan.rows[1].sequence, forced);
}

TEST_F(SchedulerTest, PlanningChangesNothing) {
  Add(5);
  Add(5);

  scheduler_.Plan();

  EXPECT_EQ(scheduler_.waiting().size(), 2u);
  EXPECT_THAT(scheduler_.running(), IsEmpty());
  EXPECT_EQ(scheduler_.budget().free().pages, 8);
}

TEST_F(SchedulerTest, AdmissionReservesThePagesOfTheEntirePrompt) {
  Sequence* sequence = Add(14);

  Step();

  EXPECT_EQ(sequence->reserved.pages, 4);
  EXPECT_EQ(scheduler_.budget().free().pages, 4);
}

TEST_F(SchedulerTest, TheLatestArrivalIsPreemptedAndWaitsAtTheFrontOfTheQueue) {
  Sequence* first = Add(15);
  Sequence* second = Add(12);
  Sequence* third = Add(30);
  while (scheduler_.budget().free().pages > 0) Step();
  StepPlan plan;

  while (plan.preempted.empty()) plan = Step();

  EXPECT_THAT(plan.preempted, ElementsAre(second));
  EXPECT_THAT(plan.admitted, IsEmpty());
  EXPECT_THAT(scheduler_.running(), ElementsAre(first));
  EXPECT_THAT(scheduler_.waiting(), ElementsAre(second, third));
  EXPECT_EQ(second->num_computed, 0);
  EXPECT_EQ(second->reserved.pages, 0);
  EXPECT_GT(second->num_completion_tokens(), 0);
}

TEST_F(SchedulerTest, NoSequenceIsAdmittedInAStepWithPreemptions) {
  Add(15);
  Add(12);
  while (scheduler_.Plan().preempted.empty()) Step();
  Add(1);

  const StepPlan plan = Step();

  EXPECT_EQ(plan.preempted.size(), 1u);
  EXPECT_THAT(plan.admitted, IsEmpty());
  EXPECT_GT(scheduler_.budget().free().pages, 1);
}

TEST_F(SchedulerTest, AdmissionLeavesAFreePagePerRunningSequenceAfterItsNextStep) {
  Add(16);
  for (int i = 0; i < 3; ++i) Step();
  ASSERT_EQ(scheduler_.budget().free().pages, 4);
  Add(12);

  EXPECT_THAT(scheduler_.Plan().admitted, IsEmpty());
}

TEST_F(SchedulerTest, PrefillsGetTokensInTheOrderOfArrival) {
  Sequence* first = Add(17);
  Sequence* bypassed = Add(20);
  Sequence* bypassing = Add(8);
  Step();
  ASSERT_THAT(scheduler_.running(), ElementsAre(first, bypassing));
  scheduler_.Remove(first);

  const StepPlan plan = Step();

  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].sequence, bypassed);
  ASSERT_EQ(plan.rows.size(), 1u);
  EXPECT_EQ(plan.rows[0].sequence, bypassed);
  EXPECT_EQ(plan.rows[0].num_tokens, 6);
}

TEST_F(SchedulerTest, APreemptedSequenceRecomputesItsTokensAndContinues) {
  Sequence* sequence = Add(3);
  Step();
  sequence->num_computed = 0;

  const StepPlan plan = Step();

  EXPECT_THAT(Tokens(plan), ElementsAre(4));
  EXPECT_EQ(plan.prefill_tokens, 4);
  EXPECT_TRUE(plan.rows[0].needs_logits);
}

TEST_F(SchedulerTest, NeverRunsMoreSequencesThanTheTokenBudget) {
  Scheduler small(&model_, {.max_batch_size = 3, .step_token_budget = 2});

  EXPECT_EQ(small.max_running(), 2);
  EXPECT_EQ(scheduler_.max_running(), 3);
}

TEST_F(SchedulerTest, RemovingASequenceFreesItsPages) {
  Sequence* running = Add(9);
  Step();
  Sequence* waiting = Add(9);

  scheduler_.Remove(waiting);
  scheduler_.Remove(running);

  EXPECT_EQ(scheduler_.budget().free().pages, 8);
  EXPECT_THROW(scheduler_.Remove(running), std::logic_error);
}

/*! \brief A scheduler with a prefix cache, with explicit prompts. */
class CachingSchedulerTest : public ::testing::Test {
 protected:
  Sequence* Add(std::vector<int32_t> prompt) {
    SequenceOptions options;
    options.seed = 0;
    sequences_.push_back(std::make_unique<Sequence>(std::move(prompt), options, 100, &vocabulary_));
    sequences_.back()->id = static_cast<int64_t>(sequences_.size());
    sequences_.back()->cache_id = sequences_.back()->id;
    scheduler_.Add(sequences_.back().get());
    return sequences_.back().get();
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

  /*! \brief Recycle a sequence of `num_tokens` tokens that starts with `first`. */
  Sequence* AddRecycled(int32_t first, size_t num_tokens) {
    std::vector<int32_t> prompt(num_tokens, 1);
    prompt[0] = first;
    Sequence* sequence = Add(std::move(prompt));
    while (sequence->num_completion_tokens() == 0) Step();
    EXPECT_THAT(scheduler_.Recycle(sequence), IsEmpty());
    return sequence;
  }

  static std::vector<int32_t> Prompt(int32_t first, size_t num_tokens, size_t num_new) {
    std::vector<int32_t> prompt(num_tokens, 1);
    prompt[0] = first;
    prompt.insert(prompt.end(), num_new, 2);
    return prompt;
  }

  Vocabulary vocabulary_;
  FakeModel model_{{.page_size = 4, .num_pages = 8}};
  std::vector<std::unique_ptr<Sequence>> sequences_;
  Scheduler scheduler_{&model_,
                       {.max_batch_size = 4, .step_token_budget = 40, .max_recycling = -1}};
};

TEST_F(CachingSchedulerTest, PagesOfRecyclingEntriesAreAvailable) {
  const Sequence* recycled = AddRecycled(7, 6);

  EXPECT_EQ(scheduler_.budget().free().pages, 6);
  EXPECT_EQ(scheduler_.available().pages, 8);
  EXPECT_THAT(scheduler_.EvictAll(), ElementsAre(recycled->id));
  EXPECT_EQ(scheduler_.budget().free().pages, 8);
}

TEST_F(CachingSchedulerTest, APromptForksFromTheLongestPrefixAndComputesTheRest) {
  AddRecycled(7, 3);
  const Sequence* recycled = AddRecycled(8, 6);
  Sequence* sequence = Add(Prompt(8, 6, 3));

  const StepPlan plan = Step();

  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].prefix.id, recycled->id);
  EXPECT_EQ(plan.admitted[0].prefix.num_tokens, 6);
  EXPECT_EQ(plan.rows[0].num_tokens, 3);
  EXPECT_EQ(sequence->num_cached, 6);
  EXPECT_THAT(plan.evicted, IsEmpty());
}

TEST_F(CachingSchedulerTest, EvictsTheLeastRecentlyUsedEntryAndForkSourcesLast) {
  const Sequence* source = AddRecycled(7, 6);
  const Sequence* older = AddRecycled(8, 6);
  const Sequence* newer = AddRecycled(9, 6);
  Add(Prompt(7, 6, 8));

  const StepPlan plan = Step();

  EXPECT_THAT(plan.evicted, ElementsAre(older->id));
  EXPECT_EQ(plan.admitted[0].prefix.num_tokens, 6);
  EXPECT_THAT(scheduler_.prefix_cache().eviction_order(), ElementsAre(newer->id, source->id));
}

TEST_F(CachingSchedulerTest, AnEvictedForkSourceIsForkedAtAPageBoundary) {
  const Sequence* source = AddRecycled(7, 6);
  Add(Prompt(7, 6, 24));

  const StepPlan plan = Step();

  EXPECT_THAT(plan.evicted, ElementsAre(source->id));
  EXPECT_EQ(plan.admitted[0].prefix.num_tokens, 4);
  EXPECT_EQ(plan.rows[0].num_tokens, 26);
  EXPECT_EQ(scheduler_.budget().free().pages, 0);
}

TEST_F(CachingSchedulerTest, EvictsCacheEntriesBeforeItPreempts) {
  const Sequence* recycled = AddRecycled(7, 10);
  Add(Prompt(8, 11, 0));
  Add(Prompt(9, 8, 0));
  std::vector<int64_t> evicted;
  for (int i = 0; i < 4; ++i) {
    const StepPlan plan = Step();
    evicted.insert(evicted.end(), plan.evicted.begin(), plan.evicted.end());
    EXPECT_THAT(plan.preempted, IsEmpty());
  }

  EXPECT_THAT(evicted, ElementsAre(recycled->id));
}

TEST_F(CachingSchedulerTest, ASequenceThatWaitsForACommonPrefixBypassesNobody) {
  Sequence* first = Add(Prompt(7, 6, 0));
  Sequence* big = Add(Prompt(8, 30, 0));
  Sequence* waiting = Add(Prompt(7, 6, 1));

  const StepPlan plan = Step();

  ASSERT_EQ(plan.admitted.size(), 1u);
  EXPECT_EQ(plan.admitted[0].sequence, first);
  EXPECT_EQ(big->times_bypassed, 0);
  EXPECT_THAT(scheduler_.waiting(), ElementsAre(big, waiting));
  EXPECT_EQ(Step().admitted[0].prefix.num_tokens, 6);
}

TEST_F(CachingSchedulerTest, ASequenceWithoutComputedTokensIsNotRecycled) {
  Sequence* sequence = Add({1, 2, 3});

  EXPECT_THAT(scheduler_.Recycle(sequence), ElementsAre(sequence->id));
  EXPECT_EQ(scheduler_.prefix_cache().num_recycling(), 0);
}

TEST(ResourceBudget, RejectsReservationsBeyondWhatIsFree) {
  ResourceBudget budget({.pages = 4, .slots = 2});
  budget.Reserve({.pages = 3});

  EXPECT_EQ(budget.free(), (Resources{.pages = 1, .slots = 2}));
  EXPECT_THROW(budget.Reserve({.pages = 2}), std::logic_error);
  EXPECT_THROW(budget.Reserve({.pages = 1, .slots = 3}), std::logic_error);
  EXPECT_THROW(budget.Release({.pages = 4}), std::logic_error);
  EXPECT_THROW(budget.Release({.slots = 1}), std::logic_error);
}

TEST(SequenceState, MaxTokensFillsTheLastPage) {
  const FakeModel model({.page_size = 4, .num_pages = 3});

  EXPECT_EQ(MaxTokens(model, 100), 12);
  EXPECT_EQ(MaxTokens(model, 11), 11);
  EXPECT_EQ(MaxTokens(model, 0), 0);
}

}  // namespace
}  // namespace aiomlc
