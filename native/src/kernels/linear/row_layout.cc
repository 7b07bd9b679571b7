#include "kernels/linear/row_layout.h"

#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/panel.h"

namespace aiomlc {

namespace {

constexpr int64_t kPartsGroup = kParts * kGroupSize;  // The parts of 32 inputs.

/*! \return Whether the active kernel of a format reads bf16 parts. */
bool TakesParts(WeightFormat format) {
  return format == WeightFormat::kBF16 && ActiveLinearKernels().split != nullptr;
}

int64_t RowBytes(WeightFormat format, int64_t cols) {
  if (format == WeightFormat::kQ4) return GroupsOf(cols) * sizeof(ActivationGroup);
  if (TakesParts(format)) return GroupsOf(cols) * kPartsGroup * sizeof(uint16_t);
  return cols * sizeof(float);
}

void Transpose(const float* x, int64_t height, int64_t count, float* target) {
  for (int64_t row = 0; row < height; ++row) {
    for (int64_t k = 0; k < count; ++k) target[k * height + row] = x[row * count + k];
  }
}

}  // namespace

RowLayout::RowLayout(WeightFormat format, int64_t cols)
    : format_(format), cols_(cols), row_bytes_(RowBytes(format, cols)) {}

void RowLayout::SetActivations(const std::byte* panels, LinearBlock& block) const {
  block.num_inputs = cols_;
  if (format_ == WeightFormat::kQ4) {
    block.activations = reinterpret_cast<const ActivationGroup*>(panels);
  } else if (TakesParts(format_)) {
    block.parts = reinterpret_cast<const uint16_t*>(panels);
  } else {
    block.x = reinterpret_cast<const float*>(panels);
  }
}

void RowLayout::WriteColumns(const float* x, int64_t height, int64_t first, int64_t count,
                             std::byte* panel) const {
  const LinearKernels& kernels = ActiveLinearKernels();
  const int64_t first_group = first / kGroupSize * height;  // q4 and parts are ordered by group.
  if (format_ == WeightFormat::kQ4) {
    kernels.quantize({x, FloatType::kF32, height, count, GroupsOf(count), 0, height,
                      reinterpret_cast<ActivationGroup*>(panel) + first_group});
  } else if (TakesParts(format_)) {
    kernels.split({x, FloatType::kF32, height, count, 0, height,
                   reinterpret_cast<uint16_t*>(panel) + first_group * kPartsGroup});
  } else {
    Transpose(x, height, count, reinterpret_cast<float*>(panel) + first * height);
  }
}

}  // namespace aiomlc
