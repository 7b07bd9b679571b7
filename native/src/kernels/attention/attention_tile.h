/*!
 * \file kernels/attention/attention_tile.h
 * \brief Attention of a few query rows of one sequence: the positions of a page are the lanes.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_TILE_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention_block.h"
#include "kernels/attention/attention_chunks.h"
#include "kernels/attention/attention_types.h"
#include "kernels/attention/attention_window.h"
#include "kernels/simd/simd_math.h"

namespace aiomlc {

/*!
 * \brief Online softmax over the pages of a chunk in ascending order.
 *
 * Every (row, head) sees the same operations in the same order whatever else is in the tile: that
 * makes the result independent of the batch and of where a prompt is cut. Slots after a row's own
 * position are never multiplied into its sum, because they may hold anything, NaN included. The
 * scores of two pages are computed together, because those of one alone would wait for each other.
 * The scale of a key is multiplied with its score, that of a value with its probability.
 */
template <typename Lanes, typename Element, typename Stored, bool kWindowed>
class TileAttention {
 public:
  TileAttention(const AttentionTile& tile, const AttentionScratch& scratch)
      : tile_(tile), scratch_(scratch), width_((tile.head_dim + 15) / 16 * 16), visits_(tile) {}

  const PageVisits<kWindowed>& visits() const { return visits_; }

  void LoadQueries() {
    for (int query = 0; query < num_queries(); ++query) {
      const Element* source = static_cast<const Element*>(tile_.queries) +
                              Offset(query / tile_.num_heads, query % tile_.num_heads);
      for (int c = 0; c < width_; c += Lanes::kWidth) {
        Lanes::Store(scratch_.queries + query * width_ + c,
                     LoadPadded(source + c, tile_.head_dim - c));
      }
    }
  }

  /*! \brief Let `state` be the softmax of nothing, and what pages are added to. */
  void Begin(const SoftmaxState& state) {
    state_ = state;
    for (int query = 0; query < num_queries(); ++query) {
      for (int c = 0; c < width_; c += Lanes::kWidth) {
        Lanes::Store(state_.sums + query * width_ + c, Lanes::Set(0.0f));
      }
      state_.largest[query] = -__builtin_inff();
      state_.total[query] = 0.0f;
    }
  }

  /*! \param fetched_end Before it are the visits that may be fetched ahead. */
  void VisitPages(int64_t begin, int64_t end, int64_t fetched_end) {
    const int64_t last_ahead = fetched_end - 1;
    for (int64_t visit = begin; visit < end; visit += 2) {
      const int num_pages = visit + 1 < end ? 2 : 1;
      for (int i = 0; i < num_pages; ++i) {
        const int64_t ahead = visit + i + 2;
        pages_[i] = Page(visits_.page(visit + i));
        ahead_[i] = Page(visits_.page(ahead < last_ahead ? ahead : last_ahead));
      }
      const int first = FirstRow(visits_.page(visit)) * tile_.num_heads;
      ForGroups(first, num_queries(), [this, num_pages](auto size, int query) {
        if (num_pages == 2) {
          Score<decltype(size)::value, 2>(query);
        } else {
          Score<decltype(size)::value, 1>(query);
        }
      });
      if (tile_.soft_cap > 0.0f) CapScores(first, num_pages);
      for (int i = 0; i < num_pages; ++i) VisitPage(visits_.page(visit + i), i);
    }
  }

  /*! \brief Add what a later chunk saw to what those before it saw. */
  void Merge(const SoftmaxState& into, const SoftmaxState& later) {
    for (int query = 0; query < num_queries(); ++query) {
      const float past = into.largest[query];
      const float next = later.largest[query];
      if (next == -__builtin_inff()) continue;
      const float largest = past > next ? past : next;
      const float past_share = Share(past, largest);
      const float next_share = Share(next, largest);
      into.total[query] =
          __builtin_fmaf(into.total[query], past_share, later.total[query] * next_share);
      into.largest[query] = largest;
      for (int c = query * width_; c < (query + 1) * width_; c += Lanes::kWidth) {
        const Vector added = Lanes::Mul(Lanes::Load(later.sums + c), Lanes::Set(next_share));
        Lanes::Store(into.sums + c,
                     Lanes::Fma(Lanes::Load(into.sums + c), Lanes::Set(past_share), added));
      }
    }
  }

  /*! \brief Merging with nothing loses the sign of a zero, so 0 is added: no zero has one. */
  void StoreOutput(const SoftmaxState& state) {
    for (int query = 0; query < num_queries(); ++query) {
      Element* output = static_cast<Element*>(tile_.output) +
                        Offset(query / tile_.num_heads, query % tile_.num_heads);
      const Vector scale = Lanes::Set(1.0f / state.total[query]);
      for (int c = 0; c < tile_.head_dim; c += Lanes::kWidth) {
        const Vector sums = Lanes::Load(state.sums + query * width_ + c);
        Lanes::StoreFirst(output + c, Lanes::Add(Lanes::Mul(sums, scale), Lanes::Set(0.0f)),
                          Smaller(tile_.head_dim - c, Lanes::kWidth));
      }
    }
  }

 private:
  using Vector = typename Lanes::Vector;

  // There are fewer queries than lanes.
  static constexpr int kPageProbs = Lanes::kWidth * kTilePageSize;
  static constexpr int kRegisters = Lanes::kAccumulators >= 8 ? 16 : 4;
  static constexpr bool kScaled = sizeof(Stored) == 1;

  int num_queries() const { return tile_.num_rows * tile_.num_heads; }

  static int Smaller(int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); }

  /*! \brief Element `head` of `row`, as an offset into the query and output tensors. */
  int64_t Offset(int row, int head) const {
    return row * tile_.row_stride + static_cast<int64_t>(head) * tile_.head_dim;
  }

  template <typename Type>
  static Vector LoadPadded(const Type* source, int count) {
    return count >= Lanes::kWidth ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }

  const Stored* Page(int64_t page) const { return static_cast<const Stored*>(tile_.pages[page]); }

  /*! \brief The scales of the keys, or values, at `offset` of a page. */
  Vector Scales(const Stored* page, int64_t offset) const {
    return Lanes::Load(ScalesAfter(page + offset, tile_.head_dim));
  }

  /*! \brief The first row that sees any of `page`. */
  int FirstRow(int64_t page) const {
    const int64_t before = page * kTilePageSize - tile_.first_position;
    return before > 0 ? static_cast<int>(before) : 0;
  }

  /*! \param which The first or the second page of a pair. */
  void VisitPage(int64_t page, int which) {
    const int first_row = FirstRow(page);
    const int64_t partial = (page + 1) * kTilePageSize - 1 - tile_.first_position;
    const int first_full_row = partial > first_row ? Smaller(partial, tile_.num_rows) : first_row;
    const int full_end = FullEnd(first_full_row, page);

    const int heads = tile_.num_heads;
    for (int row = first_row; row < tile_.num_rows; ++row) {
      const int visible = Visible(row, page);
      const SlotRange gap = Gap(row, page);
      if (kWindowed && gap.begin == 0 && gap.end >= visible) continue;
      for (int query = row * heads; query < (row + 1) * heads; ++query) {
        Soften(query, visible, gap, which);
      }
      if (row < first_full_row || row >= full_end) AccumulateRow(row, visible, gap, which);
    }
    Accumulate(first_full_row * heads, full_end * heads, kTilePageSize, which);
  }

  /*! \brief The slots of `page` that the window hides from `row`, if any. */
  SlotRange Gap(int row, int64_t page) const {
    if constexpr (kWindowed) return HiddenByWindow(tile_, row, page);
    return {0, 0};
  }

  /*! \brief The end of the rows from `begin` on from which the window hides nothing of `page`. */
  int FullEnd(int begin, int64_t page) const {
    if constexpr (!kWindowed) return tile_.num_rows;
    const int end = RowsThatReach(tile_, page, FirstSlotAfterSinks(tile_, page));
    return end > begin ? end : begin;
  }

  /*! \brief How many slots of `page` are at or before the position of `row`. */
  int Visible(int row, int64_t page) const {
    return Smaller(tile_.first_position + row + 1 - page * kTilePageSize, kTilePageSize);
  }

  template <int kSize>
  using Size = std::integral_constant<int, kSize>;

  /*! \brief Cut [begin, end) into register-sized groups: `function(Size<n>, first query)`. */
  template <typename Function>
  static void ForGroups(int begin, int end, Function function) {
    int query = begin;
    for (; query + 4 <= end; query += 4) function(Size<4>(), query);
    for (; query + 2 <= end; query += 2) function(Size<2>(), query);
    for (; query < end; ++query) function(Size<1>(), query);
  }

  /*! \brief q . k of `kQueries` queries with the keys of a pair, summed along head_dim in order. */
  template <int kQueries, int kPages>
  void Score(int first) {
    const float* queries = scratch_.queries + first * width_;
    Vector dot[kPages][kQueries];
#pragma GCC unroll 2
    for (int page = 0; page < kPages; ++page) {
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) dot[page][i] = Lanes::Set(0.0f);
    }
    for (int c = 0; c < tile_.head_dim; ++c) {
      Vector key[kPages];
#pragma GCC unroll 2
      for (int page = 0; page < kPages; ++page) {
        const int64_t offset = tile_.key_offset + c * kTilePageSize;
        key[page] = Lanes::Load(pages_[page] + offset);
        __builtin_prefetch(ahead_[page] + offset);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const Vector query = Lanes::Set(queries[i * width_ + c]);
#pragma GCC unroll 2
        for (int page = 0; page < kPages; ++page) {
          dot[page][i] = Lanes::Fma(query, key[page], dot[page][i]);
        }
      }
    }
#pragma GCC unroll 2
    for (int page = 0; page < kPages; ++page) {
      float* probs = scratch_.probs + page * kPageProbs + first * kTilePageSize;
      Vector scale = Lanes::Set(tile_.scale);
      if constexpr (kScaled) scale = Lanes::Mul(Scales(pages_[page], tile_.key_offset), scale);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        Lanes::Store(probs + i * kTilePageSize, Lanes::Mul(dot[page][i], scale));
      }
    }
  }

  /*! \brief Cap the scores of the queries from `first` on with the pages of a pair. */
  void CapScores(int first, int num_pages) {
    for (int page = 0; page < num_pages; ++page) {
      for (int query = first; query < num_queries(); ++query) {
        float* scores = scratch_.probs + page * kPageProbs + query * kTilePageSize;
        Lanes::Store(scores, SoftCap<Lanes>(Lanes::Load(scores), tile_.soft_cap));
      }
    }
  }

  /*! \return What numbers relative to `largest` were one relative to `score`. */
  static float Share(float score, float largest) {
    return score == largest ? 1.0f : Lanes::First(Exp<Lanes>(Lanes::Set(score - largest)));
  }

  /*! \brief Turn one query's scores into unnormalised probabilities, and rescale its past. */
  void Soften(int query, int visible, SlotRange gap, int which) {
    float* probs = scratch_.probs + which * kPageProbs + query * kTilePageSize;
    const Vector hidden = Lanes::Set(-__builtin_inff());
    Vector scores = Lanes::Select(visible, Lanes::Load(probs), hidden);
    if (kWindowed && gap.begin < gap.end) {
      scores = Lanes::Select(gap.end, Lanes::Select(gap.begin, scores, hidden), scores);
    }
    const float page_largest = Lanes::Largest(scores);
    const float past = state_.largest[query];
    const float largest = past > page_largest ? past : page_largest;
    const Vector p = Exp<Lanes>(Lanes::Sub(scores, Lanes::Set(largest)));
    if constexpr (kScaled) {
      Lanes::Store(probs, Lanes::Mul(p, Scales(pages_[which], tile_.value_offset)));
    } else {
      Lanes::Store(probs, p);
    }

    const float correction = Share(past, largest);
    state_.total[query] = __builtin_fmaf(state_.total[query], correction, Lanes::Sum(p));
    state_.largest[query] = largest;
    if (correction == 1.0f) return;
    float* sums = state_.sums + query * width_;
    for (int c = 0; c < width_; c += Lanes::kWidth) {
      Lanes::Store(sums + c, Lanes::Mul(Lanes::Load(sums + c), Lanes::Set(correction)));
    }
  }

  /*! \brief Add the visible values, weighted, to the sums of one row's queries. */
  void AccumulateRow(int row, int visible, SlotRange gap, int which) {
    const int begin = row * tile_.num_heads;
    const int end = begin + tile_.num_heads;
    if constexpr (kWindowed) {
      Accumulate(begin, end, Smaller(gap.begin, visible), which);
      first_slot_ = gap.end;
    }
    Accumulate(begin, end, visible, which);
    if constexpr (kWindowed) first_slot_ = 0;
  }

  /*!
   * \brief Add the first `visible` values, weighted, to the sums of queries [begin, end).
   *
   * Those before `first_slot_` are left out. As one more argument it would cost a tenth of the
   * speed of attention without windows.
   */
  void Accumulate(int begin, int end, int visible, int which) {
    ForGroups(begin, end, [=, this](auto size, int query) {
      constexpr int kQueries = decltype(size)::value;
      constexpr int kColumns = kRegisters / kQueries < 4 ? kRegisters / kQueries : 4;
      constexpr int kStep = kColumns * Lanes::kWidth;
      int c = 0;
      for (; c + kStep <= tile_.head_dim; c += kStep) {
        AddValues<kQueries, kColumns, true>(query, c, visible, which);
      }
      for (; c < tile_.head_dim; c += Lanes::kWidth) {
        AddValues<kQueries, 1, false>(query, c, visible, which);
      }
    });
  }

  template <int kQueries, int kColumns, bool kWhole>
  void AddValues(int first, int c, int visible, int which) {
    const Stored* values = pages_[which] + tile_.value_offset + c;
    const Stored* ahead = ahead_[which] + tile_.value_offset + c;
    const float* weights = scratch_.probs + which * kPageProbs + first * kTilePageSize;
    float* sums = state_.sums + first * width_ + c;
    Vector sum[kQueries][kColumns];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        sum[i][j] = Lanes::Load(sums + i * width_ + j * Lanes::kWidth);
      }
    }
    for (int slot = kWindowed ? first_slot_ : 0; slot < visible; ++slot) {
      const int64_t offset = static_cast<int64_t>(slot) * tile_.head_dim;
      Vector value[kColumns];
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        const Stored* source = values + offset + j * Lanes::kWidth;
        value[j] = kWhole ? Lanes::Load(source) : LoadPadded(source, tile_.head_dim - c);
        __builtin_prefetch(ahead + offset + j * Lanes::kWidth);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const Vector weight = Lanes::Set(weights[i * kTilePageSize + slot]);
#pragma GCC unroll 4
        for (int j = 0; j < kColumns; ++j) sum[i][j] = Lanes::Fma(weight, value[j], sum[i][j]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        Lanes::Store(sums + i * width_ + j * Lanes::kWidth, sum[i][j]);
      }
    }
  }

  const AttentionTile& tile_;
  const AttentionScratch& scratch_;
  const int width_;
  const PageVisits<kWindowed> visits_;
  SoftmaxState state_{};
  int first_slot_ = 0;      // See `Accumulate`.
  const Stored* pages_[2];  // The pair that is visited.
  const Stored* ahead_[2];  // Pages are scattered, so the processor cannot foresee the next pair.
};

template <typename Lanes, typename Element, typename Stored, bool kWindowed>
void AttendStored(const AttentionTile& tile, const TileWork& work,
                  const AttentionScratch& scratch) {
  if (tile.num_rows * tile.num_heads < Lanes::kWidth) {
    AttendPart(TileAttention<Lanes, Element, Stored, kWindowed>(tile, scratch), work, scratch);
  } else {
    AttendPart(BlockAttention<Lanes, Element, Stored, kWindowed>(tile, scratch), work, scratch);
  }
}

template <typename Lanes, typename Element, bool kWindowed>
void AttendElements(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch) {
  if (tile.is_8_bit) {
    AttendStored<Lanes, Element, int8_t, kWindowed>(tile, work, scratch);
  } else {
    AttendStored<Lanes, Element, Element, kWindowed>(tile, work, scratch);
  }
}

template <typename Lanes, bool kWindowed>
void AttendType(const AttentionTile& tile, const TileWork& work, const AttentionScratch& scratch) {
  if (tile.type == FloatType::kF16) {
    AttendElements<Lanes, uint16_t, kWindowed>(tile, work, scratch);
  } else {
    AttendElements<Lanes, float, kWindowed>(tile, work, scratch);
  }
}

template <typename Lanes>
void AttendTile(const AttentionTile& tile, const TileWork& work, const AttentionScratch& scratch) {
  if (tile.window > 0) {
    AttendType<Lanes, true>(tile, work, scratch);
  } else {
    AttendType<Lanes, false>(tile, work, scratch);
  }
}

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TILE_H_
