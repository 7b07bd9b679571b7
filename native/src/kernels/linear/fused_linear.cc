#include "kernels/linear/fused_linear.h"

#include <cstddef>

#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/linear/gated_block.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_kernels.h"
#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/panel.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

namespace {

// Used by the calling thread.
thread_local AlignedBuffer normed_groups, inner_groups;
// Used by every thread that runs tasks.
thread_local AlignedBuffer task_floats;

int64_t RowBytes(int64_t cols) {
  return GroupsOf(cols) * static_cast<int64_t>(sizeof(ActivationGroup));
}

ActivationGroup* ReserveGroups(AlignedBuffer& buffer, int64_t rows, int64_t cols) {
  return reinterpret_cast<ActivationGroup*>(buffer.Reserve(rows * RowBytes(cols)));
}

float* ReserveFloats(int64_t count) {
  return reinterpret_cast<float*>(task_floats.Reserve(count * sizeof(float)));
}

/*! \return The panels of the normalized and quantized rows. */
const ActivationGroup* QuantizeNormed(ThreadPool& pool, const AddNormCall& call) {
  const RowKernels row_kernels = ActiveRowKernels();
  const LinearKernels& linear_kernels = ActiveLinearKernels();
  const int64_t size = call.size;
  const int64_t groups = GroupsOf(size);
  ActivationGroup* result = ReserveGroups(normed_groups, call.rows, size);
  ForRanges(pool, call.rows, size, [&](int64_t begin, int64_t end) {
    float* normed = ReserveFloats(size);
    for (int64_t row = begin; row < end; ++row) {
      float* sum = call.out_residual + row * size;
      for (int64_t i = 0; i < size; ++i) {
        sum[i] = call.x[row * size + i] + call.residual[row * size + i];
      }
      row_kernels.rms_norm(sum, call.weight, call.eps, size, normed, FloatType::kF32);
      // One row is quantized, into a panel of `height` rows.
      const PanelCursor at = PanelOf(row, call.rows);
      linear_kernels.quantize({normed, FloatType::kF32, at.height, size, groups, 0, 1,
                               result + at.panel * groups + at.row});
    }
  });
  return result;
}

void Multiply(ThreadPool& pool, const ActivationGroup* activations, int64_t rows,
              int64_t num_inputs, const void* packed, int64_t num_outputs, const float* bias,
              void* out, FloatType out_type) {
  LinearBlock whole = {};
  whole.packed = packed;
  whole.num_outputs = num_outputs;
  whole.num_inputs = num_inputs;
  whole.activations = activations;
  whole.bias = bias;
  whole.out = out;
  whole.out_type = out_type;
  RunBlocks(pool, ActiveLinearKernels().q4, whole, rows, RowBytes(num_inputs));
}

/*! \return The panels of the quantized rows of activation(gate) * up. */
const ActivationGroup* QuantizeGated(ThreadPool& pool, const ActivationGroup* activations,
                                     int64_t rows, int64_t num_inputs, const void* gate_up,
                                     int64_t inner, Activation activation) {
  ActivationGroup* result = ReserveGroups(inner_groups, rows, inner);
  LinearBlock gate = {};
  gate.packed = gate_up;
  gate.num_outputs = inner;
  gate.num_inputs = num_inputs;
  gate.activations = activations;
  const auto gate_block = [&](const LinearBlock& block) {
    GateBlock(WeightFormat::kQ4, activation, block, inner / kTileRows,
              reinterpret_cast<std::byte*>(result));
  };
  RunBlocks(pool, gate_block, gate, rows, RowBytes(num_inputs));
  return result;
}

}  // namespace

void AddNormLinear(ThreadPool& pool, const AddNormCall& input, const void* packed,
                   int64_t num_outputs, const float* bias, void* out, FloatType out_type) {
  if (input.rows <= 0 || num_outputs <= 0) return;
  const ActivationGroup* normed = QuantizeNormed(pool, input);
  Multiply(pool, normed, input.rows, input.size, packed, num_outputs, bias, out, out_type);
}

void AddNormFeedForward(ThreadPool& pool, const AddNormCall& input, const void* gate_up,
                        int64_t inner, Activation activation, const void* down, float* out) {
  if (input.rows <= 0) return;
  const ActivationGroup* normed = QuantizeNormed(pool, input);
  const ActivationGroup* gated =
      QuantizeGated(pool, normed, input.rows, input.size, gate_up, inner, activation);
  Multiply(pool, gated, input.rows, inner, down, input.size, nullptr, out, FloatType::kF32);
}

}  // namespace aiomlc
