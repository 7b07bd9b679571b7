/*!
 * \file tests/doubles/channel_matrix.h
 * \brief A random matrix of int8 with one scale per output.
 */
#ifndef AIOMLC_TESTS_DOUBLES_CHANNEL_MATRIX_H_
#define AIOMLC_TESTS_DOUBLES_CHANNEL_MATRIX_H_

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/linear/format/matrix_format.h"
#include "kernels/linear/format/pack.h"

namespace aiomlc {

/*! \brief Weights are (code - 128) * scale. */
struct ChannelMatrix {
  int64_t rows, cols;
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  ChannelMatrix(int64_t rows, int64_t cols, uint32_t seed)
      : rows(rows), cols(cols), codes(rows * cols), scales(rows) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(0.0001f, 0.001f);
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random());
    for (float& scale : scales) scale = uniform(random);
  }

  int Value(int64_t row, int64_t k) const { return codes[row * cols + k] - 128; }

  std::vector<uint8_t> Pack() const {
    std::vector<uint8_t> packed(PackedMatrixBytes(WeightFormat::kChannel, rows, cols), 0xee);
    PackChannel({.rows = rows, .cols = cols, .codes = codes.data(), .scales = scales.data()},
                packed.data());
    return packed;
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_CHANNEL_MATRIX_H_
