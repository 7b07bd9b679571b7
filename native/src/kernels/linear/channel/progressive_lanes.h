/*!
 * \file kernels/linear/channel/progressive_lanes.h
 * \brief The rotation of inputs and the unpacking of weights, for 4-bit matrices with progressive
 * scales.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_PROGRESSIVE_LANES_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_PROGRESSIVE_LANES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/base/linear_lanes.h"
#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/channel/channel_step.h"
#include "kernels/linear/format/progressive_tile.h"
#include "kernels/simd/hadamard.h"
#include "kernels/simd/registers.h"

namespace aiomlc {

namespace {

// ---- The rotation of inputs ----

/*! \brief Multiply every 32 inputs by the Hadamard matrix. */
template <typename Lanes>
void RotateRow(const void* x, FloatType x_type, int64_t first, int64_t cols, float* out) {
  static_assert(kGroupSize == kHadamardGroup);
  for (int64_t k = 0; k < cols; k += kGroupSize, out += kGroupSize) {
    Lanes::Store(out, LoadActivations<Lanes>(x, x_type, first + k, cols - k));
    Lanes::Store(out + Lanes::kWidth, LoadActivations<Lanes>(x, x_type, first + k + Lanes::kWidth,
                                                             cols - k - Lanes::kWidth));
    RotateGroup<64 / Lanes::kRegisters>(out);
  }
}

// ---- The unpacking of weights ----

/*!
 * \brief Unpack a register of each quad of 32 inputs.
 * \param at The first of the register's bytes in a quad: four inputs per output.
 */
template <int kBytes>
[[gnu::always_inline]] inline void UnpackHalf(const ProgressiveGroup& group, int half, int at,
                                              uint8_t* quads) {
  using Numbers = typename Registers<kBytes>::Numbers;
  using Halves = typename Registers<kBytes>::Halves;
  using Bytes = typename Registers<kBytes>::Bytes;
  static_assert(sizeof(group.numbers[0]) == sizeof(uint32_t));
  const auto numbers = LoadVector<Numbers>(group.numbers[at / 4]) >> (16 * half);
  const auto scale = numbers & 0xffu;
  const auto offset = (numbers & 0xff00u) | (numbers >> 8 & 0xffu);
  const auto scales = reinterpret_cast<Halves>(scale | scale << 16);
  const auto offsets = reinterpret_cast<Bytes>(offset | offset << 16);
  constexpr uint32_t kLowBits = 0x0f0f0f0fu;
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto plane = LoadVector<Numbers>(group.codes[half][j] + at);
    const Numbers codes[] = {plane & kLowBits, (plane >> 4) & kLowBits};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      // A product of two bytes at a time: none exceeds a byte.
      const Halves products = reinterpret_cast<Halves>(codes[i]) * scales;
      const Bytes weights = reinterpret_cast<Bytes>(products) + offsets;
      __builtin_memcpy(quads + (4 * i + j) * kChannelQuadBytes + at, &weights, sizeof(weights));
    }
  }
}

/*!
 * \brief Unpack adjacent groups of a tile to groups of channel_tile.h.
 * \tparam kDistance Of prefetches, in bytes.
 */
template <typename Lanes, int kDistance>
[[gnu::always_inline]] inline void UnpackGroups(const ProgressiveGroup* groups, int64_t count,
                                                uint8_t* unpacked) {
  constexpr int kBytes = kChannelQuadBytes / Lanes::kRegisters;
  for (int64_t g = 0; g < count; ++g, unpacked += kChannelGroupBytes) {
    for (int line = 0; line < static_cast<int>(sizeof(ProgressiveGroup)); line += 64) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(groups + g) + kDistance + line);
    }
    for (int half = 0; half < 2; ++half) {
      for (int at = 0; at < kChannelQuadBytes; at += kBytes) {
        UnpackHalf<kBytes>(groups[g], half, at, unpacked + half * (kChannelGroupBytes / 2));
      }
    }
  }
}

/*! \brief A matrix that `ChannelKernel` unpacks chunk by chunk. */
struct ProgressiveMatrix {
  static const uint8_t* TileAt(const LinearBlock& block, int64_t tile) {
    return static_cast<const uint8_t*>(block.packed) +
           tile * ProgressiveTileBytes(block.num_inputs);
  }

  /*! \brief The chunks of some adjacent tiles. */
  template <typename Lanes, int kTiles, int64_t kChunk>
  class Chunks {
   public:
    Chunks(const LinearBlock& block, int64_t tile)
        : first_(TileAt(block, tile)), tile_bytes_(ProgressiveTileBytes(block.num_inputs)) {}

    /*! \brief Set the weights of a step: those of `step.groups` groups from `begin` on. */
    void Set(int64_t begin, ChannelStep& step) {
      for (int t = 0; t < kTiles; ++t) {
        const uint8_t* tile = first_ + t * tile_bytes_ + sizeof(ChannelTile);
        const auto* groups = reinterpret_cast<const ProgressiveGroup*>(tile) + begin;
        UnpackGroups<Lanes, kPrefetchDistancePerStream>(groups, step.groups, unpacked_[t]);
      }
      step.weights = reinterpret_cast<const int8_t*>(unpacked_[0]);
      step.tile_bytes = sizeof(unpacked_[0]);
    }

   private:
    const uint8_t* first_;
    int64_t tile_bytes_;
    alignas(64) uint8_t unpacked_[kTiles][kChunk * kChannelGroupBytes];
  };
};

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_PROGRESSIVE_LANES_H_
