/*!
 * \file kernels/linear/tiers/linear_amx_bf16.h
 * \brief The bf16 kernel on tile registers, as a template over a class of registers.
 *
 * Tile registers multiply bf16 by bf16, but activations are float32. So each activation is split
 * into three bf16 parts whose sum is the activation (`SplitBlock`). Each part is multiplied like a
 * separate row, and the three sums of a row are added at the end, the small sums first. So
 * activations are not rounded, and the outputs are as accurate as those of the AVX-512 kernel. They
 * have other bits, because tile registers add in another order. The sums of a row do not depend on
 * other rows, and each row adds 32 inputs at a time; so the bits of a row depend neither on the
 * batch nor on the number of rows in a register.
 *
 * Special values: weights, parts and sums below 2^-126 count as zero. An infinite weight gives
 * infinity, or NaN if a part of the activation is zero (which is common). An infinite activation
 * gives infinity, or NaN if the weight is zero. NaN gives NaN. An output that is not finite on
 * another tier is not finite here, either.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_BF16_H_
#define AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_BF16_H_

#include <type_traits>

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/base/tile_shapes.h"

namespace aiomlc {

namespace {

// The rows of a tile register, of 64 bytes each: 32 bf16 inputs or 16 float32 sums.
constexpr int kRegisterRows = 16;
// The maximum number of rows whose parts all fit into one register, to be multiplied at once.
constexpr int64_t kSharedRegisterRows = kRegisterRows / kParts;
// The registers: sums of two tiles of weights times three registers of parts, then operands.
constexpr int kFirstSums = 0, kPartRows = 6, kPairs = 7;
// Activations that are loaded from the second-level cache are multiplied by two tiles of weights.
constexpr int kTilesAtOnce = 2;
// The number of groups whose weights (16 KiB) stay in the first-level cache for all panels.
constexpr int kPairedGroups = 8;
constexpr int kPairedRows = 4 * kPanelRows;
// The groups between storing pairs and loading them, so that the stores have reached the cache.
constexpr int kPairsAhead = 3;

/*! \brief 32 inputs of 16 outputs in the layout of a tile register: pairs of inputs per output. */
struct alignas(64) PairedGroup {
  uint16_t pairs[16][2 * kTileRows];  //!< [input / 2][output][input % 2]
};

template <int kValue>
using Index = std::integral_constant<int, kValue>;

/*! \brief Call work(Index<i>()) for i in [kBegin, kEnd): registers are compile-time constants. */
template <int kBegin, int kEnd, typename Work>
inline __attribute__((always_inline)) void ForIndices(Work work) {
  if constexpr (kBegin < kEnd) {
    work(Index<kBegin>());
    ForIndices<kBegin + 1, kEnd>(work);
  }
}

/*! \brief Panels of one height. \tparam kRegisters The registers of the parts of a panel. */
template <int kRegisters>
struct PanelShape {
  int64_t height;

  int64_t register_rows() const { return kParts * height / kRegisters; }

  TileShapes Registers() const {
    TileShapes shapes = {};
    for (int i = kFirstSums; i <= kPartRows; ++i) {
      shapes.row_bytes[i] = 64;
      shapes.rows[i] = static_cast<uint8_t>(register_rows());
    }
    shapes.row_bytes[kPairs] = 64;
    shapes.rows[kPairs] = kRegisterRows;
    return shapes;
  }
};

/*!
 * \brief Interleave pairs of inputs of a group; inputs after the last are zero.
 * \param inputs The number of inputs from this group on.
 * \tparam kWhole Whether the group is complete.
 */
template <bool kWhole>
void Pair(const uint16_t* weights, int64_t inputs, PairedGroup* result) {
  alignas(64) static constexpr uint16_t kOrder[] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                    21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                    11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kOrder);
  for (int64_t i = 0; i < 16; ++i, weights += 2 * kTileRows) {
    const int64_t left = inputs - 2 * i;
    const __mmask32 mask = kWhole || left >= 2 ? 0xffffffff : left == 1 ? 0xffff : 0;
    _mm_prefetch(reinterpret_cast<const char*>(weights) + kPrefetchDistancePerStream, _MM_HINT_T0);
    const __m512i two_inputs = _mm512_maskz_loadu_epi16(mask, weights);
    _mm512_store_si512(result->pairs[i], _mm512_permutexvar_epi16(order, two_inputs));
  }
}

/*! \brief Consecutive groups of inputs, for adjacent weight tiles. */
struct WeightChunk {
  const uint16_t* packed;  //!< The weights of the first tile; null if they are paired already.
  int64_t stride;          //!< The elements from one tile to the next.
  int64_t inputs;          //!< The number of inputs from the first group on.
  int count;               //!< The number of groups.
};

/*!
 * \brief Add the products of a panel and a chunk to `sums`, [kTiles][kParts][height][16].
 *
 * For the first panel, the weights are paired at the same time; the other panels use these pairs.
 */
template <int kRegisters, int kTiles, typename Tiles>
void AddChunk(Tiles& tiles, PanelShape<kRegisters> shape, const WeightChunk& weights,
              PairedGroup (*paired)[kPairedGroups], const uint16_t* parts, float* sums) {
  const int64_t rows = shape.register_rows();
  const int ahead = weights.packed == nullptr ? 0 : kPairsAhead;
  ForIndices<0, kTiles * kRegisters>([&](auto i) __attribute__((always_inline)) {
    tiles.template Load<kFirstSums + i.value>(sums + i.value * rows * kTileRows, 64);
  });
  for (int step = 0; step < weights.count + ahead; ++step) {
    if (ahead > 0 && step < weights.count) {
      const int64_t inputs = weights.inputs - step * kGroupSize;
      const auto pair = inputs < kGroupSize ? Pair<false> : Pair<true>;
      for (int t = 0; t < kTiles; ++t) {
        pair(weights.packed + t * weights.stride + step * kGroupSize * kTileRows, inputs,
             &paired[t][step]);
      }
    }
    if (step < ahead) continue;
    const int group = step - ahead;
    const uint16_t* first = parts + group * kRegisters * rows * kGroupSize;
    ForIndices<0, kTiles>([&](auto t) __attribute__((always_inline)) {
      tiles.template Load<kPairs>(paired[t.value][group].pairs, 64);
      ForIndices<0, kRegisters>([&](auto r) __attribute__((always_inline)) {
        tiles.template Load<kPartRows>(first + r.value * rows * kGroupSize, 64);
        tiles.template AddPairs<kFirstSums + t.value * kRegisters + r.value, kPartRows, kPairs>();
      });
    });
  }
  ForIndices<0, kTiles * kRegisters>([&](auto i) __attribute__((always_inline)) {
    tiles.template Store<kFirstSums + i.value>(sums + i.value * rows * kTileRows, 64);
  });
}

/*! \brief Store the outputs of a panel: the sums of the parts of each row. */
template <int kTiles>
void StorePanel(const LinearBlock& block, int64_t tile, int64_t row, int64_t height,
                const float* sums) {
  const int64_t stride = height * kTileRows;
  for (int64_t t = 0; t < kTiles; ++t, sums += kParts * stride) {
    for (int64_t r = 0; r < height; ++r) {
      const float* high = sums + r * kTileRows;
      const __m512 small =
          _mm512_add_ps(_mm512_loadu_ps(high + stride), _mm512_loadu_ps(high + 2 * stride));
      StoreSums(block, row + r, tile + t, _mm512_add_ps(_mm512_loadu_ps(high), small));
    }
  }
}

/*! \brief Multiply panels of one height, at most `kPairedRows` rows, by `kTiles` tiles. */
template <int kRegisters, int kTiles, typename Tiles>
void MultiplyPanels(const LinearBlock& block, int64_t tile, int64_t row_begin, int64_t row_end,
                    PanelShape<kRegisters> shape) {
  const int64_t groups = GroupsOf(block.num_inputs);
  const int64_t stride = block.num_inputs * kTileRows;
  const uint16_t* packed = static_cast<const uint16_t*>(block.packed) + tile * stride;
  PairedGroup paired[kTiles][kPairedGroups];
  alignas(64) float sums[kTiles * kParts * kPairedRows * kTileRows];
  const int64_t row_sums = kTiles * kParts * kTileRows;
  __builtin_memset(sums, 0, (row_end - row_begin) * row_sums * sizeof(float));
  Tiles tiles(shape.Registers());
  for (int64_t begin = 0; begin < groups; begin += kPairedGroups) {
    const int64_t left = groups - begin;
    WeightChunk weights = {packed + begin * kGroupSize * kTileRows, stride,
                           block.num_inputs - begin * kGroupSize,
                           static_cast<int>(left < kPairedGroups ? left : kPairedGroups)};
    for (int64_t row = row_begin; row < row_end; row += shape.height) {
      const uint16_t* parts =
          block.parts + (row * groups + begin * shape.height) * kParts * kGroupSize;
      AddChunk<kRegisters, kTiles>(tiles, shape, weights, paired, parts,
                                   sums + (row - row_begin) * row_sums);
      weights.packed = nullptr;
    }
  }
  for (int64_t row = row_begin; row < row_end; row += shape.height) {
    StorePanel<kTiles>(block, tile, row, shape.height, sums + (row - row_begin) * row_sums);
  }
}

/*! \brief Multiply all rows of the block by `kTiles` tiles of weights. */
template <int kTiles, typename Tiles>
void MultiplyRows(const LinearBlock& block, int64_t tile) {
  for (int64_t row = block.row_begin; row < block.row_end;) {
    int64_t count = block.row_end - row;
    if (count <= kSharedRegisterRows) {
      MultiplyPanels<1, kTiles, Tiles>(block, tile, row, row + count, {count});
    } else if (count < kPanelRows) {
      MultiplyPanels<kParts, kTiles, Tiles>(block, tile, row, row + count, {count});
    } else {
      count = count < kPairedRows ? count - count % kPanelRows : kPairedRows;
      MultiplyPanels<kParts, kTiles, Tiles>(block, tile, row, row + count, {kPanelRows});
    }
    row += count;
  }
}

/*!
 * \brief The bf16 kernel.
 * \tparam Tiles The registers; constructed from `TileShapes`, and released by its destructor.
 */
template <typename Tiles>
void BF16OnTiles(const LinearBlock& block) {
  int64_t tile = block.tile_begin;
  for (; tile + kTilesAtOnce <= block.tile_end; tile += kTilesAtOnce) {
    MultiplyRows<kTilesAtOnce, Tiles>(block, tile);
  }
  for (; tile < block.tile_end; ++tile) MultiplyRows<1, Tiles>(block, tile);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_BF16_H_
