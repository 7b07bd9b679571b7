/*!
 * \file kernels/attention/packed_attention.h
 * \brief Attention over packed sequences without padding and without a KV cache, for encoders.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_

#include <cstdint>
#include <span>

#include "kernels/attention/score_biases.h"
#include "kernels/elementwise/elementwise.h"
#include "platform/kv_type.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The parameters of `AttendPacked`. */
struct PackedAttentionShape {
  HeadLayout heads;
  float scale = 1.0f;      //!< Applied to q . k.
  int64_t window = 0;      //!< Rows on each side of a row that it sees besides itself; 0: all.
  bool is_causal = false;  //!< Whether a row sees no row after itself.
  float soft_cap = 0.0f;   //!< Scaled scores become cap * tanh(score / cap); 0: no cap.
  //! Of the query heads, added to the scores; null: none. Only if a row sees its whole sequence.
  const ScoreBiases* biases = nullptr;
  /*!
   * \brief kF32; or kBF16, if the elements of a head are a multiple of 16: then queries, keys,
   * values and probabilities are rounded as with a KV cache of that type (attention_products.h).
   */
  KvType products = KvType::kF32;
};

/*! \brief Queries, keys and values of rows that may be parts of wider ones. */
struct PackedInputs {
  const float* queries = nullptr;  //!< [rows, num_query_heads, head_dim]
  const float* keys = nullptr;     //!< [rows, num_kv_heads, head_dim]
  const float* values = nullptr;   //!< The same as `keys`.
  int64_t query_stride = 0;        //!< Elements from a row of queries to the next.
  int64_t key_stride = 0;          //!< The same of keys, and of values.
};

/*!
 * \brief Compute attention: each row attends to rows of its sequence.
 *
 * The sequences are contiguous, without padding. The bits of a row depend only on its sequence.
 * \param lengths The number of rows of each sequence, at least 1.
 * \param output float32[rows, num_query_heads, head_dim].
 */
void AttendPacked(ThreadPool& pool, const PackedAttentionShape& shape,
                  std::span<const int32_t> lengths, const PackedInputs& inputs, float* output);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_PACKED_ATTENTION_H_
