/*!
 * \file kernels/linear/format/layout.h
 * \brief The constants of packed weight matrices and of panels of activations.
 *
 * `aiomlc/models/parameters/packed_layout.py` has the same constants for Python; a test compares
 * them.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_LAYOUT_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_LAYOUT_H_

#include <cstdint>

namespace aiomlc {

/*! \brief The outputs of one tile of a packed matrix. The last tile is padded with zero rows. */
inline constexpr int64_t kTileRows = 16;
/*! \brief The inputs that share one scale in the q4 format. */
inline constexpr int64_t kGroupSize = 32;
/*! \brief The bytes of the nibbles in a tile's q4 group: 16 outputs by 32 inputs. */
inline constexpr int64_t kGroupNibbleBytes = kTileRows * kGroupSize / 2;
/*! \brief The bytes of one q4 group of one tile: the nibbles, then 16 float16 scales. */
inline constexpr int64_t kGroupBytes = kGroupNibbleBytes + 2 * kTileRows;
/*! \brief The zero point of q4: the stored value that means zero. */
inline constexpr int kZeroPoint = 7;

/*!
 * \brief The rows of a panel of activations; the last panel may have fewer rows.
 *
 * The elements of a panel are ordered by input (for q4: by group of inputs), and then by row. So
 * kernels read contiguous memory; in a row-major matrix, rows at a distance of a power of two would
 * compete for few cache sets. The panel of row r begins at the offset of row r - r % 16 of a
 * row-major matrix.
 */
inline constexpr int64_t kPanelRows = 16;

/*! \brief 32 inputs of the 16 outputs of a bf16 tile; zeros after the last input. */
struct BF16Tile {
  uint16_t pairs[kGroupSize / 2][2 * kTileRows];  //!< [input / 2][output][input % 2]
};

/*! \brief The number that is added to an int8 to store it as an unsigned byte. */
inline constexpr int kByteBias = 128;

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_LAYOUT_H_
