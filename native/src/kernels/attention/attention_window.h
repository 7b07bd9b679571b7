/*!
 * \file kernels/attention/attention_window.h
 * \brief The part of the KV cache that the rows of a tile see through a sliding window.
 *
 * Everything has internal linkage, because files of several instruction-set tiers include this: see
 * linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_WINDOW_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_WINDOW_H_

#include <cstdint>

#include "kernels/attention/attention_types.h"

namespace aiomlc {

namespace {

/*! \brief A range of slots of one page. */
struct SlotRange {
  int begin;
  int end;
};

/*! \return `value` clamped to [low, high]. */
inline int Clamp(int64_t value, int low, int high) {
  return value < low ? low : value > high ? high : static_cast<int>(value);
}

/*! \return The first slot of `page` that a window may hide; 16 if there is none. */
inline int FirstSlotAfterSinks(const AttentionTile& tile, int64_t page) {
  return Clamp(tile.sinks - page * kTilePageSize, 0, kTilePageSize);
}

/*! \return The number of rows, from the first, from which the window does not hide a slot. */
inline int NumRowsThatReach(const AttentionTile& tile, int64_t page, int slot) {
  if (slot < FirstSlotAfterSinks(tile, page) || slot == kTilePageSize) return tile.num_rows;
  return Clamp(page * kTilePageSize + slot + tile.window - tile.first_position, 0, tile.num_rows);
}

/*! \return The slots of `page` that the window hides from `row`: a range after the sinks. */
inline SlotRange HiddenByWindow(const AttentionTile& tile, int row, int64_t page) {
  const int begin = FirstSlotAfterSinks(tile, page);
  const int64_t oldest = tile.first_position + row - tile.window + 1;
  return {begin, Clamp(oldest - page * kTilePageSize, begin, kTilePageSize)};
}

/*!
 * \brief The pages that at least one row of a tile sees, in ascending order.
 *
 * Visits are numbered from 0. Pages between the sinks and the window are skipped.
 */
template <bool kWindowed>
class PageVisits {
 public:
  explicit PageVisits(const AttentionTile& tile) : last_(tile.last_visible / kTilePageSize) {
    if constexpr (kWindowed) {
      sink_pages_ = (tile.sinks + kTilePageSize - 1) / kTilePageSize;
      const int64_t oldest = tile.first_position - tile.window + 1;
      const int64_t skipped = oldest / kTilePageSize - sink_pages_;
      if (skipped > 0) skipped_ = skipped;
      last_ -= skipped_;
    }
  }

  /*! \return The number of the last visit. */
  int64_t last() const { return last_; }

  /*! \return The page index of the given visit. */
  int64_t page(int64_t visit) const {
    return kWindowed && visit >= sink_pages_ ? visit + skipped_ : visit;
  }

  /*! \return The end of the visits of the chunk that contains `visit`. */
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
