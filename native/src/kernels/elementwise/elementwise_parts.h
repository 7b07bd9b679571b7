/*!
 * \file kernels/elementwise/elementwise_parts.h
 * \brief The division of rows into tasks.
 */
#ifndef AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_PARTS_H_
#define AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_PARTS_H_

#include <algorithm>
#include <cstdint>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The elements of a task; for fewer, waking a thread costs more than the work. */
inline constexpr int64_t kElementsPerTask = 16384;

/*! \brief Call `function(begin, end)` in parallel for parts of `count` items of `size` elements. */
inline void ForParts(ThreadPool& pool, int64_t count, int64_t size,
                     FunctionRef<void(int64_t, int64_t)> function) {
  const int64_t items_per_task =
      std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, size));
  const int64_t num_tasks = (count + items_per_task - 1) / items_per_task;
  pool.Run(static_cast<int>(num_tasks), [&](int task) {
    const int64_t begin = task * items_per_task;
    function(begin, std::min(begin + items_per_task, count));
  });
}

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_PARTS_H_
