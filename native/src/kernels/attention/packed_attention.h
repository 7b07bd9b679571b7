/*!
 * \file kernels/attention/packed_attention.h
 * \brief Attention of an encoder: every token of a text sees every other.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_

#include <cstdint>
#include <span>

#include "kernels/elementwise/elementwise.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*!
 * \brief Each row attends to all rows of its own sequence.
 *
 * The sequences lie one after the other, without padding. The bits of a row depend on its sequence
 * alone, as in `Attend`, which does the work.
 * \param heads As many key-value heads as query heads.
 * \param lengths Rows of each sequence, at least one each.
 * \param scale Applied to q . k.
 * \param qkv float32[rows, 3 * heads, head_dim]: all queries, then all keys, then all values.
 * \param output float32[rows, heads, head_dim].
 */
void AttendPacked(ThreadPool& pool, const HeadLayout& heads, std::span<const int32_t> lengths,
                  float scale, const float* qkv, float* output);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_
