/*!
 * \file kernels/linear/linear.h
 * \brief Linear layers with packed weights.
 *
 * Every output element is computed with the same sequence of float operations, independent of the
 * batch, the number of threads and the instruction set, so its bits depend only on its row. The one
 * exception: with bf16 weights, the AMX tier gives other bits than the other tiers, with the same
 * accuracy.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/matrix_format.h"
#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*!
 * \brief Compute out[i, n] = bias[n] + sum over k of x[i, k] * weight[n, k].
 *
 * With q4 and grouped formats, the activations are quantized to int8 per row and group of 32
 * inputs; with int8 per channel, per row. With bf16, they are rounded to bf16; with f16 and f32,
 * not rounded. Sums are float32, and int32 with int8 per channel.
 * \param layout The matrix; its rows are the outputs.
 * \param num_inputs The number of inputs.
 * \param num_rows The number of rows of x and out.
 * \param bias float32[outputs], or null.
 */
void Linear(ThreadPool& pool, MatrixLayout layout, const void* packed, int64_t num_inputs,
            const void* x, FloatType x_type, int64_t num_rows, const float* bias, void* out,
            FloatType out_type);

/*! \brief `Linear` with a matrix of one segment. */
void Linear(ThreadPool& pool, MatrixFormat format, const void* packed, int64_t num_outputs,
            int64_t num_inputs, const void* x, FloatType x_type, int64_t num_rows,
            const float* bias, void* out, FloatType out_type);

/*!
 * \brief Copy rows of a packed embedding table.
 * \param layout The table.
 * \param ids int32[n], each in [0, rows of the table).
 * \param out float32[n, hidden].
 * \throws std::out_of_range if an id is not in the table; nothing is written then.
 */
void EmbedRows(ThreadPool& pool, MatrixLayout layout, const void* packed, int64_t hidden,
               const int32_t* ids, int64_t n, float* out);

/*! \brief `EmbedRows` with a table of one segment. */
void EmbedRows(ThreadPool& pool, MatrixFormat format, const void* packed, int64_t vocab,
               int64_t hidden, const int32_t* ids, int64_t n, float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_H_
