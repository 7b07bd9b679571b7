/*!
 * \file kernels/attention/packed_attention.h
 * \brief Bidirectional attention for encoders, over packed sequences without padding.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_

#include <cstdint>
#include <span>

#include "kernels/elementwise/elementwise.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*!
 * \brief Compute bidirectional attention: each row attends to all rows of its sequence.
 *
 * The sequences are contiguous, without padding. The bits of a row depend only on its sequence.
 * \param heads Must have as many key-value heads as query heads.
 * \param lengths The number of rows of each sequence, at least 1.
 * \param scale Applied to q . k.
 * \param qkv float32[rows, 3 * heads, head_dim]: in each row the queries, then keys, then values.
 * \param output float32[rows, heads, head_dim].
 */
void AttendPacked(ThreadPool& pool, const HeadLayout& heads, std::span<const int32_t> lengths,
                  float scale, const float* qkv, float* output);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_
