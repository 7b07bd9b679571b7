/*!
 * \file kernels/attention/attention_tile.h
 * \brief Attention of a tile with few queries: one position of a page per lane.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_TILE_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/attention_products.h"
#include "kernels/attention/attention_types.h"
#include "kernels/attention/attention_window.h"
#include "kernels/simd/simd_math.h"

namespace aiomlc {

/*!
 * \brief Online softmax over the pages of a chunk in ascending order.
 *
 * Every (row, head) gets the same operations in the same order, whatever else is in the tile. So
 * the result depends neither on the batch nor on how a prompt is divided into chunks. Slots after a
 * row's position never enter its sum, because they may contain NaN. The scores of two pages are
 * computed together, because one page has too few independent sums to hide the latency of the
 * multiplications.
 */
template <typename Operands, typename Element, bool kWindowed>
class TileAttention {
  using Lanes = typename Operands::Lanes;
  using Stored = typename Operands::Stored;
  using Vector = typename Lanes::Vector;

 public:
  TileAttention(const AttentionTile& tile, const AttentionScratch& scratch)
      : tile_(tile),
        scratch_(scratch),
        width_((tile.head_dim + 15) / 16 * 16),
        visits_(tile),
        values_(tile.value_offset - tile.key_offset) {}

  const PageVisits<kWindowed>& visits() const { return visits_; }

  void LoadQueries() {
    for (int query = 0; query < num_queries(); ++query) {
      const Element* source =
          static_cast<const Element*>(tile_.queries) + tile_.Offset(query, tile_.query_head_stride);
      for (int c = 0; c < width_; c += Lanes::kWidth) {
        Operands::StoreQueries(scratch_.queries, query * width_ + c,
                               LoadPadded(source + c, tile_.head_dim - c));
      }
    }
  }

  /*! \brief Reset `state` to the softmax of no positions, and add the next pages to it. */
  void Begin(const SoftmaxState& state) {
    states_ = state;
    for (int query = 0; query < num_queries(); ++query) {
      for (int c = 0; c < width_; c += Lanes::kWidth) {
        Lanes::Store(state.sums + query * width_ + c, Lanes::Set(0.0f));
      }
      state.largest[query] = -__builtin_inff();
      state.total[query] = 0.0f;
    }
  }

  /*!
   * \brief Add the pages of visits [begin, end), which are in one chunk.
   *
   * All heads of a pair of pages are computed in turn, because they are adjacent in memory.
   * \param prefetch_end The end of the visits that may be prefetched.
   */
  void VisitPages(int64_t begin, int64_t end, int64_t prefetch_end) {
    for (int64_t visit = begin; visit < end; visit += 2) {
      const int num_pages = visit + 1 < end ? 2 : 1;
      for (int head = 0; head < tile_.num_kv_heads; ++head) {
        for (int i = 0; i < num_pages; ++i) {
          pages_[i] = Page(visits_.page(visit + i)) + tile_.key_offset + head * tile_.plane;
          near_[i] = Ahead(visit + i, head + 1, prefetch_end);
          far_[i] = Ahead(visit + i, head + 2, prefetch_end);
        }
        SelectHead(head);
        VisitPair(visit, num_pages);
      }
    }
  }

  /*! \brief Merge the state of a later chunk into the state of the chunks before it. */
  void Merge(const SoftmaxState& into, const SoftmaxState& later) {
    for (int query = 0; query < num_queries(); ++query) {
      const float previous = into.largest[query];
      const float next = later.largest[query];
      if (next == -__builtin_inff()) continue;
      const float largest = previous > next ? previous : next;
      const float previous_factor = RescaleFactor(previous, largest);
      const float next_factor = RescaleFactor(next, largest);
      into.total[query] =
          __builtin_fmaf(into.total[query], previous_factor, later.total[query] * next_factor);
      into.largest[query] = largest;
      for (int c = query * width_; c < (query + 1) * width_; c += Lanes::kWidth) {
        const Vector added = Lanes::Mul(Lanes::Load(later.sums + c), Lanes::Set(next_factor));
        Lanes::Store(into.sums + c,
                     Lanes::Fma(Lanes::Load(into.sums + c), Lanes::Set(previous_factor), added));
      }
    }
  }

  /*!
   * \brief Write the normalized sums.
   *
   * Adding 0 makes every zero positive, because merging with an empty state loses the sign of -0.
   */
  void StoreOutput(const SoftmaxState& state) {
    for (int query = 0; query < num_queries(); ++query) {
      Element* output =
          static_cast<Element*>(tile_.output) + tile_.Offset(query, tile_.output_head_stride);
      const Vector scale = Lanes::Set(1.0f / state.total[query]);
      for (int c = 0; c < tile_.head_dim; c += Lanes::kWidth) {
        const Vector sums = Lanes::Load(state.sums + query * width_ + c);
        Lanes::StoreFirst(output + c, Lanes::Add(Lanes::Mul(sums, scale), Lanes::Set(0.0f)),
                          Smaller(tile_.head_dim - c, Lanes::kWidth));
      }
    }
  }

 private:
  // A tile has fewer queries than a vector has lanes: see `AttendStored`.
  static constexpr int kPageProbs = Lanes::kWidth * kTilePageSize;
  static constexpr int kRegisters = Lanes::kAccumulators >= 8 ? 16 : 4;
  static constexpr bool kScaled = Operands::kScaled;
  static constexpr int kLineBytes = 64;
  static constexpr int kSecondLevel = 2;  // See `__builtin_prefetch`.
  // Types of few bits wait for instructions, and the next head is read in time.
  static constexpr bool kReadsFarAhead = sizeof(Stored) > 1;

  int num_queries() const { return tile_.NumQueries(); }

  /*! \brief Make the queries and states of one key-value head the current ones. */
  void SelectHead(int head) {
    first_query_ = head * tile_.HeadQueries();
    state_ = {states_.sums + first_query_ * width_, states_.largest + first_query_,
              states_.total + first_query_};
  }

  /*! \brief Add one or two pages to the states of the current head. */
  void VisitPair(int64_t visit, int num_pages) {
    const int first = FirstRow(visits_.page(visit)) * tile_.num_heads;
    ForGroups(first, tile_.HeadQueries(), [this, num_pages](auto size, int query) {
      if (num_pages == 2) {
        Score<decltype(size)::value, 2>(query);
      } else {
        Score<decltype(size)::value, 1>(query);
      }
    });
    if (tile_.soft_cap > 0.0f) CapScores(first, num_pages);
    if (tile_.biases != nullptr) {
      for (int i = 0; i < num_pages; ++i) AddBiases(first, visits_.page(visit + i), i);
    }
    for (int i = 0; i < num_pages; ++i) VisitPage(visits_.page(visit + i), i);
  }

  static int Smaller(int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); }

  template <typename Type>
  static Vector LoadPadded(const Type* source, int count) {
    return count >= Lanes::kWidth ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }

  /*! \return The keys of a head, which may be one of a later pair of pages. */
  const Stored* Ahead(int64_t visit, int head, int64_t prefetch_end) const {
    for (; head >= tile_.num_kv_heads; head -= tile_.num_kv_heads) visit += 2;
    return Page(visits_.page(visit < prefetch_end ? visit : prefetch_end - 1)) + tile_.key_offset +
           head * tile_.plane;
  }

  const Stored* Page(int64_t page) const { return static_cast<const Stored*>(tile_.pages[page]); }

  /*! \return The scales of the keys, or values, that begin at `plane`. */
  Vector Scales(const Stored* plane) const {
    return Lanes::Load(ScalesAfter<Operands>(plane, tile_.head_dim));
  }

  static bool BeginsLine(int64_t offset) { return offset * sizeof(Stored) % kLineBytes == 0; }

  /*!
   * \brief Prefetch the line that will be at `offset` of the next heads.
   *
   * The second-level cache waits for more lines at a time than the first-level one, so memory is
   * read into it first. Inlined, because GCC removes calls of functions that only prefetch.
   */
  [[gnu::always_inline]] void Prefetch(int which, int64_t offset) const {
    __builtin_prefetch(near_[which] + offset);
    if constexpr (kReadsFarAhead) __builtin_prefetch(far_[which] + offset, 0, kSecondLevel);
  }

  /*! \return The first row that sees a slot of `page`. */
  int FirstRow(int64_t page) const {
    const int64_t before = page * kTilePageSize - tile_.first_visible;
    return before > 0 ? static_cast<int>(before) : 0;
  }

  /*!
   * \brief Add a page to the state, given the scores.
   * \param which 0 for the first page of the pair, 1 for the second page.
   */
  void VisitPage(int64_t page, int which) {
    const int first_row = FirstRow(page);
    const int64_t last_slot = (page + 1) * kTilePageSize - 1;
    const int64_t partial =
        last_slot > tile_.last_visible ? tile_.num_rows : last_slot - tile_.first_visible;
    const int first_full_row = partial > first_row ? Smaller(partial, tile_.num_rows) : first_row;
    const int full_end = FullEnd(first_full_row, page);

    const int heads = tile_.num_heads;
    for (int row = first_row; row < tile_.num_rows; ++row) {
      const int visible = Visible(row, page);
      const SlotRange gap = Gap(row, page);
      if (kWindowed && gap.begin == 0 && gap.end >= visible) continue;
      for (int query = row * heads; query < (row + 1) * heads; ++query) {
        Softmax(query, visible, gap, which);
      }
      if (row < first_full_row || row >= full_end) AccumulateRow(row, visible, gap, which);
    }
    Accumulate(first_full_row * heads, full_end * heads, kTilePageSize, which);
  }

  /*! \return The slots of `page` that the window hides from `row`; may be empty. */
  SlotRange Gap(int row, int64_t page) const {
    if constexpr (kWindowed) return HiddenByWindow(tile_, row, page);
    return {0, 0};
  }

  /*! \return The end of the rows, starting with `begin`, from which the window hides no slot. */
  int FullEnd(int begin, int64_t page) const {
    if constexpr (!kWindowed) return tile_.num_rows;
    const int end = NumRowsThatReach(tile_, page, FirstSlotAfterSinks(tile_, page));
    return end > begin ? end : begin;
  }

  /*! \return The number of slots of `page` that `row` sees without a window. */
  int Visible(int row, int64_t page) const {
    const int64_t own = tile_.first_visible + row;
    const int64_t last = own < tile_.last_visible ? own : tile_.last_visible;
    return Smaller(last + 1 - page * kTilePageSize, kTilePageSize);
  }

  template <int kSize>
  using Size = std::integral_constant<int, kSize>;

  /*! \brief Call `function(Size<n>, first query)` for groups of queries in [begin, end). */
  template <typename Function>
  static void ForGroups(int begin, int end, Function function) {
    int query = begin;
    if constexpr (Lanes::kAccumulators >= 8) {
      for (; query + 4 <= end; query += 4) function(Size<4>(), query);
      for (; query + 2 <= end; query += 2) function(Size<2>(), query);
    }
    for (; query < end; ++query) function(Size<1>(), query);
  }

  /*!
   * \brief Compute scale * q . k of `kQueries` queries and the keys of one or two pages, summed
   * along head_dim in order.
   */
  template <int kQueries, int kPages>
  void Score(int first) {
    Vector dot[kPages][kQueries];
#pragma GCC unroll 2
    for (int page = 0; page < kPages; ++page) {
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) dot[page][i] = Lanes::Set(0.0f);
    }
#pragma GCC unroll 4
    for (int c = 0; c < tile_.head_dim; c += Operands::kInputs) {
      typename Operands::Vector key[kPages];
#pragma GCC unroll 2
      for (int page = 0; page < kPages; ++page) {
        const int64_t offset = Operands::Offset(c * kTilePageSize);
        key[page] = Operands::Load(pages_[page] + offset);
        if (BeginsLine(offset)) Prefetch(page, offset);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        const auto query =
            Operands::Query(scratch_.queries, (first_query_ + first + i) * width_ + c);
#pragma GCC unroll 2
        for (int page = 0; page < kPages; ++page) {
          dot[page][i] = Operands::Add(query, key[page], dot[page][i]);
        }
      }
    }
#pragma GCC unroll 2
    for (int page = 0; page < kPages; ++page) {
      float* probs = scratch_.probs + page * kPageProbs + first * kTilePageSize;
      Vector scale = Lanes::Set(tile_.scale);
      if constexpr (kScaled) scale = Lanes::Mul(Scales(pages_[page]), scale);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        Lanes::Store(probs + i * kTilePageSize, Lanes::Mul(dot[page][i], scale));
      }
    }
  }

  /*! \brief Apply the soft cap to the scores of the queries from `first` on. */
  void CapScores(int first, int num_pages) {
    for (int page = 0; page < num_pages; ++page) {
      for (int query = first; query < tile_.HeadQueries(); ++query) {
        float* scores = scratch_.probs + page * kPageProbs + query * kTilePageSize;
        Lanes::Store(scores, SoftCap<Lanes>(Lanes::Load(scores), tile_.soft_cap));
      }
    }
  }

  /*! \brief Add the biases to the scores of the queries from `first` on with one page. */
  void AddBiases(int first, int64_t page, int which) {
    for (int query = first; query < tile_.HeadQueries(); ++query) {
      float* scores = scratch_.probs + which * kPageProbs + query * kTilePageSize;
      const int64_t stride = tile_.bias_stride;
      const float* biases = tile_.biases + query + page * kTilePageSize * stride;
      for (int slot = 0; slot < kTilePageSize; ++slot) scores[slot] += biases[slot * stride];
    }
  }

  /*! \return The factor e^(score - largest), which makes a sum relative to `largest`. */
  static float RescaleFactor(float score, float largest) {
    return score == largest ? 1.0f : Lanes::First(Exp<Lanes>(Lanes::Set(score - largest)));
  }

  /*!
   * \brief Replace the scores of one query by unnormalized probabilities, and rescale the sums of
   * the previous pages.
   */
  void Softmax(int query, int visible, SlotRange gap, int which) {
    float* probs = scratch_.probs + which * kPageProbs + query * kTilePageSize;
    const Vector hidden = Lanes::Set(-__builtin_inff());
    Vector scores = Lanes::Select(visible, Lanes::Load(probs), hidden);
    if (kWindowed && gap.begin < gap.end) {
      scores = Lanes::Select(gap.end, Lanes::Select(gap.begin, scores, hidden), scores);
    }
    const float page_largest = Lanes::Largest(scores);
    const float previous = state_.largest[query];
    const float largest = previous > page_largest ? previous : page_largest;
    const Vector p = Operands::Probabilities(Lanes::Sub(scores, Lanes::Set(largest)));
    if constexpr (kScaled) {
      Operands::StoreProbs(probs, Operands::Weights(p, Scales(pages_[which] + values_)));
    } else {
      Operands::StoreProbs(probs, p);
    }

    const float correction = RescaleFactor(previous, largest);
    state_.total[query] = __builtin_fmaf(state_.total[query], correction, Lanes::Sum(p));
    state_.largest[query] = largest;
    if (correction == 1.0f) return;
    float* sums = state_.sums + query * width_;
    for (int c = 0; c < width_; c += Lanes::kWidth) {
      Lanes::Store(sums + c, Lanes::Mul(Lanes::Load(sums + c), Lanes::Set(correction)));
    }
  }

  /*! \brief Add the visible weighted values to the sums of one row's queries. */
  void AccumulateRow(int row, int visible, SlotRange gap, int which) {
    const int begin = row * tile_.num_heads;
    const int end = begin + tile_.num_heads;
    if (kWindowed && gap.begin < gap.end) {
      Accumulate(begin, end, Smaller(gap.begin, visible), which);
      first_slot_ = gap.end;
    }
    Accumulate(begin, end, visible, which);
    if constexpr (kWindowed) first_slot_ = 0;
  }

  /*!
   * \brief Add the weighted values of slots [first_slot_, visible) to the sums of queries
   * [begin, end).
   *
   * `first_slot_` is a member because as an argument it would make attention without windows a
   * tenth slower.
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

  /*! \tparam kWhole Whether all vectors are within head_dim. */
  template <int kQueries, int kColumns, bool kWhole>
  void AddValues(int first, int c, int visible, int which) {
    float* sums = state_.sums + first * width_ + c;
    Vector sum[kQueries][kColumns];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        sum[i][j] = Lanes::Load(sums + i * width_ + j * Lanes::kWidth);
      }
    }
    int slot = kWindowed ? first_slot_ : 0;
    if constexpr (Operands::kInputs == 2) {
      if (kWindowed && slot % 2 != 0 && slot < visible) {
        AddSlots<kWhole>(first, c, slot++ - 1, which, sum, Operands::Odd);
      }
    }
    for (; slot + Operands::kInputs <= visible; slot += Operands::kInputs) {
      AddSlots<kWhole>(first, c, slot, which, sum, [](auto value) { return value; });
    }
    if constexpr (Operands::kInputs == 2) {
      if (slot < visible) AddSlots<kWhole>(first, c, slot, which, sum, Operands::Even);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) {
        Lanes::Store(sums + i * width_ + j * Lanes::kWidth, sum[i][j]);
      }
    }
  }

  /*!
   * \brief Add the weighted values of one operand: of a slot, or of a pair of slots.
   * \param mask Returns an operand without the values that no query sees.
   */
  template <bool kWhole, int kQueries, int kColumns, typename Mask>
  [[gnu::always_inline]] void AddSlots(int first, int c, int slot, int which,
                                       Vector (&sum)[kQueries][kColumns], Mask mask) {
    const int64_t offset = values_ + Operands::Offset(static_cast<int64_t>(slot) * tile_.head_dim +
                                                      c * Operands::kInputs);
    typename Operands::Vector value[kColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kColumns; ++j) {
      const int64_t column = offset + Operands::Offset(j * Lanes::kWidth * Operands::kInputs);
      value[j] = mask(kWhole ? Operands::Load(pages_[which] + column)
                             : Operands::LoadFirst(pages_[which] + column, tile_.head_dim - c));
      if (BeginsLine(column - offset)) Prefetch(which, column);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      const auto weight =
          Operands::Prob(scratch_.probs + which * kPageProbs + (first + i) * kTilePageSize, slot);
#pragma GCC unroll 4
      for (int j = 0; j < kColumns; ++j) sum[i][j] = Operands::Add(weight, value[j], sum[i][j]);
    }
  }

  const AttentionTile& tile_;
  const AttentionScratch& scratch_;
  const int width_;
  const PageVisits<kWindowed> visits_;
  const int64_t values_;    // From the keys of a head to its values.
  SoftmaxState states_{};   // Of all key-value heads.
  SoftmaxState state_{};    // Of the current head.
  int first_query_ = 0;     // Of the current head.
  int first_slot_ = 0;      // See `Accumulate`.
  const Stored* pages_[2];  // The keys of the current head in a pair of pages.
  const Stored* near_[2];   // The keys of the next head, maybe in the next pages.
  const Stored* far_[2];    // The keys of the head after it.
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TILE_H_
