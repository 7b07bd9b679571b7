#include "kernels/linear/row_layout.h"

#include <algorithm>

#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/linear_tasks.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

namespace {

thread_local AlignedBuffer rotated_row;

int64_t RowBytes(RowForm form, int64_t cols) {
  switch (form) {
    case RowForm::kFloats:
    case RowForm::kFloatRows:
      return cols * static_cast<int64_t>(sizeof(float));
    case RowForm::kBF16:
      return GroupsOf(cols) * static_cast<int64_t>(sizeof(BF16Group));
    case RowForm::kGroups:
      return GroupsOf(cols) * static_cast<int64_t>(sizeof(ActivationGroup));
    case RowForm::kBiased:
      return GroupsOf(cols) * static_cast<int64_t>(sizeof(BiasedGroup));
    case RowForm::kSigned:
      return GroupsOf(cols) * static_cast<int64_t>(sizeof(SignedGroup));
    case RowForm::kInt8:
    case RowForm::kRotated:
      return ChannelRowBytes(cols);
  }
  return 0;
}

/*! \return The form that a format's active kernel reads; one that suits all grouped formats. */
RowForm CommonForm(MatrixFormat format) {
  switch (format.family) {
    case WeightFormat::kQ4:
      return RowForm::kGroups;
    case WeightFormat::kGrouped:
      return RowForm::kBiased;
    case WeightFormat::kChannel:
      return RowForm::kInt8;
    case WeightFormat::kProgressive:
    case WeightFormat::kRotated:
      return RowForm::kRotated;
    case WeightFormat::kBF16:
      return RowForm::kBF16;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
      break;
  }
  return RowForm::kFloats;
}

/*! \return Whether the active kernel of a format reads `SignedGroup`. */
bool ReadsSigned(const MatrixSegment& segment) {
  const MatrixFormat format = segment.format;
  return format.family == WeightFormat::kGrouped && format.code == CodeType::kUnsigned &&
         format.group >= kChunkSize && ActiveLinearKernels().quantize_signed != nullptr;
}

}  // namespace

bool HasOneRowForm(MatrixLayout layout) {
  return std::all_of(layout.begin(), layout.end(), [&](const MatrixSegment& segment) {
    return CommonForm(segment.format) == CommonForm(layout[0].format);
  });
}

RowForm RowFormOf(MatrixLayout layout) {
  if (std::all_of(layout.begin(), layout.end(), ReadsSigned)) return RowForm::kSigned;
  return CommonForm(layout[0].format);
}

RowLayout::RowLayout(RowForm form, int64_t cols)
    : form_(form), cols_(cols), row_bytes_(RowBytes(form, cols)) {}

int64_t RowLayout::group_bytes() const {
  return has_row_scales() ? kChannelGroup : RowBytes(form_, kGroupSize);
}

void RowLayout::SetActivations(const std::byte* panels, LinearBlock& block) const {
  block.num_inputs = cols_;
  switch (form_) {
    case RowForm::kFloatRows:  // Not read.
      return;
    case RowForm::kInt8:
    case RowForm::kRotated:
      block.int8_rows = reinterpret_cast<const uint8_t*>(panels);
      return;
    case RowForm::kFloats:
      block.x = reinterpret_cast<const float*>(panels);
      return;
    case RowForm::kBF16:
      block.bf16_rows = reinterpret_cast<const BF16Group*>(panels);
      return;
    case RowForm::kGroups:
      block.activations = reinterpret_cast<const ActivationGroup*>(panels);
      return;
    case RowForm::kBiased:
      block.biased = reinterpret_cast<const BiasedGroup*>(panels);
      return;
    case RowForm::kSigned:
      block.signed_groups = reinterpret_cast<const SignedGroup*>(panels);
  }
}

void (*RowLayout::quantize() const)(const QuantizeBlock&) {
  const LinearKernels& kernels = ActiveLinearKernels();
  switch (form_) {
    case RowForm::kGroups:
      return kernels.quantize;
    case RowForm::kSigned:
      return kernels.quantize_signed;
    case RowForm::kBF16:
      return kernels.quantize_bf16;
    default:
      return kernels.quantize_biased;
  }
}

void RowLayout::Quantize(const void* x, FloatType type, int64_t rows, int64_t begin, int64_t end,
                         std::byte* panels) const {
  if (has_row_scales()) {
    for (int64_t row = begin; row < end; ++row) {
      QuantizeInt8(x, type, row * cols_, PanelOf(row, rows), panels);
    }
    return;
  }
  quantize()({x, type, rows, cols_, GroupsOf(cols_), begin, end, panels});
}

void RowLayout::QuantizeRow(const float* x, int64_t row, int64_t rows, std::byte* panels) const {
  const PanelCursor at = PanelOf(row, rows);
  if (has_row_scales()) return QuantizeInt8(x, FloatType::kF32, 0, at, panels);
  // As the first row of a panel of its height.
  quantize()({x, FloatType::kF32, at.height, cols_, GroupsOf(cols_), 0, 1,
              panels + at.panel * row_bytes_ + at.row * group_bytes()});
}

void RowLayout::QuantizeInt8(const void* x, FloatType type, int64_t first, const PanelCursor& at,
                             std::byte* panels) const {
  std::byte* panel = panels + at.panel * row_bytes_;
  auto* bytes = reinterpret_cast<uint8_t*>(panel);
  std::byte* scales = panel + at.height * (row_bytes_ - static_cast<int64_t>(sizeof(float)));
  const ChannelKernels kernels = ActiveChannelKernels();
  ChannelRow row = {};
  row.x = x;
  row.x_type = type;
  row.first = first;
  row.cols = cols_;
  row.bytes = bytes + at.row * kChannelGroup;
  row.stride = at.height * kChannelGroup;
  row.scale = scales + at.row * static_cast<int64_t>(sizeof(float));
  if (form_ == RowForm::kRotated) {
    row.cols = GroupsOf(cols_) * kGroupSize;
    auto* rotated = reinterpret_cast<float*>(
        rotated_row.Reserve(static_cast<size_t>(row.cols) * sizeof(float)));
    kernels.rotate(x, type, first, cols_, rotated);
    row.x = rotated;
    row.x_type = FloatType::kF32;
    row.first = 0;
  }
  kernels.quantize(row);
}

void RowLayout::CopyRow(const std::byte* source, int64_t row, int64_t height,
                        std::byte* panel) const {
  const int64_t bytes = group_bytes();
  const int64_t groups = row_bytes_ / bytes;
  for (int64_t g = 0; g < groups; ++g) {
    std::copy_n(source + g * bytes, bytes, panel + (g * height + row) * bytes);
  }
  const int64_t scale_bytes = row_bytes_ - groups * bytes;
  std::copy_n(source + groups * bytes, scale_bytes,
              panel + height * groups * bytes + row * scale_bytes);
}

void RowLayout::WriteColumns(const float* x, int64_t height, int64_t first, int64_t count,
                             std::byte* panel) const {
  const int64_t first_group = first / kGroupSize * height;  // All but floats are in groups.
  if (has_row_scales()) {
    for (int64_t row = 0; row < height; ++row) {
      QuantizeInt8(x, FloatType::kF32, row * count, {0, height, row}, panel);
    }
  } else if (is_quantized()) {
    quantize()({x, FloatType::kF32, height, count, GroupsOf(count), 0, height,
                panel + first_group * group_bytes()});
  } else {
    ActiveLinearKernels().write_panel({x, FloatType::kF32, count, height, count,
                                       reinterpret_cast<float*>(panel) + first * height});
  }
}

}  // namespace aiomlc
