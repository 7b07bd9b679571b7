#if defined(__x86_64__)

#include "kernels/linear/linear_avx2.h"

namespace aiomlc {

namespace {

constexpr int kAheadPerStream = 1536;  // Float weights come in several streams.

__m256 LoadActivations(const QuantizeBlock& block, int64_t at, int64_t count) {
  if (count <= 0) return _mm256_setzero_ps();
  if (block.x_type == FloatType::kF32) {
    return LoadUpTo8(static_cast<const float*>(block.x) + at, count);
  }
  const uint16_t* halves = static_cast<const uint16_t*>(block.x) + at;
  uint16_t values[8] = {};
  for (int64_t n = 0; n < (count < 8 ? count : 8); ++n) values[n] = halves[n];
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}

uint32_t LargestOf(__m256i values) {
  __m128i largest =
      _mm_max_epu32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  largest = _mm_max_epu32(largest, _mm_shuffle_epi32(largest, 0x4e));
  largest = _mm_max_epu32(largest, _mm_shuffle_epi32(largest, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(largest));
}

int32_t SumOf(__m256i values) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
}

void QuantizeGroup(const __m256* x, ActivationGroup* group) {
  // Compared as bits, so that NaN is the largest of all.
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest_bits = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    largest_bits =
        _mm256_max_epu32(largest_bits, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
  }
  const uint32_t largest = LargestOf(largest_bits);
  float largest_value;
  __builtin_memcpy(&largest_value, &largest, sizeof(largest));
  group->scale = largest_value / 127.0f;
  __m256i rounded[4] = {};
  if (group->scale != 0 && largest < 0x7f800000u) {
    const __m256 divisor = _mm256_set1_ps(group->scale);
    const __m256i limit = _mm256_set1_epi32(127);
    const __m256i lower_limit = _mm256_set1_epi32(-127);
    for (int i = 0; i < 4; ++i) {
      const __m256i value = _mm256_cvtps_epi32(_mm256_div_ps(x[i], divisor));
      rounded[i] = _mm256_max_epi32(_mm256_min_epi32(value, limit), lower_limit);
    }
  }
  // The packing instructions work on halves of a register; the permutation restores the order.
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),
                                           _mm256_packs_epi32(rounded[2], rounded[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(group->values),
                      _mm256_permutevar8x32_epi32(bytes, order));
  group->offset = -7 * SumOf(_mm256_add_epi32(_mm256_add_epi32(rounded[0], rounded[1]),
                                              _mm256_add_epi32(rounded[2], rounded[3])));
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
      __m256 x[4];
      for (int i = 0; i < 4; ++i) x[i] = LoadActivations(block, first + 8 * i, count - 8 * i);
      QuantizeGroup(x, result);
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
  const __m256i low_nibbles = _mm256_set1_epi8(15);
  const __m256i ones = _mm256_set1_epi16(1);

  __m256 sums[Rows][2];
  for (int r = 0; r < Rows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, group += kGroupStride, x += height) {
#pragma GCC unroll 5
    for (int line = 0; line < 5; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(group + kAhead + 64 * line), _MM_HINT_T0);
    }
    // A pair of products is at most 2 * 15 * 127, so all eight pairs fit in 16 bits.
    __m256i pairs[Rows][2];
    for (int r = 0; r < Rows; ++r) pairs[r][0] = pairs[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      __m256i low[2], high[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i bytes =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + 64 * i + 32 * half));
        low[half] = _mm256_and_si256(bytes, low_nibbles);
        high[half] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_nibbles);
      }
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m256i low_x = BroadcastFour(x[r].values + 4 * i);
        const __m256i high_x = BroadcastFour(x[r].values + 16 + 4 * i);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          pairs[r][half] = _mm256_add_epi16(
              pairs[r][half], _mm256_add_epi16(_mm256_maddubs_epi16(low[half], low_x),
                                               _mm256_maddubs_epi16(high[half], high_x)));
        }
      }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 weight_scales = _mm256_cvtph_ps(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + kNibbleBytes + 16 * half)));
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m256i dot = _mm256_add_epi32(_mm256_madd_epi16(pairs[r][half], ones),
                                             _mm256_set1_epi32(x[r].offset));
        const __m256 scale = _mm256_mul_ps(weight_scales, _mm256_set1_ps(x[r].scale));
        sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sums[r][half]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) Store(block, row + r, tile, sums[r]);
}

__m256 LoadWeights(const float* weights) { return _mm256_loadu_ps(weights); }

__m256 LoadWeights(const uint16_t* weights) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weights));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/*! \brief `Rows` rows of activations times `Tiles` neighbouring tiles of float weights. */
template <typename Element, int Rows, int Tiles>
void DenseChunk(const LinearBlock& block, int64_t tile, int64_t row) {
  constexpr int kRegisters = 2 * Tiles;
  const int64_t cols = block.cols_k;
  const int64_t tile_stride = cols * kRows;
  const Element* weights = static_cast<const Element*>(block.packed) + tile * tile_stride;
  const int64_t panel = row - row % kPanelRows;
  const int64_t left = block.row_end - panel;
  const int64_t height = left < kPanelRows ? left : kPanelRows;
  const float* x = block.x + panel * cols + row % kPanelRows;

  __m256 sums[Rows][kRegisters];
  for (int r = 0; r < Rows; ++r) {
    for (int i = 0; i < kRegisters; ++i) sums[r][i] = _mm256_setzero_ps();
  }
  for (int64_t k = 0; k < cols; ++k, x += height) {
    __m256 activations[Rows];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) activations[r] = _mm256_set1_ps(x[r]);
#pragma GCC unroll 8
    for (int i = 0; i < kRegisters; ++i) {
      const Element* here = weights + i / 2 * tile_stride + k * kRows + i % 2 * 8;
      _mm_prefetch(reinterpret_cast<const char*>(here) + kAheadPerStream, _MM_HINT_T0);
      const __m256 w = LoadWeights(here);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) sums[r][i] = _mm256_fmadd_ps(w, activations[r], sums[r][i]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) Store(block, row + r, tile + t, sums[r] + 2 * t);
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

}  // namespace

const LinearKernels kLinearAvx2 = {QuantizeRows, Q4, Dense<uint16_t>, Dense<float>};

}  // namespace aiomlc

#endif  // defined(__x86_64__)
