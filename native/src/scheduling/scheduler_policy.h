/*!
 * \file scheduling/scheduler_policy.h
 * \brief The scheduler's decisions as pure functions of plain counters.
 */
#ifndef AIOMLC_SCHEDULING_SCHEDULER_POLICY_H_
#define AIOMLC_SCHEDULING_SCHEDULER_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aiomlc {

/*!
 * \brief How often later arrivals may be admitted before one that does not fit.
 *
 * After that nobody passes it: the running sequences end, their pages become free, and it fits.
 */
inline constexpr int64_t kMaxTimesBypassed = 16;

/*! \brief A running sequence, as preemption sees it. */
struct RunningCounters {
  int64_t pages_held;
  /*! \brief Pages it must hold for its next step, at least `pages_held`. */
  int64_t pages_needed;
};

/*!
 * \brief Decide who keeps running when every sequence gets the pages of its next step.
 *
 * The least important sequence, the latest arrival, gives way until the rest fits. Pages are
 * granted in the order of arrival, so the first sequence always goes on and nothing can deadlock.
 *
 * \param running In the order of arrival.
 * \param free_pages Pages that no sequence holds.
 * \return How many of the first sequences go on; the others are preempted.
 */
size_t CountSurvivors(const std::vector<RunningCounters>& running, int64_t free_pages);

/*! \brief A waiting sequence, as admission sees it. */
struct WaitingCounters {
  /*! \brief Pages for all of its tokens. */
  int64_t pages_needed;
  int64_t times_bypassed;
};

/*! \brief Which waiting sequences to admit. */
struct Admissions {
  /*! \brief Indices of the admitted sequences, ascending. */
  std::vector<size_t> admitted;
  /*! \brief For every waiting sequence, how many later ones were admitted before it. */
  std::vector<int64_t> newly_bypassed;
};

/*!
 * \brief Decide who starts.
 *
 * A sequence is admitted when pages for all of its tokens are free, and beyond them one page for
 * every sequence that runs already, so that an admission is not paid with a preemption at once.
 *
 * \param waiting In the order of the queue.
 * \param free_pages Pages that no sequence holds.
 * \param num_running Sequences that run already.
 * \param max_running The most sequences that may run.
 */
Admissions ChooseAdmissions(const std::vector<WaitingCounters>& waiting, int64_t free_pages,
                            int64_t num_running, int64_t max_running);

/*!
 * \brief Decide whether a sequence starts later, to fork from one that is being computed.
 *
 * It does when that spares it half of its work or more. It loses next to nothing: the other one
 * arrived earlier, so the tokens of the steps in between are the other one's first.
 *
 * \param num_cached Tokens that it need not compute if it starts now.
 * \param num_common Tokens that it need not compute if it waits.
 * \param num_tokens All of its tokens.
 */
bool IsWorthWaiting(int64_t num_cached, int64_t num_common, int64_t num_tokens);

/*!
 * \brief Share the tokens of a step.
 * \param wanted Tokens that each row could use, in the order of importance.
 * \param budget Tokens of the step.
 * \return Tokens of each row: all it wants while the budget lasts, then the rest, then 0.
 */
std::vector<int64_t> SplitBudget(const std::vector<int64_t>& wanted, int64_t budget);

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_SCHEDULER_POLICY_H_
