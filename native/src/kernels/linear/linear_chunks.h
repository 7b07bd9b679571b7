/*!
 * \file kernels/linear/linear_chunks.h
 * \brief How the kernels of linear layers walk over a block.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_CHUNKS_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_CHUNKS_H_

#include <cstdint>

#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

namespace {

using Chunk = void (*)(const LinearBlock&, int64_t tile, int64_t row);

/*!
 * \brief Walk over a block: tiles in steps of `tiles`, under each of them all rows.
 *
 * The rows are done `max_rows` at a time, and the rest together; `chunks[r]` does r rows.
 */
inline void ForChunks(const LinearBlock& block, const Chunk* chunks, int max_rows, int64_t tile,
                      int64_t tile_end, int tiles) {
  for (; tile < tile_end; tile += tiles) {
    for (int64_t row = block.row_begin; row < block.row_end; row += max_rows) {
      const int64_t left = block.row_end - row;
      chunks[left < max_rows ? left : max_rows](block, tile, row);
    }
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_CHUNKS_H_
