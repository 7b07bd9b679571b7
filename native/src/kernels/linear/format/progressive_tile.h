/*!
 * \file kernels/linear/format/progressive_tile.h
 * \brief The layout of 4-bit matrices with progressive scales.
 *
 * A weight is `scale[n] * (group_scale * code + group_offset)`, where only the scale of the output
 * is a float. The integer in parentheses is an int8, so the matrix is one of channel_tile.h once it
 * is unpacked. The weights are those of rotated inputs: of each 32, which are multiplied by a
 * Hadamard matrix (channel_kernels.h).
 *
 * A tile of 16 outputs is a `ChannelTile`, followed by a `ProgressiveGroup` per 64 inputs.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_PROGRESSIVE_TILE_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_PROGRESSIVE_TILE_H_

#include <cstdint>

#include "kernels/linear/format/channel_tile.h"

namespace aiomlc {

/*! \brief The largest code. */
inline constexpr int kProgressiveLevels = 15;
/*! \brief The largest scale of a group, with which the codes span an int8. */
inline constexpr int kMaxGroupScale = 255 / kProgressiveLevels;

/*! \brief 64 inputs of the 16 outputs of a tile; zeros after the last group of 32 inputs. */
struct ProgressiveGroup {
  /*! \brief The integers of 32 inputs of an output. */
  struct Numbers {
    uint8_t scale;
    int8_t offset;
  };
  Numbers numbers[kTileRows][2];  //!< Of the first and of the last 32 inputs.
  /*!
   * [half][input / 4 % 4][4 * output + input % 4]: inputs 0 to 15 of a half are the low bits, 16 to
   * 31 the high ones.
   */
  uint8_t codes[2][kGroupSize / 8][4 * kTileRows];
};

namespace {

inline int64_t ProgressiveTileBytes(int64_t cols) {
  return static_cast<int64_t>(sizeof(ChannelTile)) +
         ChannelGroupsOf(cols) * static_cast<int64_t>(sizeof(ProgressiveGroup));
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_PROGRESSIVE_TILE_H_
