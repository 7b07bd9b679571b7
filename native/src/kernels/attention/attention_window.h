/*!
 * \file kernels/attention/attention_window.h
 * \brief The part of the KV cache that a sliding window shows to the rows of a tile.
 *
 * Everything has internal linkage, since files of several instruction set tiers include it: see
 * linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_WINDOW_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_WINDOW_H_

#include <cstdint>

#include "kernels/attention/attention_types.h"

namespace aiomlc {

namespace {

/*! \brief Slots of one page. */
struct SlotRange {
  int begin;
  int end;
};

/*! \return `value`, brought into [low, high]. */
inline int Within(int64_t value, int low, int high) {
  return value < low ? low : value > high ? high : static_cast<int>(value);
}

/*! \brief The first slot of `page` that a window may hide; 16 if there is none. */
inline int FirstSlotAfterSinks(const AttentionTile& tile, int64_t page) {
  return Within(tile.sinks - page * kTilePageSize, 0, kTilePageSize);
}

/*! \brief How many rows, the first ones, have not left a slot behind. */
inline int RowsThatReach(const AttentionTile& tile, int64_t page, int slot) {
  if (slot < FirstSlotAfterSinks(tile, page) || slot == kTilePageSize) return tile.num_rows;
  return Within(page * kTilePageSize + slot + tile.window - tile.first_position, 0, tile.num_rows);
}

/*! \brief The slots of `page` that `row` has left behind; they are adjacent, after the sinks. */
inline SlotRange HiddenByWindow(const AttentionTile& tile, int row, int64_t page) {
  const int begin = FirstSlotAfterSinks(tile, page);
  const int64_t oldest = tile.first_position + row - tile.window + 1;
  return {begin, Within(oldest - page * kTilePageSize, begin, kTilePageSize)};
}

/*! \brief The pages that some row of a tile sees, in ascending order. */
template <bool kWindowed>
class PageVisits {
 public:
  explicit PageVisits(const AttentionTile& tile)
      : last_((tile.first_position + tile.num_rows - 1) / kTilePageSize) {
    if constexpr (kWindowed) {
      sink_pages_ = (tile.sinks + kTilePageSize - 1) / kTilePageSize;
      const int64_t oldest = tile.first_position - tile.window + 1;
      const int64_t skipped = oldest / kTilePageSize - sink_pages_;
      if (skipped > 0) skipped_ = skipped;
      last_ -= skipped_;
    }
  }

  int64_t last() const { return last_; }

  int64_t page(int64_t visit) const {
    return kWindowed && visit >= sink_pages_ ? visit + skipped_ : visit;
  }

  /*! \return The visit after the last one of the chunk that `visit` is in. */
  int64_t ChunkEnd(int64_t visit) const {
    const int64_t next_chunk = (page(visit) / kChunkPages + 1) * kChunkPages;
    int64_t end = next_chunk;
    if (kWindowed && next_chunk > sink_pages_) {
      end = next_chunk - skipped_ > sink_pages_ ? next_chunk - skipped_ : sink_pages_;
    }
    return end <= last_ ? end : last_ + 1;
  }

 private:
  int64_t last_;
  int64_t sink_pages_ = 0;
  int64_t skipped_ = 0;
};

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_WINDOW_H_
