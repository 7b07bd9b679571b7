/*!
 * \file kernels/linear/base/tile_shapes.h
 * \brief The configuration of AMX tile registers.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_TILE_SHAPES_H_
#define AIOMLC_KERNELS_LINEAR_BASE_TILE_SHAPES_H_

#include <cstdint>

namespace aiomlc {

/*! \brief The shapes of the tile registers, as LDTILECFG reads them. */
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_TILE_SHAPES_H_
