#include "kernels/linear/linear_kernels.h"

#if defined(AIOMLC_NEON)

#include "kernels/linear/linear_neon.h"

namespace aiomlc {

namespace {

constexpr int kAheadPerStream = 1536;  // Float weights come in several streams.

float32x4_t LoadActivations(const QuantizeBlock& block, int64_t at, int64_t count) {
  if (count <= 0) return vdupq_n_f32(0.0f);
  if (block.x_type == FloatType::kF32) {
    return LoadUpTo4(static_cast<const float*>(block.x) + at, count);
  }
  const uint16_t* halves = static_cast<const uint16_t*>(block.x) + at;
  if (count >= 4) return Widen(vld1_u16(halves));
  uint16_t values[4] = {};
  for (int64_t n = 0; n < count; ++n) values[n] = halves[n];
  return Widen(vld1_u16(values));
}

void QuantizeGroup(const float32x4_t* x, ActivationGroup* group) {
  // Compared as bits, so that NaN is the largest of all.
  const uint32x4_t magnitude = vdupq_n_u32(0x7fffffff);
  uint32x4_t largest_bits = vdupq_n_u32(0);
  for (int i = 0; i < 8; ++i) {
    largest_bits = vmaxq_u32(largest_bits, vandq_u32(vreinterpretq_u32_f32(x[i]), magnitude));
  }
  const uint32_t largest = vmaxvq_u32(largest_bits);
  float largest_value;
  __builtin_memcpy(&largest_value, &largest, sizeof(largest));
  group->scale = largest_value / 127.0f;
  int32x4_t rounded[8];
  for (int i = 0; i < 8; ++i) rounded[i] = vdupq_n_s32(0);
  if (group->scale != 0 && largest < 0x7f800000u) {
    const float32x4_t divisor = vdupq_n_f32(group->scale);
    for (int i = 0; i < 8; ++i) {
      const int32x4_t value = vcvtnq_s32_f32(vdivq_f32(x[i], divisor));
      rounded[i] = vmaxq_s32(vminq_s32(value, vdupq_n_s32(127)), vdupq_n_s32(-127));
    }
  }
  int32x4_t sum = vdupq_n_s32(0);
  for (int i = 0; i < 8; i += 2) {
    const int16x8_t words = vcombine_s16(vmovn_s32(rounded[i]), vmovn_s32(rounded[i + 1]));
    vst1_s8(group->values + 4 * i, vmovn_s16(words));
    sum = vaddq_s32(sum, vaddq_s32(rounded[i], rounded[i + 1]));
  }
  group->offset = -7 * vaddvq_s32(sum);
}

void QuantizeRows(const QuantizeBlock& block) {
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const int64_t panel = row - row % kPanelRows;
    const int64_t left = block.rows - panel;
    const int64_t height = left < kPanelRows ? left : kPanelRows;
    ActivationGroup* result = block.result + panel * block.groups + row % kPanelRows;
    for (int64_t g = 0; g < block.groups; ++g, result += height) {
      const int64_t first = row * block.cols + g * kGroup;
      const int64_t count = block.cols - g * kGroup;
      float32x4_t x[8];
      for (int i = 0; i < 8; ++i) x[i] = LoadActivations(block, first + 4 * i, count - 4 * i);
      QuantizeGroup(x, result);
    }
  }
}

/*! \brief `Rows` groups of activations: inputs 0 to 15, and the others. */
template <int Rows>
struct Inputs {
  int8x16_t low[Rows], high[Rows];
};

/*! \brief Add the products of inputs 4 * `Quad` and those after it, and of the same 16 further. */
template <int Quad, int Rows>
inline void AddProducts(const uint8_t* group, const Inputs<Rows>& x, int32x4_t (*dots)[4]) {
#pragma GCC unroll 4
  for (int quarter = 0; quarter < 4; ++quarter) {
    const uint8x16_t bytes = vld1q_u8(group + 64 * Quad + 16 * quarter);
    const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
    const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      int32x4_t& dot = dots[r][quarter];
      dot = vdotq_laneq_s32(dot, low, x.low[r], Quad);
      dot = vdotq_laneq_s32(dot, high, x.high[r], Quad);
    }
  }
}

/*! \brief `Rows` rows of activations times one tile of q4 weights. */
template <int Rows>
void Q4Chunk(const LinearBlock& block, int64_t tile, int64_t row) {
  const int64_t panel = row - row % kPanelRows;
  const int64_t left = block.row_end - panel;
  const int64_t height = left < kPanelRows ? left : kPanelRows;
  const int64_t groups = (block.cols_k + kGroup - 1) / kGroup;
  const uint8_t* group = static_cast<const uint8_t*>(block.packed) + tile * groups * kGroupStride;
  const ActivationGroup* x = block.activations + panel * groups + row % kPanelRows;

  float32x4_t sums[Rows][4];
  for (int r = 0; r < Rows; ++r) {
    for (int i = 0; i < 4; ++i) sums[r][i] = vdupq_n_f32(0.0f);
  }
  for (int64_t g = 0; g < groups; ++g, group += kGroupStride, x += height) {
#pragma GCC unroll 5
    for (int line = 0; line < 5; ++line) __builtin_prefetch(group + kAhead + 64 * line);
    Inputs<Rows> inputs;
    int32x4_t dots[Rows][4];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      inputs.low[r] = vld1q_s8(x[r].values);
      inputs.high[r] = vld1q_s8(x[r].values + 16);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) dots[r][i] = vdupq_n_s32(x[r].offset);
    }
    AddProducts<0>(group, inputs, dots);
    AddProducts<1>(group, inputs, dots);
    AddProducts<2>(group, inputs, dots);
    AddProducts<3>(group, inputs, dots);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const uint8_t* halves = group + kNibbleBytes + 8 * i;
      const float32x4_t weight_scales = Widen(vreinterpret_u16_u8(vld1_u8(halves)));
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const float32x4_t scale = vmulq_n_f32(weight_scales, x[r].scale);
        sums[r][i] = vfmaq_f32(sums[r][i], vcvtq_f32_s32(dots[r][i]), scale);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) Store(block, row + r, tile, sums[r]);
}

float32x4_t LoadWeights(const float* weights) { return vld1q_f32(weights); }

float32x4_t LoadWeights(const uint16_t* weights) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(weights)), 16));
}

/*! \brief `Rows` rows of activations times `Tiles` neighbouring tiles of float weights. */
template <typename Element, int Rows, int Tiles>
void DenseChunk(const LinearBlock& block, int64_t tile, int64_t row) {
  constexpr int kRegisters = 4 * Tiles;
  const int64_t cols = block.cols_k;
  const int64_t tile_stride = cols * kRows;
  const Element* weights = static_cast<const Element*>(block.packed) + tile * tile_stride;
  const int64_t panel = row - row % kPanelRows;
  const int64_t left = block.row_end - panel;
  const int64_t height = left < kPanelRows ? left : kPanelRows;
  const float* x = block.x + panel * cols + row % kPanelRows;

  float32x4_t sums[Rows][kRegisters];
  for (int r = 0; r < Rows; ++r) {
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = vdupq_n_f32(0.0f);
  }
  for (int64_t k = 0; k < cols; ++k, x += height) {
#pragma GCC unroll 16
    for (int i = 0; i < kRegisters; ++i) {
      const Element* here = weights + i / 4 * tile_stride + k * kRows + i % 4 * 4;
      if (i % 4 == 0) __builtin_prefetch(reinterpret_cast<const char*>(here) + kAheadPerStream);
      const float32x4_t w = LoadWeights(here);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) sums[r][i] = vfmaq_n_f32(sums[r][i], w, x[r]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) Store(block, row + r, tile + t, sums[r] + 4 * t);
  }
}

void Q4(const LinearBlock& block) {
  static constexpr Chunk kChunks[] = {nullptr, Q4Chunk<1>, Q4Chunk<2>, Q4Chunk<3>, Q4Chunk<4>};
  ForChunks(block, kChunks, 4, block.tile_begin, block.tile_end, 1);
}

template <typename Element>
void Dense(const LinearBlock& block) {
  // One row needs more tiles, to have enough independent sums at hand.
  static constexpr Chunk kFourTiles[] = {nullptr, DenseChunk<Element, 1, 4>};
  static constexpr Chunk kOneTile[] = {nullptr, DenseChunk<Element, 1, 1>,
                                       DenseChunk<Element, 2, 1>, DenseChunk<Element, 3, 1>,
                                       DenseChunk<Element, 4, 1>};
  int64_t tile = block.tile_begin;
  if (block.row_end - block.row_begin == 1) {
    const int64_t quads_end = block.tile_end - (block.tile_end - tile) % 4;
    ForChunks(block, kFourTiles, 1, tile, quads_end, 4);
    tile = quads_end;
  }
  ForChunks(block, kOneTile, 4, tile, block.tile_end, 1);
}

constexpr LinearKernels kKernels = {QuantizeRows, Q4, Dense<uint16_t>, Dense<float>};

}  // namespace

const LinearKernels* const kLinearNeon = &kKernels;

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

const LinearKernels* const kLinearNeon = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_NEON)
