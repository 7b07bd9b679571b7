/*!
 * \file scheduling/scheduler.h
 * \brief Who runs, who waits, and what the next step does.
 */
#ifndef AIOMLC_SCHEDULING_SCHEDULER_H_
#define AIOMLC_SCHEDULING_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "scheduling/page_budget.h"
#include "scheduling/prefix_cache.h"
#include "scheduling/scheduler_policy.h"
#include "scheduling/step_plan.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief The limits of a scheduler, at least 1 but for max_recycling. */
struct SchedulerLimits {
  int64_t total_pages = 1;
  int64_t page_size = 1;
  int64_t max_batch_size = 1;
  int64_t step_token_budget = 1;
  /*! \brief See PrefixCache. */
  int64_t max_recycling = 0;
  /*! \brief Logits of a step that score prompts: with a large vocabulary they take much room. */
  int64_t max_scored = 128;
  /*! \brief Whether a step that computes prompts has no decodes, which wait for the next. */
  bool separate_prefill = false;
};

/*!
 * \brief Owns the queue, the set of running sequences, the prefix cache and the page budget; not
 * the sequences.
 *
 * Every page of a sequence and of an entry of the prefix cache is reserved as if none were shared.
 * So sharing spares computing and not pages, and for a reason: TVM's cache lists the pages of all
 * rows of a step in a table with one place for each page there is, and checks no bounds. What the
 * model has free is never less than what is free here.
 *
 * A step is `Plan`, then `ApplyPlan`, then the model, then the caller's commit. `Plan` decides with
 * the functions of scheduler_policy.h and changes nothing; `ApplyPlan` carries out what it decided.
 */
class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  /*! \brief Queue a sequence, by priority and then by arrival. */
  void Add(Sequence* sequence);

  /*! \brief Forget a sequence and free its pages. */
  void Remove(Sequence* sequence);

  /*!
   * \brief Forget a sequence, but keep what is computed of it for others while there is room.
   * \return The sequences and entries that are not kept: the model is to remove them.
   */
  std::vector<int64_t> Recycle(Sequence* sequence);

  /*! \brief As `Recycle`, but keep it until `Unpin`, or until a sequence fits nowhere else. */
  std::vector<int64_t> Pin(Sequence* sequence);

  /*! \brief Make a pinned entry an ordinary one; an unknown id does nothing. \return As `Recycle`.
   */
  std::vector<int64_t> Unpin(int64_t id);

  /*! \brief Free the pages that a running sequence took for draft tokens which were wrong. */
  void Trim(Sequence* sequence);

  /*! \return Tokens that the next step has left for drafts; may be negative. */
  int64_t DraftTokenBudget() const;

  /*! \brief Let others fork from what is computed of a running sequence. */
  void Share(const Sequence& sequence);

  /*! \brief Empty the prefix cache. \return Its entries: the model is to remove them. */
  std::vector<int64_t> EvictAll();

  /*! \return The next step; it has rows whenever there are sequences. */
  StepPlan Plan() const;

  /*! \brief Preempt, evict, admit and reserve pages as planned. */
  void ApplyPlan(const StepPlan& plan);

  const PageBudget& pages() const { return pages_; }
  const PrefixCache& prefix_cache() const { return prefix_cache_; }
  /*! \brief Pages that nobody holds: the free ones and those that can be evicted. */
  int64_t available_pages() const { return pages_.free_pages() + prefix_cache_.num_pages(); }
  /*! \brief In the order of priority and arrival. */
  const std::vector<Sequence*>& running() const { return running_; }
  /*! \brief In the order of priority and arrival. */
  const std::deque<Sequence*>& waiting() const { return waiting_; }
  /*! \brief The most sequences that may run: each is sure of one token in every step. */
  int64_t max_running() const { return max_running_; }

 private:
  /*! \brief Pages that a running sequence must hold to take part in the next step. */
  int64_t PagesForNextStep(const Sequence& sequence, int64_t num_draft = 0) const;
  /*! \return How many of the running sequences go on; the others join `plan`. */
  size_t PlanPreemptions(StepPlan* plan) const;
  void PlanAdmissions(StepPlan* plan) const;
  /*! \brief Who starts, with this many pages for those that wait. */
  Admissions Admit(size_t num_waiting, int64_t free_pages) const;
  PrefixMatch FindPrefix(const Sequence& sequence) const;
  /*! \brief Whether a sequence that could start had better wait for one that is computed now. */
  bool ShouldWait(const Sequence& sequence, int64_t num_cached, const StepPlan& plan) const;
  void PlanEvictions(size_t survivors, StepPlan* plan) const;
  void PlanRows(size_t survivors, StepPlan* plan) const;
  /*! \brief Grant drafts what tokens and pages are left; nobody gives way to them. */
  void PlanDrafts(StepPlan* plan) const;
  void Evict(int64_t id);
  std::vector<int64_t> EvictEach(std::vector<int64_t> ids);

  int64_t step_token_budget_;
  int64_t max_scored_;
  bool separate_prefill_;
  int64_t max_running_;
  PageBudget pages_;
  PrefixCache prefix_cache_;
  std::vector<Sequence*> running_;
  std::deque<Sequence*> waiting_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_SCHEDULER_H_
