/*!
 * \file kernels/linear/gated_block.h
 * \brief Parts of gated layers, for callers that divide layers into tasks.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GATED_BLOCK_H_
#define AIOMLC_KERNELS_LINEAR_GATED_BLOCK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/row_layout.h"

namespace aiomlc {

/*!
 * \brief Multiply the rows of a block by some tiles of its matrix.
 * \param layout The matrix, whose kernels read the same activations.
 * \param block Its tile range and its outputs are ignored. Its bias is that of the whole matrix.
 * \param tile The first tile.
 * \param outputs The number of outputs from this tile on.
 * \param out float32[rows of the block, outputs].
 */
void MultiplyTiles(MatrixLayout layout, const LinearBlock& block, int64_t tile, int64_t outputs,
                   float* out);

/*!
 * \brief Compute the activation of gate and up for a block of gate tiles, as inputs of the next
 * matrix.
 * \param gate_up The matrix: as many rows of gate as of up, gate first.
 * \param block The first tile must be even: its outputs must begin a group of the next inputs.
 * \param inner The rows of the next matrix's activations, as `RowLayout::Columns`.
 * \param result The panels of all rows, in the layout `inner`.
 */
void GateBlock(MatrixLayout gate_up, Activation activation, const LinearBlock& block,
               const RowLayout& inner, std::byte* result);

/*! \brief An activation of `size` numbers; `out` may be `x`. */
using ActivationKernel = void (*)(const float* x, int64_t size, float* out);

/*!
 * \brief Compute the activation of the outputs of a block, as inputs of the next matrix.
 * \param up The matrix; the rows of each segment are a multiple of 16.
 * \param block The first tile must be even: its outputs must begin a group of the next inputs.
 * \param inner The rows of the next matrix's activations, as `RowLayout::Columns`.
 * \param result The panels of all rows, in the layout `inner`.
 */
void ActivateBlock(MatrixLayout up, ActivationKernel activation, const LinearBlock& block,
                   const RowLayout& inner, std::byte* result);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GATED_BLOCK_H_
