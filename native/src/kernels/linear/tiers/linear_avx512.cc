#if defined(__x86_64__)

#include "kernels/linear/base/linear_avx512.h"

#include "kernels/linear/base/bf16_lanes.h"

namespace aiomlc {

namespace {

// With fewer rows, memory is the bottleneck rather than arithmetic.
constexpr int kPairRows = 5;

/*! \brief A group of one tile: in each of 8 registers four inputs of the 16 outputs, as 0 to 15. */
struct Quads {
  __m512i quads[8];
};

[[gnu::always_inline]] inline Quads LoadQuads(const uint8_t* weights) {
  const __m512i low_nibbles = _mm512_set1_epi8(15);
  Quads group;
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i bytes = _mm512_loadu_si512(weights + 64 * i);
    group.quads[i] = _mm512_and_si512(bytes, low_nibbles);
    group.quads[4 + i] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_nibbles);
  }
  return group;
}

struct Avx512Dot {
  using Lanes = Avx512Lanes;
  static constexpr int kMaxRows = 16;

  template <int kRows, typename Emit>
  [[gnu::always_inline]] static void ForDots(const uint8_t* weights, const ActivationGroup* x,
                                             Emit emit) {
    const Quads group = LoadQuads(weights);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      __m512i dot = _mm512_set1_epi32(x[r].offset);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        dot = _mm512_dpbusd_epi32(dot, group.quads[i], BroadcastFour(x[r].values + 4 * i));
      }
      emit(r, {dot});
    }
  }
};

/*!
 * \brief Multiplies `kRows` rows by two adjacent tiles of q4 weights, so that each loaded
 * activation is used twice.
 *
 * The weights fill the registers, so the sums stay in the first-level cache. This is faster when
 * arithmetic is the bottleneck.
 */
struct Q4PairKernel {
  template <int kRows>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row) {
    const int64_t groups = GroupsOf(block.num_inputs);
    const int64_t tile_bytes = groups * kGroupBytes;
    const uint8_t* weights = static_cast<const uint8_t*>(block.packed) + tile * tile_bytes;
    const ActivationGroup* x = block.activations + row * groups;

    alignas(64) float sums[kRows][2][kTileRows] = {};
    for (int64_t g = 0; g < groups; ++g, x += kRows, weights += kGroupBytes) {
      PrefetchGroup<kPrefetchDistancePerStream>(weights);
      const Quads left = LoadQuads(weights);
      const __m512 left_scales = LoadScales<Avx512Lanes>(weights).all;
      PrefetchGroup<kPrefetchDistancePerStream>(weights + tile_bytes);
      const Quads right = LoadQuads(weights + tile_bytes);
      const __m512 right_scales = LoadScales<Avx512Lanes>(weights + tile_bytes).all;
#pragma GCC unroll 1
      for (int r = 0; r < kRows; ++r) {
        __m512i left_dot = _mm512_set1_epi32(x[r].offset);
        __m512i right_dot = left_dot;
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          const __m512i four = BroadcastFour(x[r].values + 4 * i);
          left_dot = _mm512_dpbusd_epi32(left_dot, left.quads[i], four);
          right_dot = _mm512_dpbusd_epi32(right_dot, right.quads[i], four);
        }
        float* sum = sums[r][0];
        _mm512_store_ps(sum, AddScaledDot(left_dot, left_scales, x[r], _mm512_load_ps(sum)));
        sum = sums[r][1];
        _mm512_store_ps(sum, AddScaledDot(right_dot, right_scales, x[r], _mm512_load_ps(sum)));
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < 2; ++t) StoreSums(block, row + r, tile + t, _mm512_load_ps(sums[r][t]));
    }
  }
};

void Q4OnPairs(const LinearBlock& block) {
  LinearBlock rest = block;
  if (block.row_end - block.row_begin >= kPairRows) {
    rest.tile_begin = block.tile_end - (block.tile_end - block.tile_begin) % 2;
    ForChunks<Q4PairKernel, kPanelRows>(block, block.tile_begin, rest.tile_begin, 2);
  }
  Q4<Avx512Dot>(rest);
}

}  // namespace

void QuantizeSignedAvx512(const QuantizeBlock& block) {
  QuantizeRows<Avx512Lanes, SignedGroup>(block);
}

void Q4StreamsAvx512(const LinearBlock& block) {
  Q4OnPairs(Q4Streams<Avx512Dot, kPairRows - 1>(block));
}

constinit const LinearKernels kLinearAvx512 = {QuantizeRows<Avx512Lanes, ActivationGroup>,
                                               QuantizeRows<Avx512Lanes, BiasedGroup>,
                                               QuantizeRows<Avx512Lanes, BF16Group>,
                                               WritePanel<Avx512Lanes>,
                                               Q4OnPairs,
                                               BF16Kernel<WidenedPairs<Avx512Lanes>>::Run,
                                               Dense<Avx512Lanes, Half>,
                                               Dense<Avx512Lanes, float>,
                                               GroupedAvx512};

}  // namespace aiomlc

#endif  // defined(__x86_64__)
