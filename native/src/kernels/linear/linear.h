/*!
 * \file kernels/linear/linear.h
 * \brief Linear layers on packed weights.
 *
 * Every output element is computed with the same sequence of float operations whatever the batch,
 * the number of threads and the instruction set, so its bits depend on its own row only. The one
 * exception is bf16 weights on the AMX tier, which have bits of their own, as near to the exact
 * ones.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/layout.h"
#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief How a weight matrix is stored. */
enum class WeightFormat {
  kF32,
  kBF16,
  kQ4  //!< 4 bits with a float16 scale for every 32 inputs (`q4f16_1`).
};

/*! \return Bytes of a packed matrix of `rows` outputs and `cols` inputs. */
size_t PackedMatrixBytes(WeightFormat format, int64_t rows, int64_t cols);

/*!
 * \brief Pack rows [row_begin, row_end) of a row-major float32 matrix, quantising it for q4.
 *
 * Ranges that begin at a multiple of 16 (and end at one, or at `rows`) can be packed in parallel.
 * \param weights The whole matrix, float32[rows, cols].
 * \param packed The whole result, `PackedMatrixBytes` bytes.
 */
void PackMatrixF32(WeightFormat format, const float* weights, int64_t rows, int64_t cols,
                   int64_t row_begin, int64_t row_end, void* packed);

/*!
 * \brief Pack rows [row_begin, row_end) of a matrix quantised as `q4f16_1`, bit-exactly.
 * \param q_weight uint32[rows, ceil(cols / 32) * 4], element k in bits 4 * (k % 8) of word k / 8.
 * \param q_scale float16[rows, ceil(cols / 32)].
 */
void PackMatrixQ4(const uint32_t* q_weight, const uint16_t* q_scale, int64_t rows, int64_t cols,
                  int64_t row_begin, int64_t row_end, void* packed);

/*!
 * \brief out[i, n] = bias[n] + sum over k of x[i, k] * weight[n, k].
 *
 * For q4 the activations are quantised to 8 bits per row and group of 32 inputs. Otherwise they are
 * used as they are. Sums are float32.
 * \param rows_n Outputs. \param cols_k Inputs. \param m Rows of x and out.
 * \param bias float32[rows_n], or null.
 */
void Linear(ThreadPool& pool, WeightFormat format, const void* packed, int64_t rows_n,
            int64_t cols_k, const void* x, FloatType x_type, int64_t m, const float* bias,
            void* out, FloatType out_type);

/*!
 * \brief Copy rows of a packed embedding table.
 * \param ids The row of each output, in [0, vocab). \param out float32[n, hidden].
 * \throws std::out_of_range An id is not in the table; nothing is written then.
 */
void EmbedRows(ThreadPool& pool, WeightFormat format, const void* packed, int64_t vocab,
               int64_t hidden, const int32_t* ids, int64_t n, float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_H_
