/*!
 * \file tests/doubles/grouped_matrix.h
 * \brief A random matrix in a grouped format, with its weights in float64.
 */
#ifndef AIOMLC_TESTS_DOUBLES_GROUPED_MATRIX_H_
#define AIOMLC_TESTS_DOUBLES_GROUPED_MATRIX_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/linear/format/matrix_format.h"
#include "kernels/linear/format/pack.h"
#include "platform/float_types.h"

namespace aiomlc {

/*! \brief The formats that sources of weights have, and others with odd fields. */
inline constexpr const char* kGroupedFormats[] = {
    "u4g32f16z8",  "u4g32f16m",    "u5g32f16z16",  "u5g32f16m",  "u8g32f16z128", "u4g32k8m",
    "u5g32k8m",    "u6g16k8sz32",  "u3g16k8sz4",   "u2g16k8m",   "e2m1g32bf16",  "e2m1g32f32",
    "iq4nlg32f16", "u4g32f32z7",   "u4g32bf16z7",  "u3g8f16z3",  "u4g32f16zp",   "u4g64f16zp",
    "u4g128f16zp", "u4g256bf16zp", "u8g128f16zp",  "u8g32f32m",  "u2g64f16z1",   "u6g8f32zp",
    "u5g64bf16m",  "u3g128f32m",   "u8g8bf16z128", "u4g16bf16m", "e2m1g16bf16"};

/*! \brief A matrix in a grouped format, with random codes, scales and zeros. */
class GroupedMatrix {
 public:
  GroupedMatrix(MatrixFormat format, int64_t rows, int64_t cols, uint32_t seed)
      : format_(format),
        rows_(rows),
        cols_(cols),
        groups_((cols + format.group - 1) / format.group),
        supers_((cols + kSuperGroupSize - 1) / kSuperGroupSize),
        random_(seed),
        codes_(rows * cols) {
    for (uint8_t& code : codes_) code = Below(1 << format.bits);
    scales_ = Numbers(false);
    if (format.zero == ZeroType::kMinima) zeros_ = Numbers(true);
    if (format.zero == ZeroType::kPoints) {
      for (int64_t i = 0; i < rows * groups_; ++i) zeros_.push_back(Below(1 << format.bits));
    }
    if (!IsSuper()) return;
    for (int64_t i = 0; i < rows * supers_; ++i) {
      super_scales_.push_back(FloatToHalf(Uniform(1e-4f, 1e-3f)));
      super_minima_.push_back(FloatToHalf(Uniform(1e-4f, 1e-3f)));
    }
  }

  MatrixFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int Code(int64_t row, int64_t k) const { return codes_[row * cols_ + k]; }
  void SetCodes(uint8_t code) { codes_.assign(codes_.size(), code); }
  void SetZeroPoints(uint8_t point) { zeros_.assign(zeros_.size(), point); }

  double Scale(int64_t row, int64_t k) const {
    return Super(super_scales_, row, k) * Number(scales_, format_.scale, Group(row, k));
  }

  double Minimum(int64_t row, int64_t k) const {
    const ScaleType type = format_.scale == ScaleType::kK8S ? ScaleType::kK8 : format_.scale;
    return Super(super_minima_, row, k) * Number(zeros_, type, Group(row, k));
  }

  double Weight(int64_t row, int64_t k) const {
    const int code = Code(row, k);
    const double scale = Scale(row, k);
    if (format_.code == CodeType::kE2M1) return scale * kE2M1Values[code];
    if (format_.code == CodeType::kIQ4NL) return scale * kIQ4NLValues[code];
    if (format_.zero == ZeroType::kMinima) return scale * code - Minimum(row, k);
    if (format_.zero == ZeroType::kPoints) return scale * (code - zeros_[Group(row, k)]);
    return scale * (code - format_.constant);
  }

  /*! \return The magnitude of the terms of a weight that are rounded separately. */
  double Magnitude(int64_t row, int64_t k) const {
    const double minimum = format_.zero == ZeroType::kMinima ? std::fabs(Minimum(row, k)) : 0;
    const double scale = std::fabs(Scale(row, k));
    if (format_.bits == 8 && format_.zero != ZeroType::kConstant) return 255 * scale + minimum;
    return minimum == 0 ? std::fabs(Weight(row, k)) : scale * Code(row, k) + minimum;
  }

  std::vector<uint8_t> Pack() const {
    std::vector<uint8_t> packed(PackedMatrixBytes(format_, rows_, cols_), 0xee);
    PackGrouped(format_, Rows(0, rows_), packed.data());
    return packed;
  }

  /*! \return The numbers of rows [begin, end). */
  GroupedRows Rows(int64_t begin, int64_t end) const {
    GroupedRows result;
    result.rows = end - begin;
    result.cols = cols_;
    result.codes = codes_.data() + begin * cols_;
    result.scales = scales_.data() + begin * groups_ * ElementBytes();
    if (!zeros_.empty()) {
      const int64_t bytes = format_.zero == ZeroType::kPoints ? 1 : ElementBytes();
      result.zeros = zeros_.data() + begin * groups_ * bytes;
    }
    if (IsSuper()) {
      result.super_scales = super_scales_.data() + begin * supers_;
      if (format_.zero == ZeroType::kMinima) {
        result.super_minima = super_minima_.data() + begin * supers_;
      }
    }
    return result;
  }

 private:
  bool IsSuper() const {
    return format_.scale == ScaleType::kK8 || format_.scale == ScaleType::kK8S;
  }
  int64_t ElementBytes() const { return IsSuper() ? 1 : format_.scale == ScaleType::kF32 ? 4 : 2; }
  int64_t Group(int64_t row, int64_t k) const { return row * groups_ + k / format_.group; }
  uint8_t Below(int end) { return static_cast<uint8_t>(random_() % static_cast<uint32_t>(end)); }
  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }

  /*! \return Scales, or minima, of all groups in their storage type. */
  std::vector<uint8_t> Numbers(bool minima) {
    std::vector<uint8_t> bytes(rows_ * groups_ * ElementBytes());
    for (int64_t i = 0; i < rows_ * groups_; ++i) {
      const float value = Uniform(-0.002f, 0.02f);
      const uint16_t half = FloatToHalf(value);
      const uint16_t bfloat = FloatToBFloat16(value);
      const uint8_t byte = Below(256);
      switch (format_.scale) {
        case ScaleType::kF16:
          std::memcpy(&bytes[2 * i], &half, 2);
          break;
        case ScaleType::kBF16:
          std::memcpy(&bytes[2 * i], &bfloat, 2);
          break;
        case ScaleType::kF32:
          std::memcpy(&bytes[4 * i], &value, 4);
          break;
        case ScaleType::kK8:
        case ScaleType::kK8S:
          bytes[i] = minima ? byte / 2 : byte;
          break;
      }
    }
    return bytes;
  }

  static double Number(const std::vector<uint8_t>& bytes, ScaleType type, int64_t i) {
    uint16_t half;
    float value;
    switch (type) {
      case ScaleType::kF16:
        std::memcpy(&half, &bytes[2 * i], 2);
        return HalfToFloat(half);
      case ScaleType::kBF16:
        std::memcpy(&half, &bytes[2 * i], 2);
        return BFloat16ToFloat(half);
      case ScaleType::kF32:
        std::memcpy(&value, &bytes[4 * i], 4);
        return value;
      case ScaleType::kK8:
        return bytes[i];
      case ScaleType::kK8S:
        return static_cast<int8_t>(bytes[i]);
    }
    return 0;
  }

  double Super(const std::vector<uint16_t>& supers, int64_t row, int64_t k) const {
    return supers.empty() ? 1.0 : HalfToFloat(supers[row * supers_ + k / kSuperGroupSize]);
  }

  MatrixFormat format_;
  int64_t rows_, cols_, groups_, supers_;
  std::mt19937 random_;
  std::vector<uint8_t> codes_, scales_, zeros_;
  std::vector<uint16_t> super_scales_, super_minima_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_GROUPED_MATRIX_H_
