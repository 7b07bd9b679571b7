/*!
 * \file tests/doubles/random_matrix.h
 * \brief A random packed matrix, whose segments may have different formats.
 */
#ifndef AIOMLC_TESTS_DOUBLES_RANDOM_MATRIX_H_
#define AIOMLC_TESTS_DOUBLES_RANDOM_MATRIX_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "tests/doubles/channel_matrix.h"
#include "tests/doubles/grouped_matrix.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {

/*! \brief A matrix with random weights. */
struct RandomMatrix {
  std::vector<MatrixSegment> layout;
  std::vector<uint8_t> packed;

  RandomMatrix(std::vector<MatrixSegment> segments, int64_t cols, uint32_t seed)
      : layout(std::move(segments)) {
    for (const auto& [format, rows] : layout) {
      const std::vector<uint8_t> bytes = Pack(format, rows, cols, seed++);
      packed.insert(packed.end(), bytes.begin(), bytes.end());
    }
  }

  /*! \return The bytes of one segment. */
  static std::vector<uint8_t> Pack(MatrixFormat format, int64_t rows, int64_t cols, uint32_t seed) {
    if (format.family == WeightFormat::kGrouped) {
      return GroupedMatrix(format, rows, cols, seed).Pack();
    }
    if (format.family == WeightFormat::kChannel) return ChannelMatrix(rows, cols, seed).Pack();
    const std::vector<float> weights = RandomFloats(rows * cols, seed, 0.05f);
    std::vector<uint8_t> bytes(PackedMatrixBytes(format, rows, cols));
    PackMatrixF32(format.family, weights.data(), rows, cols, 0, rows, bytes.data());
    return bytes;
  }
};

/*! \brief The names of the formats of at most three segments; the rest is empty. */
using SegmentFormats = std::array<std::string_view, 3>;

/*! \return Segments of `rows` rows in total, the first ones of equal size. */
inline std::vector<MatrixSegment> Segments(const SegmentFormats& formats, int64_t rows) {
  std::vector<MatrixSegment> segments;
  const auto count = std::count_if(formats.begin(), formats.end(),
                                   [](std::string_view name) { return !name.empty(); });
  for (int64_t i = 0; i < count; ++i) {
    const int64_t size = i + 1 < count ? rows / count : rows - i * (rows / count);
    if (size > 0) segments.push_back({MatrixFormat::Parse(formats[i]), size});
  }
  return segments;
}

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_RANDOM_MATRIX_H_
