/*!
 * \file scheduling/scheduler_policy.h
 * \brief The scheduler's decisions as pure functions of plain counters.
 */
#ifndef AIOMLC_SCHEDULING_SCHEDULER_POLICY_H_
#define AIOMLC_SCHEDULING_SCHEDULER_POLICY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/resources.h"

namespace aiomlc {

/*!
 * \brief The most times that later arrivals are admitted before a sequence that does not fit.
 *
 * Afterwards no sequence bypasses it, so it fits once running sequences end.
 */
inline constexpr int64_t kMaxTimesBypassed = 16;

/*! \brief The resources of a running sequence, for preemption. */
struct RunningCounters {
  Resources held;
  /*! \brief Enough for its next step, at least `held`. */
  Resources needed;
};

/*!
 * \brief Decide which sequences keep running, if each gets what its next step needs.
 *
 * The sequences with the lowest precedence are preempted until the rest fits. Resources are granted
 * in order of precedence, so the first sequence always makes progress and no deadlock is possible.
 *
 * \param running In order of precedence.
 * \param free What no sequence holds.
 * \return The number of leading sequences that keep running; the rest is preempted.
 */
size_t CountSurvivors(const std::vector<RunningCounters>& running, Resources free);

/*! \brief The counts of a waiting sequence, for admission. */
struct WaitingCounters {
  /*! \brief Enough for all of its tokens. */
  Resources needed;
  int64_t times_bypassed;
};

/*! \brief The result of `ChooseAdmissions`. */
struct Admissions {
  /*! \brief Indices of the admitted sequences, ascending. */
  std::vector<size_t> admitted;
  /*! \brief For each waiting sequence, how many later sequences are admitted before it. */
  std::vector<int64_t> newly_bypassed;
};

/*!
 * \brief Decide which waiting sequences to admit.
 *
 * A sequence is admitted if the free resources suffice for all of its tokens and, in addition, for
 * one more token of each running sequence, so that it does not immediately cause a preemption.
 *
 * \param waiting In queue order.
 * \param free What no sequence holds.
 * \param token_cost The most by which one more token raises the cost of a sequence.
 * \param num_running The number of running sequences.
 * \param max_running The maximum number of running sequences.
 */
Admissions ChooseAdmissions(const std::vector<WaitingCounters>& waiting, Resources free,
                            const Resources& token_cost, int64_t num_running, int64_t max_running);

/*!
 * \brief Decide whether a sequence waits to fork from another sequence that is being computed.
 *
 * It waits if that saves at least half of its prefill. The delay costs next to nothing: the other
 * sequence has precedence, so it gets the token budget of the steps in between anyway.
 *
 * \param num_cached Tokens that need no computation if the sequence starts now.
 * \param num_common Tokens that need no computation if it waits.
 * \param num_tokens All tokens of the sequence.
 */
bool IsWorthWaiting(int64_t num_cached, int64_t num_common, int64_t num_tokens);

/*!
 * \brief Split the token budget of a step among its rows, first come, first served.
 * \param requested Tokens that each row can use, in order of precedence.
 * \param budget The token budget of the step.
 * \param usable `usable(row, tokens)` returns how many of `tokens` a row can use.
 * \return The tokens of each row: as requested while the budget lasts, then the rest, then 0.
 */
template <typename Usable>
std::vector<int64_t> SplitBudget(const std::vector<int64_t>& requested, int64_t budget,
                                 const Usable& usable) {
  std::vector<int64_t> granted;
  granted.reserve(requested.size());
  for (int64_t tokens : requested) {
    granted.push_back(usable(granted.size(), std::min(tokens, budget)));
    budget -= granted.back();
  }
  return granted;
}

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_SCHEDULER_POLICY_H_
