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

#include "kernels/attention/attention_products.h"
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
template <typename Operands, typename Element, bool kWindowed>
class BlockAttention {
  using Lanes = typename Operands::Lanes;
  using Stored = typename Operands::Stored;
  using Vector = typename Lanes::Vector;

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
                        ? LoadPadded(source + tile_.Offset(first + i, tile_.query_head_stride) + c,
                                     tile_.head_dim - c)
                        : Lanes::Set(0.0f);
        }
        float transposed[kLanes * kLanes];
        Lanes::StoreTransposed(rows, transposed);
        for (int i = 0; i < kLanes; ++i) rows[i] = Lanes::Load(transposed + i * kLanes);
        Operands::template StoreColumns<kLanes>(scratch_.queries, c, first, rows);
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
          Element* output = static_cast<Element*>(tile_.output) +
                            tile_.Offset(first + i, tile_.output_head_stride) + c;
          const Vector scale = Lanes::Set(1.0f / state.total[first + i]);
          const Vector scaled = Lanes::Mul(Lanes::Load(transposed + i * kLanes), scale);
          Lanes::StoreFirst(output, Lanes::Add(scaled, Lanes::Set(0.0f)), count);
        }
      }
    }
  }

 private:
  static constexpr int kLanes = Lanes::kWidth;
  static constexpr int kStride = kMaxTileQueries;
  // Sums of at most kVectors vectors of queries by kDepth positions or elements are in registers.
  static constexpr int kVectors = Lanes::kAccumulators >= 8 ? 4 : 1;
  static constexpr int kDepth = 4;
  static constexpr bool kScaled = Operands::kScaled;
  static_assert(kLanes == kTilePageSize);

  const Stored* Page(int64_t page) const { return static_cast<const Stored*>(tile_.pages[page]); }

  template <typename Type>
  static Vector LoadPadded(const Type* source, int count) {
    return count >= kLanes ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
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

  /*! \brief Convert the keys and values of a page to operands, and prefetch the next page. */
  void LoadPage(const Stored* page, const Stored* next) {
    if constexpr (kScaled) {
      key_scales_ = ScalesAfter<Operands>(page + tile_.key_offset, tile_.head_dim);
      value_scales_ = ScalesAfter<Operands>(page + tile_.value_offset, tile_.head_dim);
    }
    page_ = page;
    if constexpr (Operands::kInputs == 1) {
      WidenPage(page, next);
    } else {
      const int64_t size = Operands::Offset(static_cast<int64_t>(tile_.head_dim) * kTilePageSize);
      for (int64_t at = 0; at < size; at += 64 / sizeof(Stored)) {
        __builtin_prefetch(next + tile_.key_offset + at);
        __builtin_prefetch(next + tile_.value_offset + at);
      }
    }
  }

  void WidenPage(const Stored* page, const Stored* next) {
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

  /*! \return The keys of the page at element c (of a pair: and c + 1) and one slot, in all lanes.
   */
  auto KeyAt(int c, int slot) const {
    if constexpr (Operands::kInputs == 1) {
      return Lanes::Set(scratch_.keys[c * kTilePageSize + slot]);
    } else {
      return Operands::Set(page_ + tile_.key_offset +
                           Operands::Offset(c * kTilePageSize + 2 * slot));
    }
  }

  /*! \return The values of one slot (of a pair: and the next) at element c, in all lanes. */
  auto ValueAt(int slot, int c) const {
    if constexpr (Operands::kInputs == 1) {
      return Lanes::Set(scratch_.values[slot * width_ + c]);
    } else {
      return Operands::Set(page_ + tile_.value_offset +
                           Operands::Offset(static_cast<int64_t>(slot) * tile_.head_dim + 2 * c));
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
    if (tile_.biases != nullptr) AddBiases(page, begin, end, seen);
    for (int first = begin; first < end; first += kLanes) Softmax(page, seen, first);
    const int before = NumBefore(page, seen - 1);
    ForVectors(begin, end, [&](auto size, int first) {
      constexpr int kSize = decltype(size)::value;
      const bool all_see = before <= first && AllReach(page, first, kSize);
      // The sums of the padding of float32 values are not used, but bf16 values have none.
      const int end_column = Operands::kInputs == 1 ? width_ : tile_.head_dim;
      for (int c = 0; c < end_column; c += kDepth) {
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
      Vector dot[kDepth][kSize];
#pragma GCC unroll 4
      for (int p = 0; p < kDepth; ++p) {
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) dot[p][i] = Lanes::Set(0.0f);
      }
      for (int c = 0; c < tile_.head_dim; c += Operands::kInputs) {
        typename Operands::Vector query[kSize];
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) {
          query[i] = Operands::LoadColumn(scratch_.queries, c, first + i * kLanes);
        }
#pragma GCC unroll 4
        for (int p = 0; p < kDepth; ++p) {
          const auto key = KeyAt(c, slot + p);
#pragma GCC unroll 4
          for (int i = 0; i < kSize; ++i) dot[p][i] = Operands::Add(query[i], key, dot[p][i]);
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

  /*! \brief Add the biases to the scores of queries [begin, end) and the first `seen` slots. */
  void AddBiases(int64_t page, int begin, int end, int seen) {
    for (int slot = 0; slot < seen; ++slot) {
      float* scores = scratch_.probs + slot * kStride;
      const float* biases = tile_.biases + (page * kTilePageSize + slot) * tile_.bias_stride;
      for (int first = begin; first < end; first += kLanes) {
        Lanes::Store(scores + first,
                     Lanes::Add(Lanes::Load(scores + first), Lanes::Load(biases + first)));
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
      p[slot] = Operands::Probabilities(Lanes::Sub(p[slot], largest));
    }
    StoreWeights(p, first);
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

  /*! \brief Store the factors of the values of a page, given its probabilities. */
  void StoreWeights(const Vector (&p)[kTilePageSize], int first) {
    if constexpr (kScaled) {
      for (int slot = 0; slot < kTilePageSize; slot += Operands::kInputs) {
        Vector weights[Operands::kInputs];
        for (int i = 0; i < Operands::kInputs; ++i) {
          weights[i] = Operands::Weights(p[slot + i], Lanes::Set(value_scales_[slot + i]));
        }
        Operands::template StoreColumns<Operands::kInputs>(scratch_.probs, slot, first, weights);
      }
    } else {
      Operands::template StoreColumns<kTilePageSize>(scratch_.probs, 0, first, p);
    }
  }

  /*! \brief The lanes of the vector of queries from `first` on that see a slot. */
  SlotRange LanesThatSee(int64_t page, int slot, int seen, int first) const {
    if (slot >= seen) return {0, 0};
    return {LanesBefore(NumBefore(page, slot), first),
            kWindowed ? LanesBefore(NumThatReach(page, slot), first) : kLanes};
  }

  /*! \return `added` in a range of lanes, and `sums` in the others. */
  static Vector SelectRange(SlotRange range, Vector sums, Vector added) {
    if (range.begin >= range.end) return sums;
    if (range.begin > 0) added = Lanes::Select(range.begin, sums, added);
    return range.end < kLanes ? Lanes::Select(range.end, added, sums) : added;
  }

  /*! \brief Add the weighted values of a slot, or a pair, in the lanes that see them. */
  template <typename Operand>
  Vector AddVisible(Operand p, Operand value, Vector sums, int64_t page, int slot, int seen,
                    int first) const {
    const SlotRange even = LanesThatSee(page, slot, seen, first);
    const Vector added = Operands::Add(p, value, sums);
    if constexpr (Operands::kInputs == 1) {
      return SelectRange(even, sums, added);
    } else {
      const SlotRange odd = LanesThatSee(page, slot + 1, seen, first);
      const SlotRange both{even.begin > odd.begin ? even.begin : odd.begin,
                           even.end < odd.end ? even.end : odd.end};
      Vector result = SelectRange(even, sums, Operands::Add(p, Operands::Even(value), sums));
      result = SelectRange(odd, result, Operands::Add(p, Operands::Odd(value), sums));
      return SelectRange(both, result, added);
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
    for (int slot = 0; slot < seen; slot += Operands::kInputs) {
      typename Operands::Vector p[kSize];
#pragma GCC unroll 4
      for (int i = 0; i < kSize; ++i) {
        p[i] = Operands::LoadColumn(scratch_.probs, slot, first + i * kLanes);
      }
      const bool has_all = !kMasked && slot + Operands::kInputs <= seen;
#pragma GCC unroll 4
      for (int d = 0; d < kDepth; ++d) {
        const auto value = ValueAt(slot, c + d);
#pragma GCC unroll 4
        for (int i = 0; i < kSize; ++i) {
          if (has_all) {
            sum[d][i] = Operands::Add(p[i], value, sum[d][i]);
          } else {
            const int at = first + i * kLanes;
            sum[d][i] = AddVisible(p[i], value, sum[d][i], page, slot, seen, at);
          }
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
  const Stored* page_ = nullptr;       // The current page.
  const float* key_scales_ = nullptr;  // Of the current page, if the type has scales.
  const float* value_scales_ = nullptr;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_BLOCK_H_
