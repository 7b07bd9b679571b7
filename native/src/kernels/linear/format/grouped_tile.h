/*!
 * \file kernels/linear/format/grouped_tile.h
 * \brief The layout of one tile of a matrix in a grouped format.
 *
 * A tile is a sequence of blocks of inputs. A block has max(32, group) inputs, or 256 with the k8
 * scale types; the last block is padded. It consists of, for the 16 outputs each,
 *
 * - k8 and k8s: float16 super scales, and with minima float16 super minima,
 * - for each group: the scales, in the scale type, or as uint8 or int8 for k8 and k8s,
 * - for each group: the zero points (uint8) or minima (as the scales; uint8 for k8s),
 * - for each chunk of 32 inputs: the codes, as bit planes of 4, 2 and 1 bits, lowest bits first, or
 *   as bytes for 8 bits.
 *
 * The codes of a chunk are 8 quads of 64 codes: quad i has inputs 4i to 4i + 3 of output 0, then of
 * output 1, and so on. Byte b of a plane at 64j + b has code b of several quads, in ascending bits:
 * quads j and 4 + j in the plane of 4 bits, 4j to 4j + 3 in that of 2 bits, 0 to 7 in that of 1
 * bit.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_GROUPED_TILE_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_GROUPED_TILE_H_

#include <cstdint>

#include "kernels/linear/format/matrix_format.h"

namespace aiomlc {

/*! \brief The inputs whose codes are stored together: those of a group of activations. */
inline constexpr int64_t kChunkSize = 32;

/*! \brief The format of a matrix, and the offsets in a block of one of its tiles in bytes. */
struct GroupedTile {
  CodeType code;
  ScaleType scale;
  ZeroType zero;
  uint8_t bits;
  uint8_t constant;
  bool subtracts;  //!< Whether the kernels subtract minima; zero points are subtracted from codes.
  int group;
  int group_shift;   //!< The binary logarithm of `group`.
  int parts;         //!< The parts of a chunk with different scales: 1, 2 or 4.
  int block_chunks;  //!< The chunks of a block.
  int block_groups;  //!< The groups of a block.
  int super_minima;
  int scales, scale_bytes;  //!< `scale_bytes`: of the 16 outputs of a group.
  int zeros, zero_bytes;    //!< `zero_bytes` is 0 without zero points and minima.
  int codes;                //!< The first chunk.
  int chunk_bytes;
  int block_bytes;
};

/*! \return The tile of a grouped format. */
GroupedTile GroupedTileOf(MatrixFormat format);

/*! \return The number of blocks of a tile. */
int64_t BlocksOf(const GroupedTile& tile, int64_t cols);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_GROUPED_TILE_H_
