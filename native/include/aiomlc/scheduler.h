/*!
 * \file aiomlc/scheduler.h
 * \brief Who runs, who waits, and what the next step does.
 */
#ifndef AIOMLC_SCHEDULER_H_
#define AIOMLC_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "aiomlc/page_budget.h"
#include "aiomlc/sequence.h"
#include "aiomlc/step_plan.h"

namespace aiomlc {

/*! \brief The limits of a scheduler, all at least 1. */
struct SchedulerLimits {
  int64_t total_pages = 1;
  int64_t page_size = 1;
  int64_t max_batch_size = 1;
  int64_t step_token_budget = 1;
};

/*!
 * \brief Owns the queue, the set of running sequences and the page budget; not the sequences.
 *
 * A step is `Plan`, then `Reserve`, then the model, then the caller's commit. `Plan` decides with
 * the functions of scheduler_policy.h and changes nothing; `Reserve` carries out what it decided.
 */
class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  /*! \brief Queue a sequence behind all others. */
  void Add(Sequence* sequence);

  /*! \brief Forget a sequence and free its pages. */
  void Remove(Sequence* sequence);

  /*! \return The next step; it has rows whenever there are sequences. */
  StepPlan Plan() const;

  /*! \brief Preempt, admit and reserve pages as planned. */
  void Reserve(const StepPlan& plan);

  const PageBudget& pages() const { return pages_; }
  /*! \brief In the order of arrival. */
  const std::vector<Sequence*>& running() const { return running_; }
  /*! \brief Preempted sequences first, then in the order of arrival. */
  const std::deque<Sequence*>& waiting() const { return waiting_; }
  /*! \brief The most sequences that may run: each is sure of one token in every step. */
  int64_t max_running() const { return max_running_; }

 private:
  /*! \brief Pages that a running sequence must hold to take part in the next step. */
  int64_t PagesForNextStep(const Sequence& sequence) const;
  /*! \return How many of the running sequences go on; the others join `plan`. */
  size_t PlanPreemptions(StepPlan* plan) const;
  void PlanAdmissions(StepPlan* plan) const;
  void PlanRows(const std::vector<Sequence*>& sequences, StepPlan* plan) const;

  int64_t step_token_budget_;
  int64_t max_running_;
  PageBudget pages_;
  std::vector<Sequence*> running_;
  std::deque<Sequence*> waiting_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULER_H_
