/*!
 * \file kernels/linear/format/channel_tile.h
 * \brief The layout of int8 matrices with one scale per output, and of their activations.
 *
 * A tile of 16 outputs is a `ChannelTile`, followed by groups of 64 inputs, the last one padded
 * with zeros. A group has the int8 weights as [input / 4][output][input % 4].
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_CHANNEL_TILE_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_CHANNEL_TILE_H_

#include <cstdint>

#include "kernels/linear/format/layout.h"

namespace aiomlc {

/*! \brief The inputs of a group: those of a row of an AMX tile register. */
inline constexpr int64_t kChannelGroup = 64;
/*! \brief The bytes of a group of a tile. */
inline constexpr int64_t kChannelGroupBytes = kChannelGroup * kTileRows;

/*! \brief The bytes of a tile's weights for four inputs. */
inline constexpr int kChannelQuadBytes = 4 * static_cast<int>(kTileRows);

/*! \brief The beginning of a tile. */
struct ChannelTile {
  float scales[kTileRows];
  int32_t sums[kTileRows];  //!< Of the weights of each output.
};

namespace {

inline int64_t ChannelGroupsOf(int64_t cols) { return (cols + kChannelGroup - 1) / kChannelGroup; }

inline int64_t ChannelTileBytes(int64_t cols) {
  return static_cast<int64_t>(sizeof(ChannelTile)) + ChannelGroupsOf(cols) * kChannelGroupBytes;
}

/*! \return The index of a weight after the `ChannelTile`. \param output Within the tile. */
inline int64_t ChannelWeightIndex(int64_t output, int64_t input) {
  return input / 4 * 4 * kTileRows + 4 * output + input % 4;
}

/*! \return The bytes of a row of activations, with its scale. */
inline int64_t ChannelRowBytes(int64_t cols) {
  return ChannelGroupsOf(cols) * kChannelGroup + static_cast<int64_t>(sizeof(float));
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_CHANNEL_TILE_H_
