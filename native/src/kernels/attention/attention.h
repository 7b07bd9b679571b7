/*!
 * \file kernels/attention/attention.h
 * \brief Causal attention over a paged KV cache.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "platform/float_types.h"
#include "platform/kv_type.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Positions in one page of the KV cache. */
inline constexpr int64_t kPageSize = 16;

/*! \brief The sliding window of a layer. */
struct AttentionWindow {
  int64_t size = 0;   //!< Positions that a row sees, including the row's position; 0: all.
  int64_t sinks = 0;  //!< First positions of the sequence that every row sees (attention sinks).

  friend bool operator==(const AttentionWindow&, const AttentionWindow&) = default;
};

/*! \brief The parameters of one attention call. */
struct AttentionShape {
  int64_t num_query_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  FloatType type = FloatType::kF16;  //!< Of queries and output, and of pages unless `stored`.
  float scale = 1.0f;                //!< Applied to q . k in float32.
  AttentionWindow window = {};
  std::optional<KvType> stored = std::nullopt;  //!< Of the pages, if not `type`.
  float soft_cap = 0.0f;  //!< Scaled scores become cap * tanh(score / cap); 0: no cap.
  /*!
   * \brief [num_query_heads], or null: the score of each head that only enlarges the denominator
   * of its softmax, as of a position whose value is zero (the learned sinks of gpt-oss).
   */
  const float* sink_scores = nullptr;

  KvType kv_type() const { return stored.value_or(KvTypeOf(type)); }

  /*! \return The elements of one page (see `KvPages`), without scales. */
  int64_t PageElements() const { return 2 * num_kv_heads * kPageSize * head_dim; }

  /*! \return The bytes of the keys, or of the values, of one head in a page. */
  size_t PlaneBytes() const { return kPageSize * KvRowBytes(kv_type(), head_dim); }
  size_t PageBytes() const { return 2 * static_cast<size_t>(num_kv_heads) * PlaneBytes(); }

  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

/*! \brief Rows at consecutive positions of one sequence. */
struct AttentionRows {
  int64_t row_begin = 0;  //!< In the query and output tensors.
  int64_t num_rows = 0;
  int64_t first_position = 0;
  /*!
   * \brief `pages[i]` holds positions 16 i to 16 i + 15, at least up to the last row's position.
   *
   * Pages that no row sees are not read.
   */
  const void* const* pages = nullptr;
  /*!
   * \brief Whether each row sees the positions up to the last row's, as those of an image do, not
   * only up to its own. Windows begin before its own position in both cases.
   */
  bool see_each_other = false;
};

/*!
 * \brief Compute causal attention: each row attends to the positions of its sequence up to and
 * including the row's position, or that of the last row it sees, within the window.
 *
 * The bits of a row depend only on its query and on the keys and values that it sees: not on other
 * rows, the number of threads or the instruction set. Sums are float32. Slots after the
 * positions that a row sees may contain anything, including NaN.
 * \param queries [rows, num_query_heads, head_dim].
 * \param output Same shape; rows that belong to no sequence are not written.
 */
void Attend(ThreadPool& pool, const AttentionShape& shape, std::span<const AttentionRows> sequences,
            const void* queries, void* output);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_H_
