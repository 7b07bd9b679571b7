#include "scheduling/scheduler_policy.h"

#include <algorithm>

namespace aiomlc {

size_t CountSurvivors(const std::vector<RunningCounters>& running, Resources free) {
  size_t survivors = running.size();
  for (size_t i = 0; i < survivors; ++i) {
    const Resources missing = running[i].needed - running[i].held;
    while (!missing.FitsIn(free) && survivors > i) {
      --survivors;
      free += running[survivors].held;
    }
    if (survivors > i) free -= missing;
  }
  return survivors;
}

Admissions ChooseAdmissions(const std::vector<WaitingCounters>& waiting, Resources free,
                            const Resources& token_cost, int64_t num_running, int64_t max_running) {
  Admissions result;
  result.newly_bypassed.assign(waiting.size(), 0);
  std::vector<size_t> blocked;
  bool may_bypass = true;
  for (size_t i = 0; i < waiting.size() && may_bypass && num_running < max_running; ++i) {
    if (!(waiting[i].needed + token_cost * num_running).FitsIn(free)) {
      blocked.push_back(i);
      may_bypass = waiting[i].times_bypassed < kMaxTimesBypassed;
      continue;
    }
    result.admitted.push_back(i);
    free -= waiting[i].needed;
    ++num_running;
    for (size_t earlier : blocked) {
      ++result.newly_bypassed[earlier];
      if (waiting[earlier].times_bypassed + result.newly_bypassed[earlier] >= kMaxTimesBypassed) {
        may_bypass = false;
      }
    }
  }
  return result;
}

bool IsWorthWaiting(int64_t num_cached, int64_t num_common, int64_t num_tokens) {
  return 2 * (num_common - num_cached) >= num_tokens - num_cached;
}

}  // namespace aiomlc
