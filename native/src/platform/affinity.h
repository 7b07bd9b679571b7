/*!
 * \file platform/affinity.h
 * \brief The processors that a thread may use.
 */
#ifndef AIOMLC_PLATFORM_AFFINITY_H_
#define AIOMLC_PLATFORM_AFFINITY_H_

#include <span>

#if defined(__linux__)
#include <sched.h>
#endif

namespace aiomlc {

/*!
 * \brief Restricts this thread, and the threads that it starts, to some processors for the lifetime
 * of the scope. Without any, or if the system refuses, nothing changes.
 */
class ProcessorScope {
 public:
  explicit ProcessorScope(std::span<const int> processors) {
#if defined(__linux__)
    if (processors.empty() || sched_getaffinity(0, sizeof(previous_), &previous_) != 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int processor : processors) {
      if (processor >= 0 && processor < CPU_SETSIZE) CPU_SET(processor, &set);
    }
    is_set_ = sched_setaffinity(0, sizeof(set), &set) == 0;
#else
    static_cast<void>(processors);
#endif
  }
  ~ProcessorScope() {
#if defined(__linux__)
    if (is_set_) sched_setaffinity(0, sizeof(previous_), &previous_);
#endif
  }
  ProcessorScope(const ProcessorScope&) = delete;
  ProcessorScope& operator=(const ProcessorScope&) = delete;

 private:
#if defined(__linux__)
  cpu_set_t previous_;
  bool is_set_ = false;
#endif
};

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_AFFINITY_H_
