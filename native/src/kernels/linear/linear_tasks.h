/*!
 * \file kernels/linear/linear_tasks.h
 * \brief The division of linear layers into tasks of the thread pool.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_TASKS_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_TASKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/row_layout.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \return The kernels of the active tier. */
const LinearKernels& ActiveLinearKernels();

/*!
 * \brief Call `work(begin, end)` for parts of [0, count), in parallel if the total cost is large.
 * \param item_cost The cost of one item in multiplications.
 */
void ForRanges(ThreadPool& pool, int64_t count, int64_t item_cost,
               FunctionRef<void(int64_t, int64_t)> work);

/*!
 * \brief The activations of a task at most, in bytes.
 *
 * The kernels read them slowly enough for the third-level cache, and more rows share what is
 * loaded, and unpacked, of the weights.
 */
inline constexpr int64_t kRowBlockBytes = 1 << 20;

/*!
 * \brief Write the activations of a matrix in panels.
 * \param x [rows, layout.cols()], of `x_type`.
 * \return Memory of this thread, valid until its next call.
 */
const std::byte* Panels(ThreadPool& pool, const RowLayout& layout, const void* x, FloatType x_type,
                        int64_t rows);

/*! \return The number of tiles of a matrix. */
int64_t TilesOf(MatrixLayout layout);

/*!
 * \brief Run the active kernels of the segments that have tiles of a block.
 * \param layout The matrix, whose kernels read the same activations.
 * \param block Its tiles are those of the whole matrix; its number of outputs is ignored.
 * \param first_output The output at which the rows of `out` and the bias begin.
 */
void MultiplySegments(MatrixLayout layout, const LinearBlock& block, int64_t first_output = 0);

/*!
 * \brief Divide the output into blocks, and run the kernel on each.
 *
 * Blocks begin at a multiple of 4 tiles, or 12 if there are several panels and many blocks, and at
 * the first row of a panel. The division does not change the results, because the inputs are never
 * divided.
 * \param whole The block of the whole output: all tiles. Its range of rows is ignored.
 * \param num_rows The number of rows of activations.
 * \param row_bytes The bytes of one row while the kernel runs.
 */
void RunBlocks(ThreadPool& pool, FunctionRef<void(const LinearBlock&)> kernel,
               const LinearBlock& whole, int64_t num_rows, int64_t row_bytes);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_TASKS_H_
