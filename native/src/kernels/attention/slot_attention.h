/*!
 * \file kernels/attention/slot_attention.h
 * \brief Attention to the keys and values in slots: a cache without a page table.
 *
 * A slot has room for a fixed number of positions of one sequence. Models that are decoded with one
 * slot per sequence, as those that transcribe speech, have their keys and values in slots, both
 * those of the tokens and those of the encoder's outputs.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_SLOT_ATTENTION_H_
#define AIOMLC_KERNELS_ATTENTION_SLOT_ATTENTION_H_

#include <cstdint>
#include <span>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The slots of one layer: float32 pages as `KvPages` describes them. */
struct SlotMemory {
  float* data = nullptr;  //!< [slots, pages_per_slot, 2, num_heads, 16, head_dim]
  int64_t pages_per_slot = 0;
  int64_t num_heads = 0;  //!< Of queries, keys and values.
  int64_t head_dim = 0;

  int64_t RowSize() const { return num_heads * head_dim; }
  int64_t PageElements() const;
  /*! \return The positions that a slot has room for. */
  int64_t Capacity() const;
};

/*! \brief Rows of one slot at the consecutive positions before `end`. */
struct SlotRows {
  int64_t slot = 0;
  int64_t num_rows = 0;
  int64_t end = 0;  //!< The position after that of the last row.
};

/*!
 * \brief Write the keys and values of rows at their positions.
 * \param rows Of different slots. Ids and positions are not validated.
 * \param keys [rows, num_heads, head_dim], `values` likewise.
 */
void WriteSlots(ThreadPool& pool, const SlotMemory& memory, std::span<const SlotRows> rows,
                const float* keys, const float* values);

/*!
 * \brief Compute attention of rows to the positions of their slots.
 *
 * The bits of a row depend only on its query and on the keys and values that it sees.
 * \param scale Applied to q . k.
 * \param see_all Whether each row sees all positions before `end`, and not only those up to its
 * own.
 * \param queries [rows, num_heads, head_dim], as is `output`.
 */
void AttendSlots(ThreadPool& pool, const SlotMemory& memory, std::span<const SlotRows> rows,
                 float scale, bool see_all, const float* queries, float* output);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_SLOT_ATTENTION_H_
