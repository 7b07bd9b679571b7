/*!
 * \file kernels/linear/gated_block.h
 * \brief Parts of gated layers, for those that share them between threads.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GATED_BLOCK_H_
#define AIOMLC_KERNELS_LINEAR_GATED_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

/*!
 * \brief Some tiles of a matrix times the rows of a block, as a dense matrix of floats.
 * \param block Its tiles are not used. \param out float32[rows of the block, outputs].
 */
void MultiplyTiles(WeightFormat format, const LinearBlock& block, int64_t tile, int64_t outputs,
                   float* out);

/*!
 * \brief activation(gate) * up of a block of gate's tiles, for a matrix with as many inputs as gate
 * has outputs.
 * \param block Its first tile is even, so that no group of inputs is divided.
 * \param up The tile that up begins with. \param result Panels of all rows, as the block's are.
 */
void GateBlock(WeightFormat format, Activation activation, const LinearBlock& block, int64_t up,
               std::byte* result);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GATED_BLOCK_H_
