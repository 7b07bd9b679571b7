#include "kernels/linear/gated_block.h"

#include <algorithm>
#include <cstddef>

#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/format/panel.h"
#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/row_layout.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

namespace {

// The outputs of gate and up that a task computes at a time fit into the second-level cache.
constexpr int64_t kGatedBytes = 384 << 10;
// The number of tiles computed at a time is a multiple of this, so that no group is divided.
constexpr int64_t kGatedTiles = 12;

// As many bytes for a matrix without a gate, in the tiles of a block that `RunBlocks` divides.
constexpr int64_t kActivatedTiles = 12;

thread_local AlignedBuffer gated_floats;  // Used by every thread that runs tasks.

/*!
 * \brief Write columns of the rows of a block in the panels of the next matrix.
 * \param values float32[rows of the block, count].
 * \param first The first column.
 */
void WriteColumns(const float* values, const LinearBlock& block, int64_t first, int64_t count,
                  const RowLayout& inner, std::byte* result) {
  for (int64_t panel = block.row_begin; panel < block.row_end; panel += kPanelRows) {
    inner.WriteColumns(values + (panel - block.row_begin) * count,
                       PanelOf(panel, block.row_end).height, first, count,
                       result + panel * inner.row_bytes());
  }
}

}  // namespace

void MultiplyTiles(MatrixLayout layout, const LinearBlock& block, int64_t tile, int64_t outputs,
                   float* out) {
  const int64_t groups = GroupsOf(block.num_inputs);
  LinearBlock part = {};
  part.packed = block.packed;
  part.num_inputs = block.num_inputs;
  part.tile_begin = tile;
  part.tile_end = tile + (outputs + kTileRows - 1) / kTileRows;
  part.row_end = block.row_end - block.row_begin;
  if (block.activations != nullptr) part.activations = block.activations + block.row_begin * groups;
  if (block.biased != nullptr) part.biased = block.biased + block.row_begin * groups;
  if (block.signed_groups != nullptr) {
    part.signed_groups = block.signed_groups + block.row_begin * groups;
  }
  if (block.int8_rows != nullptr) {
    part.int8_rows = block.int8_rows + block.row_begin * ChannelRowBytes(block.num_inputs);
  }
  if (block.x != nullptr) part.x = block.x + block.row_begin * block.num_inputs;
  if (block.bf16_rows != nullptr) part.bf16_rows = block.bf16_rows + block.row_begin * groups;
  if (block.bias != nullptr) part.bias = block.bias + tile * kTileRows;
  part.out = out;
  part.out_stride = outputs;
  part.out_type = FloatType::kF32;
  MultiplySegments(layout, part, tile * kTileRows);
}

void GateBlock(MatrixLayout gate_up, Activation activation, const LinearBlock& block,
               const RowLayout& inner, std::byte* result) {
  const GateKernel gate_kernel = ActiveGateKernel(activation);
  const int64_t up = RowsOf(gate_up) / 2 / kTileRows;
  const int64_t rows = block.row_end - block.row_begin;
  const int64_t tile_bytes = 2 * rows * kTileRows * static_cast<int64_t>(sizeof(float));
  const int64_t step = std::max<int64_t>(1, kGatedBytes / tile_bytes / kGatedTiles) * kGatedTiles;
  const int64_t tiles = std::min(step, block.tile_end - block.tile_begin);
  auto* gates = reinterpret_cast<float*>(
      gated_floats.Reserve(static_cast<size_t>(2 * rows * tiles * kTileRows) * sizeof(float)));
  for (int64_t tile = block.tile_begin; tile < block.tile_end; tile += step) {
    const int64_t outputs = (std::min(tile + step, block.tile_end) - tile) * kTileRows;
    float* ups = gates + rows * outputs;
    MultiplyTiles(gate_up, block, tile, outputs, gates);
    MultiplyTiles(gate_up, block, up + tile, outputs, ups);
    if (inner.form() == RowForm::kFloatRows) {  // Not in panels: written where they belong.
      auto* floats = reinterpret_cast<float*>(result) + tile * kTileRows;
      for (int64_t row = 0; row < rows; ++row) {
        gate_kernel(gates + row * outputs, ups + row * outputs, outputs,
                    floats + (block.row_begin + row) * inner.cols());
      }
      continue;
    }
    gate_kernel(gates, ups, rows * outputs, gates);
    WriteColumns(gates, block, tile * kTileRows, outputs, inner, result);
  }
}

void ActivateBlock(MatrixLayout up, ActivationKernel activation, const LinearBlock& block,
                   const RowLayout& inner, std::byte* result) {
  const int64_t rows = block.row_end - block.row_begin;
  const int64_t tile_bytes = rows * kTileRows * static_cast<int64_t>(sizeof(float));
  const int64_t step =
      std::max<int64_t>(1, kGatedBytes / tile_bytes / kActivatedTiles) * kActivatedTiles;
  auto* values = reinterpret_cast<float*>(gated_floats.Reserve(
      static_cast<size_t>(std::min(step, block.tile_end - block.tile_begin) * tile_bytes)));
  for (int64_t tile = block.tile_begin; tile < block.tile_end; tile += step) {
    const int64_t outputs = (std::min(tile + step, block.tile_end) - tile) * kTileRows;
    MultiplyTiles(up, block, tile, outputs, values);
    if (inner.form() == RowForm::kFloatRows) {
      auto* floats = reinterpret_cast<float*>(result) + tile * kTileRows;
      for (int64_t row = 0; row < rows; ++row) {
        activation(values + row * outputs, outputs,
                   floats + (block.row_begin + row) * inner.cols());
      }
      continue;
    }
    activation(values, rows * outputs, values);
    WriteColumns(values, block, tile * kTileRows, outputs, inner, result);
  }
}

}  // namespace aiomlc
