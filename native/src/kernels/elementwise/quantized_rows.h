/*!
 * \file kernels/elementwise/quantized_rows.h
 * \brief The rounding of keys and values to the types of KV caches.
 *
 * Every element is computed with the same float32 operations in the same order, independent of the
 * instruction-set tier, the other rows and the number of threads.
 */
#ifndef AIOMLC_KERNELS_ELEMENTWISE_QUANTIZED_ROWS_H_
#define AIOMLC_KERNELS_ELEMENTWISE_QUANTIZED_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*!
 * \brief Quantize each row to int8 with one scale; the error is at most half of the scale.
 * \param x Rows of `size` elements of `type`.
 * \param out The same number of rows of KvType::kI8. The scale of a row that contains a non-finite
 *     element is NaN.
 */
void QuantizeRows(ThreadPool& pool, const void* x, FloatType type, int64_t rows, int64_t size,
                  std::byte* out);

/*! \brief Round rows to bf16, ties to even. \param size The elements of a row, a multiple of 16. */
void RoundRowsToBFloat16(ThreadPool& pool, const void* x, FloatType type, int64_t rows,
                         int64_t size, std::byte* out);

/*!
 * \return The largest power of two that divides `size`: the size of the Hadamard matrices by which
 * the blocks of a row are multiplied.
 */
constexpr int64_t RotationBlock(int64_t size) { return size & -size; }

/*!
 * \brief Multiply each block of each row by the Hadamard matrix of ones and minus ones, and by
 * `factor`, in float32.
 *
 * Twice with a factor of 1 / RotationBlock(size) in total, it changes nothing but the rounding.
 * \param size A multiple of 32.
 * \param out Rows of `type`; may be `x`.
 */
void RotateRows(ThreadPool& pool, const void* x, FloatType type, int64_t rows, int64_t size,
                float factor, void* out);

/*!
 * \brief Rotate each row, and quantize it to 16 levels with one scale.
 *
 * An element is (2 level - 15) * scale, and the scale is 1/15 of the largest absolute value, so the
 * error is at most the scale. A byte has two adjacent elements, the first one in its low bits.
 * \param size A multiple of 32.
 * \param factor Multiplies the scales.
 * \param out Rows of KvType::kI4. The scale of a row that contains a non-finite element is NaN.
 */
void QuantizeRowsTo4Bits(ThreadPool& pool, const void* x, FloatType type, int64_t rows,
                         int64_t size, float factor, std::byte* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ELEMENTWISE_QUANTIZED_ROWS_H_
