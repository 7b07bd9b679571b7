#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

namespace {

constexpr int kRows = 16;  // Of a tile.
constexpr int kGroup = 32;

void Store(const LinearBlock& block, int64_t row, int64_t tile, const float* sums) {
  const int64_t first = tile * kRows;
  const int64_t count = std::min<int64_t>(kRows, block.rows_n - first);
  for (int64_t n = 0; n < count; ++n) {
    const float value = block.bias == nullptr ? sums[n] : sums[n] + block.bias[first + n];
    const int64_t at = row * block.rows_n + first + n;
    if (block.out_type == FloatType::kF32) {
      static_cast<float*>(block.out)[at] = value;
    } else {
      static_cast<uint16_t*>(block.out)[at] = FloatToHalf(value);
    }
  }
}

void QuantizeGroup(const float* x, ActivationGroup* group) {
  uint32_t largest = 0;  // As bits, so that NaN is the largest of all.
  for (int k = 0; k < kGroup; ++k) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu);
  }
  *group = {};
  group->scale = std::bit_cast<float>(largest) / 127.0f;
  if (group->scale == 0 || largest >= 0x7f800000u) return;
  for (int k = 0; k < kGroup; ++k) {
    const float value = std::nearbyint(x[k] / group->scale);
    group->values[k] = static_cast<int8_t>(std::clamp(value, -127.0f, 127.0f));
    group->offset -= 7 * group->values[k];
  }
}

void QuantizeRows(const QuantizeBlock& block) {
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const int64_t panel = row - row % kPanelRows;
    const int64_t height = std::min(kPanelRows, block.rows - panel);
    ActivationGroup* result = block.result + panel * block.groups + row % kPanelRows;
    for (int64_t g = 0; g < block.groups; ++g) {
      const int64_t count = std::min<int64_t>(kGroup, block.cols - g * kGroup);
      const int64_t first = row * block.cols + g * kGroup;
      float x[kGroup] = {};
      for (int64_t k = 0; k < count; ++k) {
        x[k] = block.x_type == FloatType::kF32
                   ? static_cast<const float*>(block.x)[first + k]
                   : HalfToFloat(static_cast<const uint16_t*>(block.x)[first + k]);
      }
      QuantizeGroup(x, result + g * height);
    }
  }
}

/*! \brief One group of one tile: nibbles as bytes, scales as floats. */
struct WideGroup {
  int8_t values[8][4 * kRows];  // [k / 4][n * 4 + k % 4]
  float scales[kRows];

  void Read(const uint8_t* packed) {
    for (int i = 0; i < 4; ++i) {
      for (int b = 0; b < 4 * kRows; ++b) {
        values[i][b] = static_cast<int8_t>(packed[64 * i + b] & 15);
        values[4 + i][b] = static_cast<int8_t>(packed[64 * i + b] >> 4);
      }
    }
    uint16_t halves[kRows];
    std::memcpy(halves, packed + 256, sizeof(halves));
    for (int n = 0; n < kRows; ++n) scales[n] = HalfToFloat(halves[n]);
  }

  void Dot(const int8_t* x, int32_t offset, int32_t* dots) const {
    for (int n = 0; n < kRows; ++n) dots[n] = offset;
    for (int i = 0; i < 8; ++i) {
      for (int n = 0; n < kRows; ++n) {
        int32_t dot = 0;
        for (int j = 0; j < 4; ++j) dot += values[i][4 * n + j] * x[4 * i + j];
        dots[n] += dot;
      }
    }
  }
};

void Q4Tile(const LinearBlock& block, int64_t tile, int64_t row, int64_t count) {
  const int64_t groups = (block.cols_k + kGroup - 1) / kGroup;
  const uint8_t* packed = static_cast<const uint8_t*>(block.packed) + tile * groups * kGroupBytes;
  const ActivationGroup* x = block.activations + row * groups;
  float sums[kPanelRows][kRows] = {};
  for (int64_t g = 0; g < groups; ++g, packed += kGroupBytes) {
    WideGroup group;
    group.Read(packed);
    for (int64_t r = 0; r < count; ++r, ++x) {
      int32_t dots[kRows];
      group.Dot(x->values, x->offset, dots);
      for (int n = 0; n < kRows; ++n) {
        sums[r][n] = std::fma(static_cast<float>(dots[n]), group.scales[n] * x->scale, sums[r][n]);
      }
    }
  }
  for (int64_t r = 0; r < count; ++r) Store(block, row + r, tile, sums[r]);
}

float Widen(float weight) { return weight; }
float Widen(uint16_t weight) { return BFloat16ToFloat(weight); }

template <typename Element>
void DenseTile(const LinearBlock& block, int64_t tile, int64_t row, int64_t count) {
  const Element* packed = static_cast<const Element*>(block.packed) + tile * kRows * block.cols_k;
  const float* x = block.x + row * block.cols_k;
  float sums[kPanelRows][kRows] = {};
  for (int64_t k = 0; k < block.cols_k; ++k, packed += kRows) {
    float weights[kRows];
    for (int n = 0; n < kRows; ++n) weights[n] = Widen(packed[n]);
    for (int64_t r = 0; r < count; ++r, ++x) {
      for (int n = 0; n < kRows; ++n) sums[r][n] = std::fma(weights[n], *x, sums[r][n]);
    }
  }
  for (int64_t r = 0; r < count; ++r) Store(block, row + r, tile, sums[r]);
}

template <void (*Tile)(const LinearBlock&, int64_t, int64_t, int64_t)>
void ForTiles(const LinearBlock& block) {
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    for (int64_t row = block.row_begin; row < block.row_end; row += kPanelRows) {
      Tile(block, tile, row, std::min(kPanelRows, block.row_end - row));
    }
  }
}

}  // namespace

const LinearKernels kLinearPortable = {QuantizeRows, ForTiles<Q4Tile>,
                                       ForTiles<DenseTile<uint16_t>>, ForTiles<DenseTile<float>>};

}  // namespace aiomlc
