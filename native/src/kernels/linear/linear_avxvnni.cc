#include "kernels/linear/linear_kernels.h"

#if defined(AIOMLC_AVXVNNI)

#include "kernels/linear/linear_avx2.h"

namespace aiomlc {

namespace {

/*! \brief Eight outputs by four inputs, as 0 to 14, of each half of a tile. */
struct Quads {
  __m256i halves[2];
};

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

  __m256 sums[Rows][2];
  for (int r = 0; r < Rows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g, group += kGroupStride, x += height) {
#pragma GCC unroll 5
    for (int line = 0; line < 5; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(group + kAhead + 64 * line), _MM_HINT_T0);
    }
    __m256i dots[Rows][2];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) dots[r][0] = dots[r][1] = _mm256_set1_epi32(x[r].offset);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      Quads low, high;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i bytes =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + 64 * i + 32 * half));
        low.halves[half] = _mm256_and_si256(bytes, low_nibbles);
        high.halves[half] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_nibbles);
      }
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m256i low_x = BroadcastFour(x[r].values + 4 * i);
        const __m256i high_x = BroadcastFour(x[r].values + 16 + 4 * i);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          __m256i& dot = dots[r][half];
          dot = _mm256_dpbusd_avx_epi32(dot, low.halves[half], low_x);
          dot = _mm256_dpbusd_avx_epi32(dot, high.halves[half], high_x);
        }
      }
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256 weight_scales = _mm256_cvtph_ps(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(group + kNibbleBytes + 16 * half)));
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m256 scale = _mm256_mul_ps(weight_scales, _mm256_set1_ps(x[r].scale));
        sums[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][half]), scale, sums[r][half]);
      }
    }
  }
  for (int r = 0; r < Rows; ++r) Store(block, row + r, tile, sums[r]);
}

void Q4(const LinearBlock& block) {
  static constexpr Chunk kChunks[] = {nullptr, Q4Chunk<1>, Q4Chunk<2>, Q4Chunk<3>, Q4Chunk<4>};
  ForChunks(block, kChunks, 4, block.tile_begin, block.tile_end, 1);
}

}  // namespace

void (*const kQ4AvxVnni)(const LinearBlock&) = Q4;

}  // namespace aiomlc

#else

namespace aiomlc {

void (*const kQ4AvxVnni)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_AVXVNNI)
