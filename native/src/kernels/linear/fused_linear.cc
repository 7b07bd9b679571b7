#include "kernels/linear/fused_linear.h"

#include <cstddef>

#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/format/panel.h"
#include "kernels/linear/gated_block.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/row_layout.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

namespace {

// Used by the calling thread.
thread_local AlignedBuffer normed_groups, inner_columns, inner_groups;
// Used by every thread that runs tasks.
thread_local AlignedBuffer task_floats;

float* ReserveFloats(int64_t count) {
  return reinterpret_cast<float*>(task_floats.Reserve(count * sizeof(float)));
}

/*! \return The panels of the normalized and quantized rows. */
const std::byte* QuantizeNormed(ThreadPool& pool, const AddNormCall& call,
                                const RowLayout& layout) {
  const RowKernels row_kernels = ActiveRowKernels();
  const int64_t size = call.size;
  std::byte* result = normed_groups.Reserve(call.rows * layout.row_bytes());
  ForRanges(pool, call.rows, size, [&](int64_t begin, int64_t end) {
    float* normed = ReserveFloats(size);
    for (int64_t row = begin; row < end; ++row) {
      float* sum = call.out_residual + row * size;
      for (int64_t i = 0; i < size; ++i) {
        sum[i] = call.x[row * size + i] + call.residual[row * size + i];
      }
      row_kernels.rms_norm(sum, call.weight, call.eps, size, normed, FloatType::kF32);
      layout.QuantizeRow(normed, row, call.rows, result);
    }
  });
  return result;
}

void Multiply(ThreadPool& pool, const RowLayout& layout, const std::byte* panels, int64_t rows,
              const QuantizedMatrix& matrix, const float* bias, void* out, FloatType out_type) {
  LinearBlock whole = {};
  layout.SetActivations(panels, whole);
  whole.packed = matrix.packed;
  whole.num_outputs = RowsOf(matrix.layout);
  whole.tile_end = TilesOf(matrix.layout);
  whole.bias = bias;
  whole.out = out;
  whole.out_stride = whole.num_outputs;
  whole.out_type = out_type;
  RunBlocks(
      pool, [&](const LinearBlock& block) { MultiplySegments(matrix.layout, block); }, whole, rows,
      layout.row_bytes());
}

/*!
 * \brief Compute the inputs of a matrix by blocks of the matrix before it.
 * \param first The outputs of the matrix before, of which `block_kernel` writes blocks to panels.
 * \param inner The layout of the inputs.
 * \return The panels of the inputs.
 */
const std::byte* WriteInner(
    ThreadPool& pool, const LinearBlock& first, int64_t rows, int64_t row_bytes,
    const RowLayout& inner,
    FunctionRef<void(const LinearBlock&, const RowLayout&, std::byte*)> block_kernel) {
  const RowLayout columns = inner.Columns();
  std::byte* result = inner_columns.Reserve(rows * columns.row_bytes());
  RunBlocks(
      pool, [&](const LinearBlock& block) { block_kernel(block, columns, result); }, first, rows,
      row_bytes);
  if (!inner.has_row_scales()) return result;
  std::byte* groups = inner_groups.Reserve(rows * inner.row_bytes());
  ForRanges(pool, rows, inner.cols(), [&](int64_t begin, int64_t end) {
    inner.Quantize(result, FloatType::kF32, rows, begin, end, groups);
  });
  return groups;
}

}  // namespace

void AddNormLinear(ThreadPool& pool, const AddNormCall& input, const QuantizedMatrix& matrix,
                   const float* bias, void* out, FloatType out_type) {
  if (input.rows <= 0) return;
  const RowLayout layout(matrix.layout, input.size);
  const std::byte* normed = QuantizeNormed(pool, input, layout);
  Multiply(pool, layout, normed, input.rows, matrix, bias, out, out_type);
}

void AddNormFeedForward(ThreadPool& pool, const AddNormCall& input, const QuantizedMatrix& gate_up,
                        Activation activation, const QuantizedMatrix& down, float* out) {
  if (input.rows <= 0) return;
  const RowLayout outer(gate_up.layout, input.size);
  const RowLayout inner(down.layout, RowsOf(gate_up.layout) / 2);
  const std::byte* normed = QuantizeNormed(pool, input, outer);
  LinearBlock gate = {};
  outer.SetActivations(normed, gate);
  gate.packed = gate_up.packed;
  gate.num_outputs = inner.cols();
  gate.tile_end = gate.num_outputs / kTileRows;
  const std::byte* gated =
      WriteInner(pool, gate, input.rows, outer.row_bytes(), inner,
                 [&](const LinearBlock& block, const RowLayout& columns, std::byte* result) {
                   GateBlock(gate_up.layout, activation, block, columns, result);
                 });
  Multiply(pool, inner, gated, input.rows, down, nullptr, out, FloatType::kF32);
}

void FeedForward(ThreadPool& pool, const float* x, int64_t rows, int64_t size,
                 const BiasedMatrix& up, ActivationKernel activation, const BiasedMatrix& down,
                 float* out) {
  if (rows <= 0) return;
  const RowLayout outer(up.matrix.layout, size);
  const RowLayout inner(down.matrix.layout, RowsOf(up.matrix.layout));
  LinearBlock whole = {};
  outer.SetActivations(Panels(pool, outer, x, FloatType::kF32, rows), whole);
  whole.packed = up.matrix.packed;
  whole.bias = up.bias;
  whole.num_outputs = inner.cols();
  whole.tile_end = TilesOf(up.matrix.layout);
  const std::byte* activated =
      WriteInner(pool, whole, rows, outer.row_bytes(), inner,
                 [&](const LinearBlock& block, const RowLayout& columns, std::byte* result) {
                   ActivateBlock(up.matrix.layout, activation, block, columns, result);
                 });
  Multiply(pool, inner, activated, rows, down.matrix, down.bias, out, FloatType::kF32);
}

}  // namespace aiomlc
