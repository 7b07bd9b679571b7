/*!
 * \file kernels/linear/base/linear_lanes.h
 * \brief The kernels of linear layers, as templates over the `Lanes` classes.
 *
 * A vector has 16 lanes on every tier: the outputs of one tile. Each tier defines only the integer
 * dot product with q4 weights, as a class `Dot` with
 *
 *   using Lanes = ...;
 *   static constexpr int kMaxRows;  // The maximum number of rows of activations at a time.
 *   // Call emit(r, dot) for every row: the 16 dot products of a group, including the offset.
 *   template <int kRows, typename Emit>
 *   static void ForDots(const uint8_t* weights, const ActivationGroup* x, Emit emit);
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_LINEAR_LANES_H_
#define AIOMLC_KERNELS_LINEAR_BASE_LINEAR_LANES_H_

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/panel.h"

namespace aiomlc {

namespace {

// The distance of prefetches in bytes, for one stream of weights and for several streams.
constexpr int kPrefetchDistance = 4096;
constexpr int kPrefetchDistancePerStream = 1536;

// ---- Rows of activations and of outputs ----

template <typename Lanes, typename Element>
[[gnu::always_inline]] inline typename Lanes::Vector LoadUpTo16(const Element* from,
                                                                int64_t count) {
  if (count >= Lanes::kWidth) return Lanes::Load(from);
  return Lanes::LoadFirst(from, static_cast<int>(count));
}

template <typename Lanes, typename Element>
[[gnu::always_inline]] inline void StoreUpTo16(Element* to, typename Lanes::Vector values,
                                               int64_t count) {
  if (count >= Lanes::kWidth) return Lanes::Store(to, values);
  Lanes::StoreFirst(to, values, static_cast<int>(count));
}

/*! \return The first `count` (at most 16) activations from element `at` on, then zeros. */
template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector LoadActivations(const void* x, FloatType type,
                                                                     int64_t at, int64_t count) {
  if (count <= 0) return Lanes::Set(0.0f);
  if (type == FloatType::kF32) {
    return LoadUpTo16<Lanes>(static_cast<const float*>(x) + at, count);
  }
  return LoadUpTo16<Lanes>(static_cast<const uint16_t*>(x) + at, count);
}

/*! \brief Add the bias to the outputs of one tile, and store the outputs that are not padding. */
template <typename Lanes>
[[gnu::always_inline]] inline void StoreOutputs(const LinearBlock& block, int64_t row, int64_t tile,
                                                typename Lanes::Vector sums) {
  const int64_t first = tile * kTileRows;
  const int64_t count = block.num_outputs - first;
  if (block.bias != nullptr) {
    sums = Lanes::Add(sums, LoadUpTo16<Lanes>(block.bias + first, count));
  }
  const int64_t at = row * block.out_stride + first;
  if (block.out_type == FloatType::kF32) {
    StoreUpTo16<Lanes>(static_cast<float*>(block.out) + at, sums, count);
  } else {
    StoreUpTo16<Lanes>(static_cast<uint16_t*>(block.out) + at, sums, count);
  }
}

// ---- Quantizing activations ----

template <typename Lanes>
[[gnu::always_inline]] inline void StoreValues(typename Lanes::Integers low,
                                               typename Lanes::Integers high,
                                               ActivationGroup* group) {
  Lanes::StoreBytes(group->values, low);
  Lanes::StoreBytes(group->values + Lanes::kWidth, high);
  group->offset = -kZeroPoint * Lanes::SumIntegers(low, high);
}

template <typename Lanes>
[[gnu::always_inline]] inline void StoreValues(typename Lanes::Integers low,
                                               typename Lanes::Integers high, BiasedGroup* group) {
  const typename Lanes::Integers zero = Lanes::SetIntegers(0);
  const int32_t sums[] = {Lanes::SumIntegers(low, zero), Lanes::SumIntegers(high, zero)};
  int8_t values[kGroupSize];
  Lanes::StoreBytes(values, low);
  Lanes::StoreBytes(values + Lanes::kWidth, high);
  for (int k = 0; k < kGroupSize; ++k) {
    group->bytes[k] = static_cast<uint8_t>(values[k] + kByteBias);
  }
  group->value_sum = static_cast<float>(sums[0] + sums[1]);
  group->sum = group->scale * group->value_sum;
  for (int half = 0; half < 2; ++half) {
    group->half_sums[half] = group->scale * static_cast<float>(sums[half]);
  }
}

template <typename Lanes>
[[gnu::always_inline]] inline void StoreValues(typename Lanes::Integers low,
                                               typename Lanes::Integers high, SignedGroup* group) {
  Lanes::StoreBytes(group->values, low);
  Lanes::StoreBytes(group->values + Lanes::kWidth, high);
  group->value_sum = static_cast<float>(Lanes::SumIntegers(low, high));
  group->sum = group->scale * group->value_sum;
}

/*!
 * \brief Divides activations by their scale, and rounds the quotients to integers.
 *
 * Divisions take several times as long as what else is done to an activation. A product with the
 * reciprocal, corrected by its remainder, is the rounded quotient, or so near to it that the
 * integers are the same.
 */
template <typename Lanes>
class ScaleDivisor {
 public:
  /*! \param scale At least 0; if it is 0 or not finite, nothing may be divided. */
  [[gnu::always_inline]] explicit ScaleDivisor(float scale)
      : has_reciprocal_(scale >= kMinScale),
        scale_(Lanes::Set(scale)),
        negative_(Lanes::Set(-scale)),
        reciprocal_(Lanes::Set(has_reciprocal_ ? 1.0f / scale : 0.0f)) {}

  [[gnu::always_inline]] typename Lanes::Integers Divide(typename Lanes::Vector x) const {
    if (!has_reciprocal_) return Lanes::RoundToBytes(Lanes::Div(x, scale_));
    const typename Lanes::Vector quotient = Lanes::Mul(x, reciprocal_);
    const typename Lanes::Vector remainder = Lanes::Fma(negative_, quotient, x);
    return Lanes::RoundToBytes(Lanes::Fma(remainder, reciprocal_, quotient));
  }

 private:
  // With smaller scales, the reciprocal may overflow, and the remainder may lose bits.
  static constexpr float kMinScale = 0x1p-100f;

  bool has_reciprocal_;
  typename Lanes::Vector scale_, negative_, reciprocal_;
};

/*! \tparam Group ActivationGroup, BiasedGroup, SignedGroup or BF16Group. */
template <typename Lanes, typename Group>
[[gnu::always_inline]] inline void QuantizeGroup(typename Lanes::Vector low,
                                                 typename Lanes::Vector high, Group* group) {
  if constexpr (std::is_same_v<Group, BF16Group>) {
    Lanes::StoreBFloat16(group->values, Lanes::RoundToBFloat16(low));
    Lanes::StoreBFloat16(group->values + Lanes::kWidth, Lanes::RoundToBFloat16(high));
  } else {
    using Integers = typename Lanes::Integers;
    constexpr uint32_t kInfinity = 0x7f800000u;
    // A comparison of bits, in which NaN is larger than infinity.
    const uint32_t largest = Lanes::LargestMagnitude(low, high);
    float largest_value;
    __builtin_memcpy(&largest_value, &largest, sizeof(largest));
    group->scale = largest_value / 127.0f;
    Integers low_values = Lanes::SetIntegers(0);
    Integers high_values = Lanes::SetIntegers(0);
    if (group->scale != 0 && largest < kInfinity) {
      const ScaleDivisor<Lanes> scale(group->scale);
      low_values = scale.Divide(low);
      high_values = scale.Divide(high);
    }
    StoreValues<Lanes>(low_values, high_values, group);
  }
}

template <typename Lanes, typename Group>
void QuantizeRows(const QuantizeBlock& block) {
  static_assert(kGroupSize == 2 * Lanes::kWidth);
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const PanelCursor at = PanelOf(row, block.rows);
    Group* result = static_cast<Group*>(block.result) + at.panel * block.groups + at.row;
    for (int64_t g = 0; g < block.groups; ++g, result += at.height) {
      const int64_t first = row * block.cols + g * kGroupSize;
      const int64_t count = block.cols - g * kGroupSize;
      QuantizeGroup<Lanes>(LoadActivations<Lanes>(block.x, block.x_type, first, count),
                           LoadActivations<Lanes>(block.x, block.x_type, first + 16, count - 16),
                           result);
    }
  }
}

// ---- Panels of floats ----

template <typename Lanes>
void WritePanel(const PanelBlock& block) {
  using Vector = typename Lanes::Vector;
  static_assert(Lanes::kWidth == kPanelRows);
  constexpr int64_t kWidth = Lanes::kWidth;
  for (int64_t k = 0; k < block.count; k += kWidth) {
    const int64_t count = block.count - k < kWidth ? block.count - k : kWidth;
    float* panel = block.panel + k * block.height;
    Vector rows[kWidth];
#pragma GCC unroll 16
    for (int64_t r = 0; r < kWidth; ++r) {
      const int64_t row = r < block.height ? r : 0;
      rows[r] = LoadActivations<Lanes>(block.x, block.x_type, row * block.stride + k, count);
    }
    if (block.height == kPanelRows && count == kWidth) {
      Lanes::StoreTransposed(rows, panel);
      continue;
    }
    float columns[kWidth][kPanelRows];
    Lanes::StoreTransposed(rows, columns[0]);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t r = 0; r < block.height; ++r) panel[i * block.height + r] = columns[i][r];
    }
  }
}

// ---- Division of a block into chunks ----

/*! \brief A function that computes a fixed number of tiles for a fixed number of rows. */
using Chunk = void (*)(const LinearBlock&, int64_t tile, int64_t row);

/*! \brief The chunk functions of a kernel: `chunks[r]` computes r rows. */
template <int kMaxRows>
struct Chunks {
  Chunk chunks[kMaxRows + 1];
};

/*! \return `Kernel::template Run<kRows>` for 1 to kMaxRows rows. */
template <typename Kernel, int... kRow>
constexpr Chunks<sizeof...(kRow)> ChunksOf(std::integer_sequence<int, kRow...>) {
  return {{nullptr, Kernel::template Run<kRow + 1>...}};
}

/*!
 * \brief Compute tiles [tile, tile_end), `tiles` at a time, for all rows of a block, up to kMaxRows
 * at a time.
 */
template <typename Kernel, int kMaxRows>
inline void ForChunks(const LinearBlock& block, int64_t tile, int64_t tile_end, int tiles) {
  static constexpr Chunks<kMaxRows> kTable =
      ChunksOf<Kernel>(std::make_integer_sequence<int, kMaxRows>());
  for (; tile < tile_end; tile += tiles) {
    for (int64_t row = block.row_begin; row < block.row_end; row += kMaxRows) {
      const int64_t left = block.row_end - row;
      kTable.chunks[left < kMaxRows ? left : kMaxRows](block, tile, row);
    }
  }
}

// ---- 4-bit weights ----

/*! \return fma(dot, weight_scales * x_scale, sums): the order of operations on every tier. */
template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector AddScaled(typename Lanes::Integers dot,
                                                               typename Lanes::Vector weight_scales,
                                                               float x_scale,
                                                               typename Lanes::Vector sums) {
  const typename Lanes::Vector scale = Lanes::Mul(weight_scales, Lanes::Set(x_scale));
  return Lanes::Fma(Lanes::ToFloat(dot), scale, sums);
}

template <int kDistance>
[[gnu::always_inline]] inline void PrefetchGroup(const uint8_t* weights) {
#pragma GCC unroll 5
  for (int line = 0; line < 5; ++line) __builtin_prefetch(weights + kDistance + 64 * line);
}

template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector LoadScales(const uint8_t* weights) {
  return Lanes::Load(reinterpret_cast<const uint16_t*>(weights + kGroupNibbleBytes));
}

/*!
 * \brief Multiplies `kRows` rows of activations by one tile of q4 weights.
 *
 * AMD's processors read one tile at a time fastest, which is one stream of weights.
 */
template <typename Dot>
struct Q4Kernel {
  template <int kRows>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row) {
    using Lanes = typename Dot::Lanes;
    const PanelCursor at = PanelOf(row, block.row_end);
    // A compile-time constant if a chunk is always a whole panel.
    const int64_t height = Dot::kMaxRows == kPanelRows ? kRows : at.height;
    const int64_t groups = GroupsOf(block.num_inputs);
    const uint8_t* weights =
        static_cast<const uint8_t*>(block.packed) + tile * groups * kGroupBytes;
    const ActivationGroup* x = block.activations + at.panel * groups + at.row;

    typename Lanes::Vector sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = Lanes::Set(0.0f);
    for (int64_t g = 0; g < groups; ++g, weights += kGroupBytes, x += height) {
      PrefetchGroup<kPrefetchDistance>(weights);
      Dot::template ForDots<kRows>(
          weights, x, [&](int r, typename Lanes::Integers dot) __attribute__((always_inline)) {
            sums[r] = AddScaled<Lanes>(dot, LoadScales<Lanes>(weights), x[r].scale, sums[r]);
          });
    }
    for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile, sums[r]);
  }
};

/*! \brief Multiplies `kRows` rows by `kTiles` adjacent tiles: as many streams of weights. */
template <typename Dot, int kTiles>
struct Q4StreamsKernel {
  template <int kRows>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row) {
    using Lanes = typename Dot::Lanes;
    const PanelCursor at = PanelOf(row, block.row_end);
    const int64_t groups = GroupsOf(block.num_inputs);
    const int64_t tile_bytes = groups * kGroupBytes;
    const uint8_t* weights = static_cast<const uint8_t*>(block.packed) + tile * tile_bytes;
    const ActivationGroup* x = block.activations + at.panel * groups + at.row;

    typename Lanes::Vector sums[kTiles][kRows];
    for (auto& of_tile : sums) {
      for (auto& sum : of_tile) sum = Lanes::Set(0.0f);
    }
    for (int64_t g = 0; g < groups; ++g, weights += kGroupBytes, x += at.height) {
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const uint8_t* group = weights + t * tile_bytes;
        PrefetchGroup<kPrefetchDistancePerStream>(group);
        Dot::template ForDots<kRows>(
            group, x, [&](int r, typename Lanes::Integers dot) __attribute__((always_inline)) {
              sums[t][r] = AddScaled<Lanes>(dot, LoadScales<Lanes>(group), x[r].scale, sums[t][r]);
            });
      }
    }
    for (int t = 0; t < kTiles; ++t) {
      for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile + t, sums[t][r]);
    }
  }
};

/*!
 * \brief Multiply at most kMaxRows rows by several tiles at a time.
 * \return The rest of the block.
 */
template <typename Dot, int kMaxRows>
LinearBlock Q4Streams(const LinearBlock& block) {
  constexpr int kTiles = 4;
  LinearBlock rest = block;
  if (block.row_end - block.row_begin <= kMaxRows) {
    rest.tile_begin = block.tile_end - (block.tile_end - block.tile_begin) % kTiles;
    ForChunks<Q4StreamsKernel<Dot, kTiles>, kMaxRows>(block, block.tile_begin, rest.tile_begin,
                                                      kTiles);
  }
  return rest;
}

template <typename Dot>
void Q4(const LinearBlock& block) {
  ForChunks<Q4Kernel<Dot>, Dot::kMaxRows>(block, block.tile_begin, block.tile_end, 1);
}

// ---- Float weights ----

/*! \brief A weight of 16 bits. */
struct Half {
  uint16_t bits;
};

template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector LoadWeights(const float* weights) {
  return Lanes::Load(weights);
}

template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector LoadWeights(const Half* weights) {
  return Lanes::Load(&weights->bits);
}

/*! \brief Multiplies `kRows` rows of activations by `kTiles` adjacent tiles of float weights. */
template <typename Lanes, typename Element, int kTiles>
struct DenseKernel {
  template <int kRows>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row) {
    using Vector = typename Lanes::Vector;
    const int64_t cols = block.num_inputs;
    const int64_t tile_stride = cols * kTileRows;
    const Element* weights = static_cast<const Element*>(block.packed) + tile * tile_stride;
    const PanelCursor at = PanelOf(row, block.row_end);
    const float* x = block.x + at.panel * cols + at.row;

    // Unrolled, so that the sums stay in registers.
    Vector sums[kRows][kTiles];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) sums[r][t] = Lanes::Set(0.0f);
    }
    for (int64_t k = 0; k < cols; ++k, weights += kTileRows, x += at.height) {
      AddProducts(weights, tile_stride, x, sums);
    }
    const LinearBlock target = block;  // A copy, which no store of outputs can change.
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) StoreOutputs<Lanes>(target, row + r, tile + t, sums[r][t]);
    }
  }

 private:
  [[gnu::always_inline]] static typename Lanes::Vector Fetch(const Element* weights) {
    __builtin_prefetch(reinterpret_cast<const char*>(weights) + kPrefetchDistancePerStream);
    return LoadWeights<Lanes>(weights);
  }

  /*! \brief Add the products with one input to the sums. */
  template <int kRows>
  [[gnu::always_inline]] static void AddProducts(const Element* weights, int64_t tile_stride,
                                                 const float* x,
                                                 typename Lanes::Vector (&sums)[kRows][kTiles]) {
    using Vector = typename Lanes::Vector;
    if constexpr (Lanes::kRegisters == 1) {
      Vector w[kTiles];
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) w[t] = Fetch(weights + t * tile_stride);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vector activation = Lanes::Set(x[r]);
#pragma GCC unroll 4
        for (int t = 0; t < kTiles; ++t) sums[r][t] = Lanes::Fma(w[t], activation, sums[r][t]);
      }
    } else {
      // The weights of all tiles and the sums would not fit into registers together.
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const Vector w = Fetch(weights + t * tile_stride);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          sums[r][t] = Lanes::Fma(w, Lanes::Set(x[r]), sums[r][t]);
        }
      }
    }
  }
};

/*! \brief The register blocks of float weights: the rows and the tiles at a time. */
template <typename Lanes>
struct DenseShape {
  static constexpr int kMaxRows = Lanes::kRegisters == 1 ? 8 : 4;
  static constexpr int kTiles = Lanes::kRegisters == 1 ? 3 : 1;
  static constexpr int kTilesOfOneRow = 4;  // One row needs more tiles for enough independent sums.
};

template <typename Lanes, typename Element>
void Dense(const LinearBlock& block) {
  using Shape = DenseShape<Lanes>;
  int64_t tile = block.tile_begin;
  if (block.row_end - block.row_begin == 1) {
    constexpr int kTiles = Shape::kTilesOfOneRow;
    const int64_t end = block.tile_end - (block.tile_end - tile) % kTiles;
    ForChunks<DenseKernel<Lanes, Element, kTiles>, 1>(block, tile, end, kTiles);
    tile = end;
  }
  if constexpr (Shape::kTiles > 1) {
    const int64_t end = block.tile_end - (block.tile_end - tile) % Shape::kTiles;
    ForChunks<DenseKernel<Lanes, Element, Shape::kTiles>, Shape::kMaxRows>(block, tile, end,
                                                                           Shape::kTiles);
    tile = end;
  }
  ForChunks<DenseKernel<Lanes, Element, 1>, Shape::kMaxRows>(block, tile, block.tile_end, 1);
}

/*!
 * \return The kernels of a tier.
 * \tparam Dot The dot product with q4 weights.
 * \param bf16 The kernel of bf16 weights.
 * \param grouped The kernel of grouped formats.
 */
template <typename Dot>
constexpr LinearKernels KernelsOf(void (*bf16)(const LinearBlock&),
                                  void (*grouped)(const LinearBlock&)) noexcept {
  using Lanes = typename Dot::Lanes;
  return {QuantizeRows<Lanes, ActivationGroup>,
          QuantizeRows<Lanes, BiasedGroup>,
          QuantizeRows<Lanes, BF16Group>,
          WritePanel<Lanes>,
          Q4<Dot>,
          bf16,
          Dense<Lanes, Half>,
          Dense<Lanes, float>,
          grouped};
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_LINEAR_LANES_H_
