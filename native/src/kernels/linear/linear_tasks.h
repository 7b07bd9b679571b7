/*!
 * \file kernels/linear/linear_tasks.h
 * \brief How linear layers are shared between threads.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_TASKS_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_TASKS_H_

#include <cstdint>

#include "kernels/linear/linear_kernels.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \return The kernels of the active tier. */
const LinearKernels& ActiveLinearKernels();

/*! \brief Call `work(begin, end)` for parts of [0, count), on several threads when it is large. */
void ForRanges(ThreadPool& pool, int64_t count, int64_t cost_each,
               FunctionRef<void(int64_t, int64_t)> work);

/*! \brief Of the rows of activations that a task keeps in the second-level cache. */
inline constexpr int64_t kRowBlockBytes = 256 << 10;

/*!
 * \brief Cut the output into tasks. The cut changes no result: the inputs are never divided.
 *
 * Blocks begin at a multiple of 4 tiles and at the beginning of a panel of rows.
 * \param whole Its tiles and rows are filled in. \param m Rows of activations.
 * \param row_bytes What one of them occupies while the kernel runs.
 * \param block_bytes What those of a task may occupy.
 */
void RunBlocks(ThreadPool& pool, FunctionRef<void(const LinearBlock&)> kernel,
               const LinearBlock& whole, int64_t m, int64_t row_bytes,
               int64_t block_bytes = kRowBlockBytes);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_TASKS_H_
