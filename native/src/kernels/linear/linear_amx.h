/*!
 * \file kernels/linear/linear_amx.h
 * \brief The q4 kernel on tile registers, as a template over a class of registers.
 *
 * The dot products of each group are exact integers, and the following operations are those of the
 * AVX-512 kernel, so the bits are the same. The library uses the AMX registers; the tests use a
 * class with plain loops, so that this code also runs on processors without AMX.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_AMX_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_AMX_H_

#include <cstddef>

#include "kernels/linear/linear_avx512.h"
#include "kernels/linear/tile_shapes.h"

namespace aiomlc {

namespace {

// The registers of even and odd groups: the sums of a group are stored while the next are computed.
constexpr int kDots[] = {0, 1};         // 16 rows of 16 sums.
constexpr int kActivations[] = {2, 3};  // 16 rows of 32 inputs.
constexpr int kWeights[] = {4, 5};      // 8 rows of 16 outputs by 4 inputs.
constexpr TileShapes kShapes = {.row_bytes = {64, 64, 32, 32, 64, 64},
                                .rows = {16, 16, 16, 16, 8, 8}};

// A panel with fewer rows is faster with the AVX-512 kernel.
constexpr int64_t kMinPanelRows = 8;
static_assert(2 * kMinPanelRows >= kPanelRows,
              "loading 16 rows must not read beyond the next group");
// The number of groups whose unpacked weights (18 KiB) stay in the first-level cache for all rows.
constexpr int kChunkGroups = 32;
constexpr int kBlockRows = 8 * kPanelRows;
// The steps between computing the dot products of a group and adding them to the sums, so that the
// stores of the tile register have reached the cache.
constexpr int kLag = 3;
constexpr int kSlots = kLag + 1;

/*! \brief The weights of a group of a tile, minus the zero point. */
struct alignas(64) UnpackedGroup {
  int8_t quads[8][64];  //!< [input / 4][output][input % 4], in [-7, 8].
  float scales[kTileRows];
};

/*! \brief Unpack `count` groups of a tile. */
inline void Unpack(const uint8_t* weights, int count, UnpackedGroup* result) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  const __m512i seven = _mm512_set1_epi8(7);
  for (int g = 0; g < count; ++g, weights += kGroupBytes, ++result) {
    for (int i = 0; i < 4; ++i) {
      const __m512i bytes = _mm512_loadu_si512(weights + 64 * i);
      const __m512i low = _mm512_and_si512(bytes, low_nibbles);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_nibbles);
      _mm512_store_si512(result->quads[i], _mm512_sub_epi8(low, seven));
      _mm512_store_si512(result->quads[4 + i], _mm512_sub_epi8(high, seven));
    }
    const void* scales = weights + kGroupNibbleBytes;
    _mm512_store_ps(result->scales,
                    _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(scales))));
  }
}

/*! \brief Groups of a panel of activations, and the same groups of a tile of weights. */
struct PanelGroups {
  const UnpackedGroup* weights;
  const ActivationGroup* x;  //!< 16 rows of each group are read.
  int64_t stride;            //!< The distance between groups of x.
  int count;                 //!< The number of groups.
  const uint8_t* prefetch;   //!< Memory to prefetch, kGroupBytes per group; may be null.
};

/*! \brief Compute the dot products of a group. \tparam kTurn Selects one of two register sets. */
template <int kTurn, typename Tiles>
inline __attribute__((always_inline)) void MultiplyGroup(Tiles& tiles, const PanelGroups& panel,
                                                         int group) {
  tiles.template Zero<kDots[kTurn]>();
  tiles.template Load<kActivations[kTurn]>(panel.x + group * panel.stride, sizeof(ActivationGroup));
  tiles.template Load<kWeights[kTurn]>(panel.weights[group].quads, 64);
  tiles.template AddDots<kDots[kTurn], kActivations[kTurn], kWeights[kTurn]>();
}

/*! \brief Add the scaled dot products of all groups to `sums`, [16][16]. */
template <typename Tiles>
void AddGroups(Tiles& tiles, const PanelGroups& panel, float* sums) {
  static_assert(offsetof(ActivationGroup, values) == 0);
  alignas(64) int32_t dots[kSlots][kPanelRows][kTileRows];
  __m512 rows[kPanelRows];
#pragma GCC unroll 16
  for (int r = 0; r < kPanelRows; ++r) rows[r] = _mm512_load_ps(sums + r * kTileRows);
  for (int step = 0; step < panel.count + kLag; ++step) {
    if (step < panel.count) {
      if (step % 2 == 0) {
        MultiplyGroup<0>(tiles, panel, step);
      } else {
        MultiplyGroup<1>(tiles, panel, step);
      }
      if (panel.prefetch != nullptr) {
        const uint8_t* prefetch = panel.prefetch + step * kGroupBytes;
        for (int line = 0; line < 5; ++line) _mm_prefetch(prefetch + 64 * line, _MM_HINT_T0);
      }
    }
    if (step >= kLag) {
      const int group = step - kLag;
      const ActivationGroup* x = panel.x + group * panel.stride;
      const __m512 scales = _mm512_load_ps(panel.weights[group].scales);
#pragma GCC unroll 16
      for (int r = 0; r < kPanelRows; ++r) {
        const __m512i dot = _mm512_load_si512(dots[group % kSlots][r]);
        rows[r] = AddScaledDot(dot, scales, x[r], rows[r]);
      }
    }
    if (step > 0 && step <= panel.count) {
      if (step % 2 == 0) {
        tiles.template Store<kDots[1]>(dots[(step - 1) % kSlots], 64);
      } else {
        tiles.template Store<kDots[0]>(dots[(step - 1) % kSlots], 64);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kPanelRows; ++r) _mm512_store_ps(sums + r * kTileRows, rows[r]);
}

/*!
 * \brief Add the products of groups [begin, begin + count) for the panel at `row`.
 *
 * The panel has 8 to 16 rows, but 16 rows are always read. The excess rows come from the next
 * group, and their sums are not used. The last group is copied, because no group follows it.
 */
template <typename Tiles>
void AddPanel(Tiles& tiles, const LinearBlock& block, int64_t row, int64_t begin, PanelGroups panel,
              float* sums) {
  const int64_t groups = GroupsOf(block.num_inputs);
  const int64_t left = block.row_end - row;
  const int64_t height = left < kPanelRows ? left : kPanelRows;
  panel.x = block.activations + row * groups + begin * height;
  panel.stride = height;
  if (height == kPanelRows || begin + panel.count < groups) {
    AddGroups(tiles, panel, sums);
    return;
  }
  const int last = panel.count - 1;
  ActivationGroup copy[kPanelRows] = {};
  __builtin_memcpy(copy, panel.x + last * height, height * sizeof(ActivationGroup));
  PanelGroups last_group = panel;
  last_group.weights += last;
  last_group.x = copy;
  last_group.count = 1;
  panel.count = last;
  AddGroups(tiles, panel, sums);
  AddGroups(tiles, last_group, sums);
}

/*! \brief Multiply at most `kBlockRows` rows of the block by one tile of weights. */
template <typename Tiles>
void MultiplyTile(Tiles& tiles, const LinearBlock& block, int64_t tile, int64_t row_begin,
                  int64_t row_end) {
  const int64_t groups = GroupsOf(block.num_inputs);
  const uint8_t* weights = static_cast<const uint8_t*>(block.packed) + tile * groups * kGroupBytes;
  UnpackedGroup unpacked[kChunkGroups];
  alignas(64) float sums[kBlockRows][kTileRows] = {};
  for (int64_t begin = 0; begin < groups; begin += kChunkGroups) {
    const int count = groups - begin < kChunkGroups ? groups - begin : kChunkGroups;
    const uint8_t* chunk = weights + begin * kGroupBytes;
    Unpack(chunk, count, unpacked);
    PanelGroups panel = {unpacked, nullptr, 0, count, chunk + count * kGroupBytes};
    for (int64_t row = row_begin; row < row_end; row += kPanelRows) {
      AddPanel(tiles, block, row, begin, panel, sums[row - row_begin]);
      panel.prefetch = nullptr;
    }
  }
  for (int64_t row = row_begin; row < row_end; ++row) {
    StoreSums(block, row, tile, _mm512_load_ps(sums[row - row_begin]));
  }
}

/*! \brief The rows of a block for the tile registers, and the rest. */
struct RowDivision {
  LinearBlock on_tiles, on_avx512;
};

/*! \return The division in which the tile registers have whole panels, or at least 8 rows. */
inline RowDivision DivideRows(const LinearBlock& block) {
  const int64_t last_rows = (block.row_end - block.row_begin) % kPanelRows;
  RowDivision division = {block, block};
  if (block.row_end - block.row_begin < kPanelRows) {
    division.on_tiles.row_end = block.row_begin;
  } else if (last_rows < kMinPanelRows) {
    division.on_tiles.row_end -= last_rows;
  }
  division.on_avx512.row_begin = division.on_tiles.row_end;
  return division;
}

/*!
 * \brief The q4 kernel.
 * \tparam Tiles The registers; constructed from `TileShapes`, and released by its destructor.
 */
template <typename Tiles>
void Q4OnTiles(const LinearBlock& block) {
  const auto [on_tiles, on_avx512] = DivideRows(block);
  if (on_tiles.row_begin < on_tiles.row_end) {
    Tiles tiles(kShapes);
    for (int64_t row = on_tiles.row_begin; row < on_tiles.row_end; row += kBlockRows) {
      const int64_t end = row + kBlockRows < on_tiles.row_end ? row + kBlockRows : on_tiles.row_end;
      for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
        MultiplyTile(tiles, on_tiles, tile, row, end);
      }
    }
  }
  if (on_avx512.row_begin < on_avx512.row_end) kLinearAvx512.q4(on_avx512);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_AMX_H_
