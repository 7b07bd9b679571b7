#include "weights/group_buffers.h"

#include <algorithm>
#include <cmath>

#include "kernels/linear/format/pack.h"
#include "platform/float_types.h"

namespace aiomlc {

namespace {

constexpr uint8_t kChannelZero = 128;

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

bool IsSuper(ScaleType type) { return type == ScaleType::kK8 || type == ScaleType::kK8S; }

float CodeValue(CodeType type, uint8_t code) {
  switch (type) {
    case CodeType::kUnsigned:
      return code;
    case CodeType::kE2M1:
      return kE2M1Values[code];
    case CodeType::kIQ4NL:
      return kIQ4NLValues[code];
  }
  return 0;
}

bool AreFinite(ScaleType type, const uint8_t* numbers, int64_t first, int64_t count) {
  if (IsSuper(type)) return true;  // They are integers.
  for (int64_t i = first; i < first + count; ++i) {
    if (!std::isfinite(ScaleNumber(type, numbers, i))) return false;
  }
  return true;
}

bool AreFinite(const std::vector<uint16_t>& halves, int64_t first, int64_t count) {
  return halves.empty() ||
         AreFinite(ScaleType::kF16, reinterpret_cast<const uint8_t*>(halves.data()), first, count);
}

}  // namespace

void GroupBuffers::Resize(MatrixFormat format, int64_t rows, int64_t cols) {
  const bool is_channel = format.family == WeightFormat::kChannel;
  const bool has_minima = format.zero == ZeroType::kMinima;
  format_ = format;
  scale_ = is_channel ? ScaleType::kF32 : format.scale;
  group_ = is_channel ? cols : format.group;
  const bool is_super = IsSuper(scale_);
  if (is_channel) format_.constant = kChannelZero;
  rows_ = rows;
  cols_ = cols;
  groups_ = CeilDivide(cols, group_);
  supers_ = is_super ? CeilDivide(cols, kSuperGroupSize) : 0;
  scale_bytes_ = is_super ? 1 : scale_ == ScaleType::kF32 ? 4 : 2;
  zero_bytes_ = has_minima ? scale_bytes_ : format.zero == ZeroType::kPoints ? 1 : 0;
  codes_.resize(static_cast<size_t>(rows * cols));
  scales_.resize(static_cast<size_t>(rows * groups_ * scale_bytes_));
  zeros_.resize(static_cast<size_t>(rows * groups_ * zero_bytes_));
  super_scales_.resize(static_cast<size_t>(rows * supers_));
  super_minima_.resize(has_minima ? super_scales_.size() : 0);
}

void GroupBuffers::Cut(int64_t first, int64_t cols) {
  if (cols == cols_) return;
  CutColumns(&codes_, rows_, cols_, first, cols);
  const bool is_channel = groups_ == 1 && group_ == cols_;
  cols_ = cols;
  if (is_channel) {
    group_ = cols;
    return;
  }
  const int64_t groups = CeilDivide(cols, group_), first_group = first / group_;
  CutColumns(&scales_, rows_, groups_ * scale_bytes_, first_group * scale_bytes_,
             groups * scale_bytes_);
  CutColumns(&zeros_, rows_, groups_ * zero_bytes_, first_group * zero_bytes_,
             groups * zero_bytes_);
  groups_ = groups;
  const int64_t supers = supers_ == 0 ? 0 : CeilDivide(cols, kSuperGroupSize);
  const int64_t first_super = first / kSuperGroupSize;
  CutColumns(&super_scales_, rows_, supers_, first_super, supers);
  if (!super_minima_.empty()) CutColumns(&super_minima_, rows_, supers_, first_super, supers);
  supers_ = supers;
}

GroupedRow GroupBuffers::Row(int64_t row) {
  return {codes_.data() + row * cols_, scales_.data() + row * groups_ * scale_bytes_,
          zeros_.data() + row * groups_ * zero_bytes_, super_scales_.data() + row * supers_,
          super_minima_.data() + row * supers_};
}

GroupedRows GroupBuffers::View() const {
  const bool is_super = supers_ != 0;
  return {.rows = rows_,
          .cols = cols_,
          .codes = codes_.data(),
          .scales = scales_.data(),
          .zeros = zero_bytes_ != 0 ? zeros_.data() : nullptr,
          .super_scales = is_super ? super_scales_.data() : nullptr,
          .super_minima = super_minima_.empty() ? nullptr : super_minima_.data()};
}

bool GroupBuffers::AllFinite(int64_t first, int64_t rows) const {
  if (!AreFinite(scale_, scales_.data(), first * groups_, rows * groups_)) return false;
  if (format_.zero != ZeroType::kMinima)
    return AreFinite(super_scales_, first * supers_, rows * supers_);
  return AreFinite(scale_, zeros_.data(), first * groups_, rows * groups_) &&
         AreFinite(super_scales_, first * supers_, rows * supers_) &&
         AreFinite(super_minima_, first * supers_, rows * supers_);
}

void GroupBuffers::Dequantize(float* out) const {
  for (int64_t row = 0; row < rows_; ++row) DequantizeRow(row, out + row * cols_);
}

void GroupBuffers::DequantizeRow(int64_t row, float* out) const {
  const uint8_t* codes = codes_.data() + row * cols_;
  const ScaleType minimum_type = scale_ == ScaleType::kK8S ? ScaleType::kK8 : scale_;
  for (int64_t g = 0; g < groups_; ++g) {
    const int64_t index = row * groups_ + g;
    const int64_t super = row * supers_ + g * group_ / kSuperGroupSize;
    const bool is_super = supers_ != 0;
    float scale = ScaleNumber(scale_, scales_.data(), index);
    if (is_super) scale = HalfToFloat(super_scales_[static_cast<size_t>(super)]) * scale;
    float zero = 0.0f;
    float minimum = 0.0f;
    if (format_.zero == ZeroType::kConstant) zero = format_.constant;
    if (format_.zero == ZeroType::kPoints) zero = zeros_[static_cast<size_t>(index)];
    if (format_.zero == ZeroType::kMinima) {
      minimum = ScaleNumber(minimum_type, zeros_.data(), index);
      if (is_super) minimum *= HalfToFloat(super_minima_[static_cast<size_t>(super)]);
    }
    const int64_t end = std::min<int64_t>(cols_, (g + 1) * group_);
    for (int64_t k = g * group_; k < end; ++k) {
      out[k] = scale * (CodeValue(format_.code, codes[k]) - zero) - minimum;
    }
  }
}

}  // namespace aiomlc
