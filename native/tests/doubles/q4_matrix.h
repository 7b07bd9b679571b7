/*!
 * \file tests/doubles/q4_matrix.h
 * \brief A random matrix in MLC LLM's `q4f16_1`.
 */
#ifndef AIOMLC_TESTS_DOUBLES_Q4_MATRIX_H_
#define AIOMLC_TESTS_DOUBLES_Q4_MATRIX_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

inline std::vector<uint16_t> Halves(const Floats& values) {
  std::vector<uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), FloatToHalf);
  return halves;
}

/*! \brief A matrix in MLC LLM's `q4f16_1`, with random nibbles and scales. */
struct Q4Matrix {
  int64_t rows, cols, groups;
  std::vector<uint32_t> words;
  std::vector<uint16_t> scales;

  Q4Matrix(int64_t rows, int64_t cols, uint32_t seed)
      : rows(rows), cols(cols), groups((cols + 31) / 32), words(rows * groups * 4, 0) {
    std::mt19937 random(seed);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = 0; k < cols; ++k) {
        words[(row * groups * 32 + k) / 8] |= (random() % 15) << (4 * (k % 8));
      }
    }
    Floats values = RandomFloats(rows * groups, seed + 1, 0.02f);
    for (float& value : values) value = std::fabs(value);
    scales = Halves(values);
  }

  int Value(int64_t row, int64_t k) const {
    return static_cast<int>((words[(row * groups * 32 + k) / 8] >> (4 * (k % 8))) & 15);
  }
  double Weight(int64_t row, int64_t k) const {
    return (Value(row, k) - 7) * static_cast<double>(HalfToFloat(scales[row * groups + k / 32]));
  }
  Bytes Pack() const {
    Bytes packed(PackedMatrixBytes(WeightFormat::kQ4, rows, cols), 0xee);
    PackMatrixQ4(words.data(), scales.data(), rows, cols, 0, rows, packed.data());
    return packed;
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_Q4_MATRIX_H_
