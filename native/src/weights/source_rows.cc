#include "weights/source_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "platform/float_types.h"

namespace aiomlc {

namespace {

// Branch-free, so that the compiler vectorizes the loops. Equal to `HalfToFloat`, except for the
// payload of a NaN.
float WidenHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t special = magnitude >= 0x7c00u ? 0x7f800000u : 0u;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

void WidenHalves(const uint16_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = WidenHalf(in[i]);
}

void WidenBFloats(const uint16_t* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
  }
}

/*! \return The largest magnitude, or a NaN or infinity if there is one. */
float LargestMagnitude(const float* values, int64_t count) {
  // Without the sign bit, floats have the same order as their bits.
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(largest);
}

/*! \return What is wrong with the values of a parameter, or an empty string. */
std::string RangeError(const ParamPlan& param, const float* values, int64_t count) {
  const float largest = LargestMagnitude(values, count);
  if (!std::isfinite(largest)) return "a value is not finite";
  const bool is_q4 = param.is_matrix && param.format == WeightFormat::kQ4;
  if (!is_q4 || largest < kHalfOverflow) return {};
  return "a value is outside of the range of float16, in which q4f16_1 is computed; choose the "
         "quantization q0bf16 or q0f32";
}

bool AllFinite(const uint16_t* halves, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, halves[i] & 0x7fffu);
  return largest < 0x7c00u;
}

// Calls visit(slice, first row in the slice, rows, first row in the block) until it returns false.
template <typename Visit>
bool ForEachSlice(const ParamPlan& param, int64_t begin, int64_t end, Visit visit) {
  int64_t slice_begin = 0;
  for (const SourceSlice& slice : param.sources) {
    const int64_t from = std::max(begin, slice_begin);
    const int64_t to = std::min(end, slice_begin + slice.rows);
    if (from < to && !visit(slice, from - slice_begin, to - from, from - begin)) return false;
    slice_begin += slice.rows;
  }
  return true;
}

}  // namespace

uint64_t SourceRowBytes(SourceType type, int64_t cols) {
  const auto elements = static_cast<uint64_t>(cols);
  switch (type) {
    case SourceType::kF32:
      return elements * 4;
    case SourceType::kF16:
    case SourceType::kBF16:
      return elements * 2;
    case SourceType::kQ4:
      return (elements + kGroupSize - 1) / kGroupSize * (kGroupSize / 2 + 2);
  }
  return 0;
}

bool SourceReader::Read(int file, uint64_t offset, void* data, uint64_t bytes) {
  const File& source = (*files_)[static_cast<size_t>(file)];
  std::string reason = source.ReadAt(offset, data, bytes);
  return reason.empty() || Fail(file, "cannot read: " + reason);
}

bool SourceReader::Fail(int file, std::string message) {
  error_ = {std::move(message), (*files_)[static_cast<size_t>(file)].path(), -1};
  return false;
}

bool SourceReader::ReadFloats(const ParamPlan& param, int64_t begin, int64_t end) {
  floats_.resize(static_cast<size_t>((end - begin) * param.cols));
  return ForEachSlice(
      param, begin, end, [&](const SourceSlice& slice, int64_t from, int64_t rows, int64_t at) {
        const uint64_t row_bytes = SourceRowBytes(slice.type, param.cols);
        const uint64_t offset = slice.offset + static_cast<uint64_t>(from) * row_bytes;
        const uint64_t bytes = static_cast<uint64_t>(rows) * row_bytes;
        const int64_t count = rows * param.cols;
        float* out = floats_.data() + at * param.cols;
        if (slice.type == SourceType::kF32) {
          if (!Read(slice.file, offset, out, bytes)) return false;
        } else {
          halves_.resize(static_cast<size_t>(count));
          if (!Read(slice.file, offset, halves_.data(), bytes)) return false;
          const auto widen = slice.type == SourceType::kF16 ? WidenHalves : WidenBFloats;
          widen(halves_.data(), count, out);
        }
        std::string reason = RangeError(param, out, count);
        return reason.empty() || Fail(slice.file, std::move(reason));
      });
}

bool SourceReader::ReadQ4(const ParamPlan& param, int64_t begin, int64_t end) {
  const int64_t groups = (param.cols + kGroupSize - 1) / kGroupSize;
  q_weight_.resize(static_cast<size_t>((end - begin) * groups * 4));
  q_scale_.resize(static_cast<size_t>((end - begin) * groups));
  return ForEachSlice(
      param, begin, end, [&](const SourceSlice& slice, int64_t from, int64_t rows, int64_t at) {
        const auto first = static_cast<uint64_t>(from * groups);
        const int64_t count = rows * groups;
        uint16_t* scales = q_scale_.data() + at * groups;
        const auto groups_here = static_cast<uint64_t>(count);
        return Read(slice.file, slice.offset + first * 16, q_weight_.data() + at * groups * 4,
                    groups_here * 16) &&
               Read(slice.scale_file, slice.scale_offset + first * 2, scales, groups_here * 2) &&
               (AllFinite(scales, count) || Fail(slice.scale_file, "a scale is not finite"));
      });
}

}  // namespace aiomlc
