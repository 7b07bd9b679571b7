/*!
 * \file kernels/attention/attention_block.h
 * \brief Attention of a tile with many queries: one query per lane.
 *
 * For a tile with few queries, attention_tile.h has one position per lane. With one query per lane,
 * nothing is summed across lanes, and each loaded key or value is used for up to 64 queries. Both
 * kernels do the same operations on each number in the same order, so their results have the same
 * bits.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_BLOCK_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention_types.h"
#include "kernels/attention/attention_window.h"
#include "kernels/simd/simd_math.h"

namespace aiomlc {

/*!
 * \brief Online softmax over the pages of a chunk in ascending order, for all queries of a tile.
 *
 * Queries are numbered row by row. Slots after those that a row sees, or before its window, never
 * enter its sums, because they may contain NaN.
 */
template <typename Lanes, typename Element, typename Stored, bool kWindowed>
class BlockAttention {
 public:
  BlockAttention(const AttentionTile& tile, const AttentionScratch& scratch)
      : tile_(tile),
        scratch_(scratch),
        width_((tile.head_dim + kLanes - 1) / kLanes * kLanes),
        num_queries_(tile.num_rows * tile.num_heads),
        visits_(tile) {}

  const PageVisits<kWindowed>& visits() const { return visits_; }

  void LoadQueries() {
    for (int first = 0; first < num_queries_; first += kLanes) {
      for (int c = 0; c < width_; c += kLanes) {
        Vector rows[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          const Element* source = static_cast<const Element*>(tile_.queries);
          rows[i] = first + i < num_queries_
                        ? LoadPadded(source + Offset(first + i) + c, tile_.head_dim - c)
                        : Lanes::Set(0.0f);
        }
        float transposed[kLanes * kLanes];
        Lanes::StoreTransposed(rows, transposed);
        for (int i = 0; i < kLanes; ++i) {
          Lanes::Store(scratch_.queries + (c + i) * kStride + first,
                       Lanes::Load(transposed + i * kLanes));
        }
      }
    }
  }

  /*! \brief Reset `state` to the softmax of no positions, and add the next pages to it. */
  void Begin(const SoftmaxState& state) {
    state_ = state;
    for (int first = 0; first < num_queries_; first += kLanes) {
      for (int c = 0; c < width_; ++c) {
        Lanes::Store(state_.sums + c * kStride + first, Lanes::Set(0.0f));
      }
      Lanes::Store(state_.largest + first, Lanes::Set(-__builtin_inff()));
      Lanes::Store(state_.total + first, Lanes::Set(0.0f));
    }
  }

  /*!
   * \brief Add the pages of visits [begin, end), which are in one chunk.
   * \param prefetch_end The end of the visits that may be prefetched.
   */
  void VisitPages(int64_t begin, int64_t end, int64_t prefetch_end) {
    for (int64_t visit = begin; visit < end; ++visit) {
      const int64_t page = visits_.page(visit);
      LoadPage(Page(page), Page(visits_.page(visit + 1 < prefetch_end ? visit + 1 : visit)));
      const int64_t seen = tile_.last_visible + 1 - page * kTilePageSize;
      VisitPage(page, seen < kTilePageSize ? static_cast<int>(seen) : kTilePageSize);
    }
  }

  /*! \brief Merge the state of a later chunk into the state of the chunks before it. */
  void Merge(const SoftmaxState& into, const SoftmaxState& later) {
    for (int first = 0; first < num_queries_; first += kLanes) {
      const Vector previous = Lanes::Load(into.largest + first);
      const Vector next = Lanes::Load(later.largest + first);
      const Vector largest = Lanes::Max(previous, next);
      Lanes::Store(into.largest + first, largest);
      const Vector previous_factor = Exp<Lanes>(Lanes::Sub(previous, Finite(largest)));
      const Vector next_factor = Exp<Lanes>(Lanes::Sub(next, Finite(largest)));
      const auto merge = [=](float* sum, const float* added) {
        Lanes::Store(sum, Lanes::Fma(Lanes::Load(sum), previous_factor,
                                     Lanes::Mul(Lanes::Load(added), next_factor)));
      };
      merge(into.total + first, later.total + first);
      for (int c = 0; c < width_; ++c) {
        merge(into.sums + c * kStride + first, later.sums + c * kStride + first);
      }
    }
  }

  /*!
   * \brief Write the normalized sums.
   *
   * Adding 0 makes every zero positive, because merging with an empty state loses the sign of -0.
   */
  void StoreOutput(const SoftmaxState& state) {
    for (int first = 0; first < num_queries_; first += kLanes) {
      for (int c = 0; c < tile_.head_dim; c += kLanes) {
        Vector columns[kLanes];
        for (int i = 0; i < kLanes; ++i) {
          columns[i] = Lanes::Load(state.sums + (c + i) * kStride + first);
        }
        float transposed[kLanes * kLanes];
        Lanes::StoreTransposed(columns, transposed);
        const int count = tile_.head_dim - c < kLanes ? tile_.head_dim - c : kLanes;
        for (int i = 0; i < kLanes && first + i < num_queries_; ++i) {
          Element* output = static_cast<Element*>(tile_.output) + Offset(first + i) + c;
          const Vector scale = Lanes::Set(1.0f / state.total[first + i]);
          const Vector scaled = Lanes::Mul(Lanes::Load(transposed + i * kLanes), scale);
          Lanes::StoreFirst(output, Lanes::Add(scaled, Lanes::Set(0.0f)), count);
        }
      }
    }
  }

 private:
  using Vector = typename Lanes::Vector;
  static constexpr int kLanes = Lanes::kWidth;
  static constexpr int kStride = kMaxTileQueries;
  // Sums of at most kVectors vectors of queries by kDepth positions or elements are in registers.
  static constexpr int kVectors = Lanes::kAccumulators >= 8 ? 4 : 1;
  static constexpr int kDepth = 4;
  static constexpr bool kScaled = sizeof(Stored) == 1;
  static_assert(kLanes == kTilePageSize);

  const Stored* Page(int64_t page) const { return static_cast<const Stored*>(tile_.pages[page]); }

  template <typename Type>
  static Vector LoadPadded(const Type* source, int count) {
    return count >= kLanes ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }

  /*! \return The offset of a query in the query and output tensors. */
  int64_t Offset(int query) const {
    return query / tile_.num_heads * tile_.row_stride +
           static_cast<int64_t>(query % tile_.num_heads) * tile_.head_dim;
  }

  /*! \return The number of queries, from the first, that do not see a slot of `page` yet. */
  int NumBefore(int64_t page, int slot) const {
    const int64_t rows = page * kTilePageSize + slot - tile_.first_visible;
    if (rows <= 0) return 0;
    return rows < tile_.num_rows ? static_cast<int>(rows) * tile_.num_heads : num_queries_;
  }

  /*! \return The number of queries, from the first, from which the window does not hide a slot. */
  int NumThatReach(int64_t page, int slot) const {
    if constexpr (!kWindowed) return num_queries_;
    return NumRowsThatReach(tile_, page, slot) * tile_.num_heads;
  }

  /*!
   * \return The largest scores, with minus infinity replaced by the lowest float.
   *
   * Lanes without scores have minus infinity; the difference of two infinities would be NaN.
   */
  static Vector Finite(Vector largest) { return Lanes::Max(largest, Lanes::Set(-__FLT_MAX__)); }

  /*! \return The number of lanes before `query` in the vector that starts with query `first`. */
  static int LanesBefore(int query, int first) {
    const int count = query - first;
    return count < 0 ? 0 : count < kLanes ? count : kLanes;
  }

  /*! \brief Convert the keys and values of a page to float32, and prefetch the next page. */
  void LoadPage(const Stored* page, const Stored* next) {
    if constexpr (kScaled) {
      key_scales_ = ScalesAfter(page + tile_.key_offset, tile_.head_dim);
      value_scales_ = ScalesAfter(page + tile_.value_offset, tile_.head_dim);
    }
    for (int c = 0; c < tile_.head_dim; ++c) {
      const int64_t keys = tile_.key_offset + static_cast<int64_t>(c) * kTilePageSize;
      __builtin_prefetch(next + keys);
      Lanes::Store(scratch_.keys + c * kTilePageSize, Lanes::Load(page + keys));
    }
    for (int slot = 0; slot < kTilePageSize; ++slot) {
      for (int c = 0; c < tile_.head_dim; c += kLanes) {
        const int64_t value = tile_.value_offset + static_cast<int64_t>(slot) * tile_.head_dim + c;
        __builtin_prefetch(next + value);
        Lanes::Store(scratch_.values + slot * width_ + c,
                     LoadPadded(page + value, tile_.head_dim - c));
      }
    }
  }

  template <int kSize>
  using Size = std::integral_constant<int, kSize>;

  /*! \brief Call `function(Size<n>(), first)` for blocks of n vectors that cover [begin, end). */
  template <typename Function>
  static void ForVectors(int begin, int end, Function function) {
    int first = begin;
    if constexpr (kVectors == 4) {
      for (; first + 3 * kLanes < end; first += 4 * kLanes) function(Size<4>(), first);
      for (; first + kLanes < end; first += 2 * kLanes) function(Size<2>(), first);
    }
    for (; first < end; first += kLanes) function(Size<1>(), first);
  }

  /*!
   * \return The number of leading queries whose window still reaches one of the first `seen` slots
   * of `page`.
   */
  int NumThatReachAny(int64_t page, int seen) const {
    return FirstSlotAfterSinks(tile_, page) > 0 ? num_queries_ : NumThatReach(page, seen - 1);
  }

  /*! \return Whether the window hides no slot of `page` from `count` vectors of queries. */
  bool AllReach(int64_t page, int first, int count) const {
    if constexpr (!kWindowed) return true;
    const int reach = NumThatReach(page, FirstSlotAfterSinks(tile_, page));
    return reach == num_queries_ || reach >= first + count * kLanes;
  }

  /*! \brief Add a page to the state. \param seen The slots of the page that the last row sees. */
  void VisitPage(int64_t page, int seen) {
    const int begin = NumBefore(page, 0) / kLanes * kLanes;
    const int end = kWindowed ? NumThatReachAny(page, seen) : num_queries_;
    ForVectors(begin, end,
               [&](auto size, int first) { Score<decltype(size)::value>(first, seen); });
    if (tile_.soft_cap > 0.0f) CapScores(begin, end, seen);
    for (int first = begin; first < end; first += kLanes) Softmax(page, seen, first);
    const int before = NumBefore(page, seen - 1);
    ForVectors(begin, end, [&](auto size, int first) {
      constexpr int kSize = decltype(size)::value;
      const bool all_see = before <= first && AllReach(page, first, kSize);
      for (int c = 0; c < width_; c += kDepth) {
        if (all_see) {
          AddValues<kSize, false>(page, seen, first, c);
        } else {
          AddValues<kSize, true>(page, seen, first, c);
        }
      }
    });
  }

  /*! \brief Compute the scores of `kSize` vectors of queries, summed along head_dim in order. */
  template <int kSize>
  void Score(int first, int seen) {
    for (int slot = 0; slot < seen; slot += kDepth) {
      const float* keys = scratch_.keys + slot;
      Vector dot[kDepth][kSize];
#pragma GCC unroll 4
      for (int p = 0; p < kDepth; ++p) {
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) dot[p][i] = Lanes::Set(0.0f);
      }
      for (int c = 0; c < tile_.head_dim; ++c) {
        const float* queries = scratch_.queries + c * kStride + first;
        Vector query[kSize];
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) query[i] = Lanes::Load(queries + i * kLanes);
#pragma GCC unroll 4
        for (int p = 0; p < kDepth; ++p) {
          const Vector key = Lanes::Set(keys[c * kTilePageSize + p]);
#pragma GCC unroll 4
          for (int i = 0; i < kSize; ++i) dot[p][i] = Lanes::Fma(query[i], key, dot[p][i]);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < kDepth; ++p) {
        const Vector scale =
            Lanes::Set(kScaled ? key_scales_[slot + p] * tile_.scale : tile_.scale);
        float* scores = scratch_.probs + (slot + p) * kStride + first;
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) {
          Lanes::Store(scores + i * kLanes, Lanes::Mul(dot[p][i], scale));
        }
      }
    }
  }

  /*! \brief Apply the soft cap to the scores of queries [begin, end) and the first `seen` slots. */
  void CapScores(int begin, int end, int seen) {
    for (int slot = 0; slot < seen; ++slot) {
      float* scores = scratch_.probs + slot * kStride;
      for (int first = begin; first < end; first += kLanes) {
        Lanes::Store(scores + first, SoftCap<Lanes>(Lanes::Load(scores + first), tile_.soft_cap));
      }
    }
  }

  /*!
   * \brief Online softmax of one vector of queries: replace the scores by exp(score - max), and
   * rescale the running sums.
   */
  void Softmax(int64_t page, int seen, int first) {
    const Vector hidden = Lanes::Set(-__builtin_inff());
    const Vector previous = Lanes::Load(state_.largest + first);
    Vector p[kTilePageSize];
    Vector largest = previous;
    for (int slot = 0; slot < kTilePageSize; ++slot) {
      const int before = slot < seen ? LanesBefore(NumBefore(page, slot), first) : kLanes;
      const int reach = kWindowed ? LanesBefore(NumThatReach(page, slot), first) : kLanes;
      p[slot] = before >= reach ? hidden : Lanes::Load(scratch_.probs + slot * kStride + first);
      if (before > 0 && before < reach) p[slot] = Lanes::Select(before, hidden, p[slot]);
      if (kWindowed && reach < kLanes) p[slot] = Lanes::Select(reach, p[slot], hidden);
      largest = Lanes::Max(largest, p[slot]);
    }
    Lanes::Store(state_.largest + first, largest);
    largest = Finite(largest);
    for (int slot = 0; slot < kTilePageSize; ++slot) {
      p[slot] = Exp<Lanes>(Lanes::Sub(p[slot], largest));
      Vector weight = p[slot];
      if constexpr (kScaled) weight = Lanes::Mul(weight, Lanes::Set(value_scales_[slot]));
      Lanes::Store(scratch_.probs + slot * kStride + first, weight);
    }
    // In the order in which `Lanes::Sum` adds its lanes.
    for (int step = kTilePageSize / 2; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) p[i] = Lanes::Add(p[i], p[i + step]);
    }
    const Vector correction = Exp<Lanes>(Lanes::Sub(previous, largest));
    const Vector total = Lanes::Load(state_.total + first);
    Lanes::Store(state_.total + first, Lanes::Fma(total, correction, p[0]));
    // Nothing to rescale if the factor, which is at most 1, is 1 in every lane. It usually is.
    if (Lanes::Largest(Lanes::Sub(Lanes::Set(0.0f), correction)) == -1.0f) return;
    for (int c = 0; c < width_; ++c) {
      float* sums = state_.sums + c * kStride + first;
      Lanes::Store(sums, Lanes::Mul(Lanes::Load(sums), correction));
    }
  }

  /*!
   * \brief Add elements [c, c + kDepth) of the weighted values to the sums of `kSize` vectors of
   * queries.
   * \tparam kMasked Whether a query may not see one of the first `seen` slots.
   */
  template <int kSize, bool kMasked>
  void AddValues(int64_t page, int seen, int first, int c) {
    float* sums = state_.sums + c * kStride + first;
    Vector sum[kDepth][kSize];
#pragma GCC unroll 4
    for (int d = 0; d < kDepth; ++d) {
#pragma GCC unroll 4
      for (int i = 0; i < kSize; ++i) sum[d][i] = Lanes::Load(sums + d * kStride + i * kLanes);
    }
    for (int slot = 0; slot < seen; ++slot) {
      const float* probs = scratch_.probs + slot * kStride + first;
      const float* values = scratch_.values + slot * width_ + c;
      const int num_before = kMasked ? NumBefore(page, slot) : 0;
      const int num_reach = kMasked ? NumThatReach(page, slot) : num_queries_;
      Vector p[kSize];
#pragma GCC unroll 4
      for (int i = 0; i < kSize; ++i) p[i] = Lanes::Load(probs + i * kLanes);
#pragma GCC unroll 4
      for (int d = 0; d < kDepth; ++d) {
        const Vector value = Lanes::Set(values[d]);
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) {
          const Vector added = Lanes::Fma(p[i], value, sum[d][i]);
          const int before = kMasked ? LanesBefore(num_before, first + i * kLanes) : 0;
          const int reach =
              kMasked && kWindowed ? LanesBefore(num_reach, first + i * kLanes) : kLanes;
          const Vector unchanged = sum[d][i];
          sum[d][i] = before == 0 ? added : Lanes::Select(before, unchanged, added);
          if (reach < kLanes) sum[d][i] = Lanes::Select(reach, sum[d][i], unchanged);
        }
      }
    }
#pragma GCC unroll 4
    for (int d = 0; d < kDepth; ++d) {
#pragma GCC unroll 4
      for (int i = 0; i < kSize; ++i) Lanes::Store(sums + d * kStride + i * kLanes, sum[d][i]);
    }
  }

  const AttentionTile& tile_;
  const AttentionScratch& scratch_;
  const int width_;
  const int num_queries_;
  const PageVisits<kWindowed> visits_;
  SoftmaxState state_{};
  const float* key_scales_ = nullptr;  // Of the current page; int8 only.
  const float* value_scales_ = nullptr;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_BLOCK_H_
