/*!
 * \file kernels/linear/layout.h
 * \brief The constants of packed weight matrices and of panels of activations.
 *
 * `aiomlc/models/parameters/packed_layout.py` has the same for Python; a test holds them equal.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LAYOUT_H_
#define AIOMLC_KERNELS_LINEAR_LAYOUT_H_

#include <cstdint>

namespace aiomlc {

/*! \brief Outputs of one tile of a packed matrix. The last tile is filled up with zero rows. */
inline constexpr int64_t kTileRows = 16;
/*! \brief Inputs that share one scale in the q4 format. */
inline constexpr int64_t kGroupSize = 32;
/*! \brief Bytes of the nibbles of one q4 group of one tile: 16 outputs by 32 inputs. */
inline constexpr int64_t kGroupNibbleBytes = kTileRows * kGroupSize / 2;
/*! \brief Bytes of one q4 group of one tile: the nibbles, then 16 float16 scales. */
inline constexpr int64_t kGroupBytes = kGroupNibbleBytes + 2 * kTileRows;
/*! \brief The q4 value that stands for zero. */
inline constexpr int kZeroPoint = 7;

/*!
 * \brief Rows of activations that are stored together; the last panel has the rest.
 *
 * A panel is ordered by input (or by group of inputs, for q4) and then by row, so that a kernel
 * reads contiguous memory: rows a power of two apart would share few sets of the cache.
 * The panel of row r begins where row r - r % 16 of a plain matrix would.
 */
inline constexpr int64_t kPanelRows = 16;

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LAYOUT_H_
