#if defined(__x86_64__)

#include "kernels/linear/linear_avx512.h"

#include "kernels/linear/linear_chunks.h"

namespace aiomlc {

namespace {

// Bytes between what is fetched and what is used, of a single stream.
constexpr int kAhead = 4096;
// Fewer rows wait for memory rather than for arithmetic.
constexpr int kPairRows = 5;

__m512i BroadcastFour(const int8_t* four_values) {
  int32_t bits;
  __builtin_memcpy(&bits, four_values, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

/*! \brief `count` floats of x, which begin at element `at`, then zeros. */
__m512 LoadActivations(const void* x, FloatType type, int64_t at, int64_t count) {
  if (count <= 0) return _mm512_setzero_ps();
  const __mmask16 mask = MaskOf(count);
  if (type == FloatType::kF32) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(x) + at);
  }
  const uint16_t* halves = static_cast<const uint16_t*>(x) + at;
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, halves));
}

__m512i RoundQuotient(__m512 x, __m512 scale) {
  const __m512i limit = _mm512_set1_epi32(127);
  const __m512i value = _mm512_cvtps_epi32(_mm512_div_ps(x, scale));
  return _mm512_max_epi32(_mm512_min_epi32(value, limit),
                          _mm512_sub_epi32(_mm512_setzero_si512(), limit));
}

void QuantizeGroup(__m512 low, __m512 high, ActivationGroup* group) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  // Compared as bits, so that NaN is the largest of all.
  const uint32_t largest = _mm512_reduce_max_epu32(
      _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                       _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
  float largest_value;
  __builtin_memcpy(&largest_value, &largest, sizeof(largest));
  group->scale = largest_value / 127.0f;
  __m512i low_values = _mm512_setzero_si512();
  __m512i high_values = _mm512_setzero_si512();
  if (group->scale != 0 && largest < 0x7f800000u) {
    low_values = RoundQuotient(low, _mm512_set1_ps(group->scale));
    high_values = RoundQuotient(high, _mm512_set1_ps(group->scale));
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(group->values), _mm512_cvtepi32_epi8(low_values));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(group->values + 16),
                   _mm512_cvtepi32_epi8(high_values));
  group->offset = -7 * _mm512_reduce_add_epi32(_mm512_add_epi32(low_values, high_values));
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
      QuantizeGroup(LoadActivations(block.x, block.x_type, first, count),
                    LoadActivations(block.x, block.x_type, first + 16, count - 16), result);
    }
  }
}

void StoreUpperHalves(__m512i floats, uint16_t* result) {
  const __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(floats, 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(result), halves);
}

/*! \brief Cut 16 activations; from one part to the next are `stride` elements. */
void Split(__m512 x, int64_t stride, uint16_t* result) {
  constexpr int kNan = 0x81, kNotFinite = 0x99;
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000));
  const __mmask16 finite = static_cast<__mmask16>(~_mm512_fpclass_ps_mask(x, kNotFinite));
  // Cut off rather than rounded: the rest has 8 bits less, and nothing becomes infinite.
  const __m512i high = _mm512_and_si512(_mm512_castps_si512(x), upper);
  const __m512 rest = _mm512_maskz_sub_ps(finite, x, _mm512_castsi512_ps(high));
  const __m512i middle = _mm512_and_si512(_mm512_castps_si512(rest), upper);
  const __m512 low = _mm512_sub_ps(rest, _mm512_castsi512_ps(middle));
  // A NaN may have its only bits in the lower half.
  const __mmask16 nan = _mm512_fpclass_ps_mask(x, kNan);
  StoreUpperHalves(_mm512_mask_or_epi32(high, nan, high, _mm512_set1_epi32(0x00400000)), result);
  StoreUpperHalves(middle, result + stride);
  StoreUpperHalves(_mm512_castps_si512(low), result + 2 * stride);
}

/*! \brief A group of one tile: 16 outputs by 32 inputs. */
struct Q4Group {
  __m512i quads[8];  //!< Of each output four inputs, as 0 to 14.
  __m512 scales;
};

template <int kDistance>
inline __attribute__((always_inline)) Q4Group LoadQ4(const uint8_t* weights) {
#pragma GCC unroll 5
  for (int line = 0; line < 5; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(weights + kDistance + 64 * line), _MM_HINT_T0);
  }
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  Q4Group group;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i bytes = _mm512_loadu_si512(weights + 64 * i);
    group.quads[i] = _mm512_and_si512(bytes, low_nibbles);
    group.quads[4 + i] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_nibbles);
  }
  group.scales =
      _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + kNibbleBytes)));
  return group;
}

/*!
 * \brief A panel of `Rows` rows of activations times one tile of q4 weights.
 *
 * A single stream of weights per thread: with a tile at a time the hardware prefetches best.
 */
template <int Rows>
void Q4Chunk(const LinearBlock& block, int64_t tile, int64_t row) {
  const int64_t groups = (block.cols_k + kGroup - 1) / kGroup;
  const uint8_t* weights = static_cast<const uint8_t*>(block.packed) + tile * groups * kGroupStride;
  const ActivationGroup* x = block.activations + row * groups;

  __m512 sums[Rows];
  for (int r = 0; r < Rows; ++r) sums[r] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, x += Rows, weights += kGroupStride) {
    const Q4Group w = LoadQ4<kAhead>(weights);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      __m512i dot = _mm512_set1_epi32(x[r].offset);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        dot = _mm512_dpbusd_epi32(dot, w.quads[i], BroadcastFour(x[r].values + 4 * i));
      }
      sums[r] = AddScaled(dot, w.scales, x[r], sums[r]);
    }
  }
  for (int r = 0; r < Rows; ++r) Store(block, row + r, tile, sums[r]);
}

/*!
 * \brief The same for two neighbouring tiles, where arithmetic is the limit: each activation that
 * is fetched serves both.
 *
 * The sums do not fit into registers beside the weights, so they wait in the first-level cache.
 */
template <int Rows>
void Q4PairChunk(const LinearBlock& block, int64_t tile, int64_t row) {
  const int64_t groups = (block.cols_k + kGroup - 1) / kGroup;
  const int64_t tile_bytes = groups * kGroupStride;
  const uint8_t* weights = static_cast<const uint8_t*>(block.packed) + tile * tile_bytes;
  const ActivationGroup* x = block.activations + row * groups;

  alignas(64) float sums[Rows][2][kRows] = {};
  for (int64_t g = 0; g < groups; ++g, x += Rows, weights += kGroupStride) {
    const Q4Group left = LoadQ4<kAheadPerStream>(weights);
    const Q4Group right = LoadQ4<kAheadPerStream>(weights + tile_bytes);
#pragma GCC unroll 1
    for (int r = 0; r < Rows; ++r) {
      __m512i left_dot = _mm512_set1_epi32(x[r].offset);
      __m512i right_dot = left_dot;
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const __m512i four = BroadcastFour(x[r].values + 4 * i);
        left_dot = _mm512_dpbusd_epi32(left_dot, left.quads[i], four);
        right_dot = _mm512_dpbusd_epi32(right_dot, right.quads[i], four);
      }
      float* sum = sums[r][0];
      _mm512_store_ps(sum, AddScaled(left_dot, left.scales, x[r], _mm512_load_ps(sum)));
      sum = sums[r][1];
      _mm512_store_ps(sum, AddScaled(right_dot, right.scales, x[r], _mm512_load_ps(sum)));
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < 2; ++t) Store(block, row + r, tile + t, _mm512_load_ps(sums[r][t]));
  }
}

__m512 LoadWeights(const float* weights) { return _mm512_loadu_ps(weights); }

__m512 LoadWeights(const uint16_t* weights) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/*! \brief `Rows` rows of activations times `Tiles` neighbouring tiles of float weights. */
template <typename Element, int Rows, int Tiles>
void DenseChunk(const LinearBlock& block, int64_t tile, int64_t row) {
  const int64_t cols = block.cols_k;
  const int64_t tile_stride = cols * kRows;
  const Element* weights = static_cast<const Element*>(block.packed) + tile * tile_stride;
  const int64_t panel = row - row % kPanelRows;
  const int64_t left = block.row_end - panel;
  const int64_t height = left < kPanelRows ? left : kPanelRows;
  const float* x = block.x + panel * cols + row % kPanelRows;

  __m512 sums[Rows][Tiles];
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) sums[r][t] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < cols; ++k, x += height) {
    __m512 w[Tiles];
#pragma GCC unroll 4
    for (int t = 0; t < Tiles; ++t) {
      const Element* here = weights + t * tile_stride + k * kRows;
      _mm_prefetch(reinterpret_cast<const char*>(here) + kAheadPerStream, _MM_HINT_T0);
      w[t] = LoadWeights(here);
    }
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const __m512 activation = _mm512_set1_ps(x[r]);
#pragma GCC unroll 4
      for (int t = 0; t < Tiles; ++t) {
        sums[r][t] = _mm512_fmadd_ps(w[t], activation, sums[r][t]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int t = 0; t < Tiles; ++t) Store(block, row + r, tile + t, sums[r][t]);
  }
}

void Q4(const LinearBlock& block) {
  static constexpr Chunk kChunks[] = {
      nullptr,     Q4Chunk<1>,  Q4Chunk<2>,  Q4Chunk<3>,  Q4Chunk<4>,  Q4Chunk<5>,
      Q4Chunk<6>,  Q4Chunk<7>,  Q4Chunk<8>,  Q4Chunk<9>,  Q4Chunk<10>, Q4Chunk<11>,
      Q4Chunk<12>, Q4Chunk<13>, Q4Chunk<14>, Q4Chunk<15>, Q4Chunk<16>};
  static constexpr Chunk kPairs[] = {
      nullptr,         Q4PairChunk<1>,  Q4PairChunk<2>,  Q4PairChunk<3>,  Q4PairChunk<4>,
      Q4PairChunk<5>,  Q4PairChunk<6>,  Q4PairChunk<7>,  Q4PairChunk<8>,  Q4PairChunk<9>,
      Q4PairChunk<10>, Q4PairChunk<11>, Q4PairChunk<12>, Q4PairChunk<13>, Q4PairChunk<14>,
      Q4PairChunk<15>, Q4PairChunk<16>};
  int64_t tile = block.tile_begin;
  if (block.row_end - block.row_begin >= kPairRows) {
    const int64_t pairs_end = block.tile_end - (block.tile_end - tile) % 2;
    ForChunks(block, kPairs, kPanelRows, tile, pairs_end, 2);
    tile = pairs_end;
  }
  ForChunks(block, kChunks, kPanelRows, tile, block.tile_end, 1);
}

template <typename Element>
void Dense(const LinearBlock& block) {
  // One row needs more tiles, to have enough independent sums at hand.
  static constexpr Chunk kFourTiles[] = {nullptr, DenseChunk<Element, 1, 4>};
  static constexpr Chunk kThreeTiles[] = {nullptr,
                                          DenseChunk<Element, 1, 3>,
                                          DenseChunk<Element, 2, 3>,
                                          DenseChunk<Element, 3, 3>,
                                          DenseChunk<Element, 4, 3>,
                                          DenseChunk<Element, 5, 3>,
                                          DenseChunk<Element, 6, 3>,
                                          DenseChunk<Element, 7, 3>,
                                          DenseChunk<Element, 8, 3>};
  static constexpr Chunk kOneTile[] = {nullptr,
                                       DenseChunk<Element, 1, 1>,
                                       DenseChunk<Element, 2, 1>,
                                       DenseChunk<Element, 3, 1>,
                                       DenseChunk<Element, 4, 1>,
                                       DenseChunk<Element, 5, 1>,
                                       DenseChunk<Element, 6, 1>,
                                       DenseChunk<Element, 7, 1>,
                                       DenseChunk<Element, 8, 1>};
  int64_t tile = block.tile_begin;
  if (block.row_end - block.row_begin == 1) {
    const int64_t quads_end = block.tile_end - (block.tile_end - tile) % 4;
    ForChunks(block, kFourTiles, 1, tile, quads_end, 4);
    tile = quads_end;
  }
  const int64_t triples_end = block.tile_end - (block.tile_end - tile) % 3;
  ForChunks(block, kThreeTiles, 8, tile, triples_end, 3);
  ForChunks(block, kOneTile, 8, triples_end, block.tile_end, 1);
}

}  // namespace

void SplitRowsAvx512(const SplitBlock& block) {
  static_assert(kParts == 3);
  const int64_t groups = (block.cols + kGroup - 1) / kGroup;
  for (int64_t row = block.row_begin; row < block.row_end; ++row) {
    const int64_t panel = row - row % kPanelRows;
    const int64_t left = block.rows - panel;
    const int64_t stride = (left < kPanelRows ? left : kPanelRows) * kGroup;
    uint16_t* result = block.result + panel * groups * kParts * kGroup + row % kPanelRows * kGroup;
    for (int64_t g = 0; g < groups; ++g, result += kParts * stride) {
      const int64_t first = row * block.cols + g * kGroup;
      const int64_t count = block.cols - g * kGroup;
      Split(LoadActivations(block.x, block.x_type, first, count), stride, result);
      Split(LoadActivations(block.x, block.x_type, first + 16, count - 16), stride, result + 16);
    }
  }
}

const LinearKernels kLinearAvx512 = {QuantizeRows, Q4, Dense<uint16_t>, Dense<float>};

}  // namespace aiomlc

#endif  // defined(__x86_64__)
