/*!
 * \file attention_tile.h
 * \brief Attention of a few query rows of one sequence: the positions of a page are the lanes.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_TILE_H_
#define AIOMLC_KERNELS_ATTENTION_TILE_H_

#include <cstddef>
#include <cstdint>

#include "attention_block.h"
#include "attention_types.h"
#include "simd_math.h"

namespace aiomlc {

/*!
 * \brief Online softmax over pages in ascending order.
 *
 * Every (row, head) sees the same operations in the same order whatever else is in the tile: that
 * makes the result independent of batch and chunks. Slots after a row's own position are never
 * multiplied into its sum, because they may hold anything, NaN included.
 */
template <typename Lanes, typename Element>
class TileAttention {
 public:
  TileAttention(const AttentionTile& tile, const AttentionScratch& scratch)
      : tile_(tile), scratch_(scratch), width_((tile.head_dim + 15) / 16 * 16) {}

  void Run() {
    LoadQueries();
    const int64_t last_position = tile_.first_position + tile_.num_rows - 1;
    const int64_t last_page = last_position / kTilePageSize;
    for (int64_t page = 0; page <= last_page; ++page) {
      // Pages are scattered, so the processor cannot foresee the next one.
      const int64_t next = page < last_page ? page + 1 : page;
      LoadPage(Page(page), Page(next));
      VisitPage(page);
    }
    StoreOutput();
  }

 private:
  using Vector = typename Lanes::Vector;

  int num_queries() const { return tile_.num_rows * tile_.num_heads; }

  static int Smaller(int64_t a, int64_t b) { return static_cast<int>(a < b ? a : b); }

  /*! \brief Element `head` of `row`, as an offset into the query and output tensors. */
  int64_t Offset(int row, int head) const {
    return row * tile_.row_stride + static_cast<int64_t>(head) * tile_.head_dim;
  }

  static Vector LoadPadded(const Element* source, int count) {
    return count >= Lanes::kWidth ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }

  void LoadQueries() {
    for (int query = 0; query < num_queries(); ++query) {
      const Element* source = static_cast<const Element*>(tile_.queries) +
                              Offset(query / tile_.num_heads, query % tile_.num_heads);
      for (int c = 0; c < width_; c += Lanes::kWidth) {
        Lanes::Store(scratch_.queries + query * width_ + c,
                     LoadPadded(source + c, tile_.head_dim - c));
        Lanes::Store(scratch_.sums + query * width_ + c, Lanes::Set(0.0f));
      }
      scratch_.largest[query] = -__builtin_inff();
      scratch_.total[query] = 0.0f;
    }
  }

  const Element* Page(int64_t page) const { return static_cast<const Element*>(tile_.pages[page]); }

  void VisitPage(int64_t page) {
    // How many of the tile's rows come before the page, and before its last position.
    const int64_t before = page * kTilePageSize - tile_.first_position;
    const int first_row = before > 0 ? static_cast<int>(before) : 0;
    const int64_t partial = before + kTilePageSize - 1;
    const int first_full_row = partial > first_row ? Smaller(partial, tile_.num_rows) : first_row;

    const int heads = tile_.num_heads;
    ForGroups(first_row * heads, num_queries(),
              [this](auto size, int query) { Score<decltype(size)::value>(query); });
    for (int row = first_row; row < tile_.num_rows; ++row) {
      const int visible = Visible(row, page);
      for (int query = row * heads; query < (row + 1) * heads; ++query) Soften(query, visible);
      if (row < first_full_row) Accumulate(row * heads, (row + 1) * heads, visible);
    }
    Accumulate(first_full_row * heads, num_queries(), kTilePageSize);
  }

  /*! \brief How many slots of `page` are at or before the position of `row`. */
  int Visible(int row, int64_t page) const {
    return Smaller(tile_.first_position + row + 1 - page * kTilePageSize, kTilePageSize);
  }

  void LoadPage(const Element* page, const Element* next) {
    const Element* keys = page + tile_.key_offset;
    const Element* values = page + tile_.value_offset;
    for (int c = 0; c < tile_.head_dim; c += Lanes::kWidth) {
      Vector rows[kTilePageSize];
      for (int slot = 0; slot < kTilePageSize; ++slot) {
        const int64_t offset = static_cast<int64_t>(slot) * tile_.head_dim + c;
        __builtin_prefetch(next + tile_.key_offset + offset);
        __builtin_prefetch(next + tile_.value_offset + offset);
        rows[slot] = LoadPadded(keys + offset, tile_.head_dim - c);
        Lanes::Store(scratch_.values + slot * width_ + c,
                     LoadPadded(values + offset, tile_.head_dim - c));
      }
      Lanes::StoreTransposed(rows, scratch_.keys + c * kTilePageSize);
    }
  }

  template <int kSize>
  struct Size {
    static constexpr int value = kSize;
  };

  /*! \brief Cut [begin, end) into register-sized groups: `function(Size<n>, first query)`. */
  template <typename Function>
  static void ForGroups(int begin, int end, Function function) {
    constexpr int kLargest = Lanes::kAccumulators;
    int query = begin;
    for (; query + kLargest <= end; query += kLargest) function(Size<kLargest>(), query);
    if constexpr (kLargest > 4) {
      for (; query + 4 <= end; query += 4) function(Size<4>(), query);
    }
    for (; query + 2 <= end; query += 2) function(Size<2>(), query);
    for (; query < end; ++query) function(Size<1>(), query);
  }

  /*! \brief q . k of `kQueries` queries with the page's 16 keys, summed along head_dim in order. */
  template <int kQueries>
  void Score(int first) {
    const float* queries = scratch_.queries + first * width_;
    Vector dot[kQueries];
    for (int i = 0; i < kQueries; ++i) dot[i] = Lanes::Set(0.0f);
    for (int c = 0; c < tile_.head_dim; ++c) {
      const Vector key = Lanes::Load(scratch_.keys + c * kTilePageSize);
#pragma GCC unroll 8
      for (int i = 0; i < kQueries; ++i) {
        dot[i] = Lanes::Fma(Lanes::Set(queries[i * width_ + c]), key, dot[i]);
      }
    }
    for (int i = 0; i < kQueries; ++i) {
      Lanes::Store(scratch_.probs + (first + i) * kTilePageSize,
                   Lanes::Mul(dot[i], Lanes::Set(tile_.scale)));
    }
  }

  /*! \brief Turn one query's scores into unnormalised probabilities, and rescale its past. */
  void Soften(int query, int visible) {
    float* probs = scratch_.probs + query * kTilePageSize;
    const Vector hidden = Lanes::Set(-__builtin_inff());
    const Vector scores = Lanes::Select(visible, Lanes::Load(probs), hidden);
    const float page_largest = Lanes::Largest(scores);
    const float past = scratch_.largest[query];
    const float largest = past > page_largest ? past : page_largest;
    const Vector p = Exp<Lanes>(Lanes::Sub(scores, Lanes::Set(largest)));
    Lanes::Store(probs, p);

    const float correction =
        past == largest ? 1.0f : Lanes::First(Exp<Lanes>(Lanes::Set(past - largest)));
    scratch_.total[query] = __builtin_fmaf(scratch_.total[query], correction, Lanes::Sum(p));
    scratch_.largest[query] = largest;
    if (correction == 1.0f) return;
    float* sums = scratch_.sums + query * width_;
    for (int c = 0; c < width_; c += Lanes::kWidth) {
      Lanes::Store(sums + c, Lanes::Mul(Lanes::Load(sums + c), Lanes::Set(correction)));
    }
  }

  /*! \brief Add the first `visible` values, weighted, to the sums of queries [begin, end). */
  void Accumulate(int begin, int end, int visible) {
    ForGroups(begin, end, [this, visible](auto size, int query) {
      AddValues<decltype(size)::value>(query, visible);
    });
  }

  template <int kQueries>
  void AddValues(int first, int visible) {
    const float* probs = scratch_.probs + first * kTilePageSize;
    for (int c = 0; c < width_; c += Lanes::kWidth) {
      float* sums = scratch_.sums + first * width_ + c;
      Vector sum[kQueries];
      for (int i = 0; i < kQueries; ++i) sum[i] = Lanes::Load(sums + i * width_);
      for (int slot = 0; slot < visible; ++slot) {
        const Vector value = Lanes::Load(scratch_.values + slot * width_ + c);
#pragma GCC unroll 8
        for (int i = 0; i < kQueries; ++i) {
          sum[i] = Lanes::Fma(Lanes::Set(probs[i * kTilePageSize + slot]), value, sum[i]);
        }
      }
      for (int i = 0; i < kQueries; ++i) Lanes::Store(sums + i * width_, sum[i]);
    }
  }

  void StoreOutput() {
    for (int query = 0; query < num_queries(); ++query) {
      Element* output = static_cast<Element*>(tile_.output) +
                        Offset(query / tile_.num_heads, query % tile_.num_heads);
      const Vector scale = Lanes::Set(1.0f / scratch_.total[query]);
      for (int c = 0; c < tile_.head_dim; c += Lanes::kWidth) {
        const Vector sums = Lanes::Load(scratch_.sums + query * width_ + c);
        Lanes::StoreFirst(output + c, Lanes::Mul(sums, scale),
                          Smaller(tile_.head_dim - c, Lanes::kWidth));
      }
    }
  }

  const AttentionTile& tile_;
  const AttentionScratch& scratch_;
  const int width_;
};

template <typename Lanes, typename Element>
void AttendElements(const AttentionTile& tile, const AttentionScratch& scratch) {
  if (tile.num_rows * tile.num_heads < Lanes::kWidth) {
    TileAttention<Lanes, Element>(tile, scratch).Run();
  } else {
    BlockAttention<Lanes, Element>(tile, scratch).Run();
  }
}

template <typename Lanes>
void AttendTile(const AttentionTile& tile, const AttentionScratch& scratch) {
  if (tile.type == FloatType::kF16) {
    AttendElements<Lanes, uint16_t>(tile, scratch);
  } else {
    AttendElements<Lanes, float>(tile, scratch);
  }
}

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_TILE_H_
