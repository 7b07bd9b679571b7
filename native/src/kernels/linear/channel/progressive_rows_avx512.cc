#if defined(__x86_64__)

#include <cstdint>
#include <utility>

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/channel/channel_lanes.h"
#include "kernels/linear/format/progressive_tile.h"

namespace aiomlc {

namespace {

/*! \brief 64 activations of a row for weights without their offsets. */
struct SignedInputs {
  int8_t values[kChannelGroup];
};

/*! \brief The sums of the halves of `SignedInputs`, for the offsets. */
struct InputSums {
  int16_t halves[2];
};

/*! \brief A panel of up to kPanelRows rows for the kernel below. */
struct SignedPanel {
  const SignedInputs* inputs;  //!< [group][row].
  const InputSums* sums;       //!< [group][row].
};

/*! \return The sums of the halves of 64 activations, whose bytes are biased. */
InputSums SumHalves(__m512i biased) {
  const __m512i eights = _mm512_sad_epu8(biased, _mm512_setzero_si512());
  const __m256i low = _mm512_castsi512_si256(eights);
  const __m256i high = _mm512_extracti64x4_epi64(eights, 1);
  // Of each 16 bytes: the sum of the first half and that of the second.
  const __m256i halves =
      _mm256_add_epi64(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high));
  const __m128i sums =
      _mm_add_epi64(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  constexpr int64_t kBias = kByteBias * kGroupSize;
  return {{static_cast<int16_t>(_mm_cvtsi128_si64(sums) - kBias),
           static_cast<int16_t>(_mm_extract_epi64(sums, 1) - kBias)}};
}

/*! \brief Subtract the bias of a panel of activations, and sum them. */
SignedPanel SignedPanelOf(const LinearBlock& block, int64_t rows) {
  const int64_t count = ChannelGroupsOf(block.num_inputs) * rows;
  constexpr auto kInputBytes = static_cast<int64_t>(sizeof(SignedInputs));
  constexpr auto kSumBytes = static_cast<int64_t>(sizeof(InputSums));
  auto* inputs = reinterpret_cast<SignedInputs*>(KernelScratch(count * (kInputBytes + kSumBytes)));
  auto* sums = reinterpret_cast<InputSums*>(inputs + count);
  const uint8_t* x = block.int8_rows + block.row_begin * ChannelRowBytes(block.num_inputs);
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(kByteBias));
  for (int64_t i = 0; i < count; ++i) {
    const __m512i biased = _mm512_loadu_si512(x + i * kChannelGroup);
    _mm512_storeu_si512(inputs + i, _mm512_xor_si512(biased, bias));
    sums[i] = SumHalves(biased);
  }
  return {inputs, sums};
}

/*! \brief Add the products of 64 inputs to the sums of some rows. */
template <int kRows>
[[gnu::always_inline]] inline void AddGroup(const ProgressiveGroup& weights,
                                            const SignedInputs* inputs, const InputSums* input_sums,
                                            __m512i (&sums)[kRows]) {
#pragma GCC unroll 9
  for (int line = 0; line < static_cast<int>(sizeof(weights)); line += 64) {
    __builtin_prefetch(reinterpret_cast<const uint8_t*>(&weights) + kPrefetchDistance + line);
  }
  const __m512i low_bits = _mm512_set1_epi8(15);
  const __m512i numbers = _mm512_loadu_si512(weights.numbers);
  const __m512i offsets = _mm512_srai_epi16(numbers, 8);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    int32_t halves;
    __builtin_memcpy(&halves, input_sums + r, sizeof(halves));
    sums[r] = _mm512_dpwssd_epi32(sums[r], offsets, _mm512_set1_epi32(halves));
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const __m512i scale =
        _mm512_and_si512(_mm512_srli_epi32(numbers, 16 * half), _mm512_set1_epi32(0xff));
    const __m512i scales = _mm512_or_si512(scale, _mm512_slli_epi32(scale, 16));
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i plane = _mm512_loadu_si512(weights.codes[half][j]);
      const __m512i codes[] = {_mm512_and_si512(plane, low_bits),
                               _mm512_and_si512(_mm512_srli_epi32(plane, 4), low_bits)};
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m512i products = _mm512_mullo_epi16(codes[i], scales);
        const int first = 32 * half + 16 * i + 4 * j;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          int32_t four;
          __builtin_memcpy(&four, inputs[r].values + first, sizeof(four));
          sums[r] = _mm512_dpbusd_epi32(sums[r], products, _mm512_set1_epi32(four));
        }
      }
    }
  }
}

/*!
 * \brief Multiplies a few rows by one tile at a time, without unpacking it to memory.
 *
 * The sums are exact, so they are those of the other kernels: of `scale * code`, an unsigned byte,
 * times the activations, and of the offsets times the sums of the activations.
 */
template <int kRows>
void MultiplyFewRows(const LinearBlock& block) {
  const SignedPanel panel = SignedPanelOf(block, kRows);
  const int64_t groups = ChannelGroupsOf(block.num_inputs);
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    const uint8_t* packed = ProgressiveMatrix::TileAt(block, tile);
    const auto* weights = reinterpret_cast<const ProgressiveGroup*>(packed + sizeof(ChannelTile));
    __m512i sums[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_si512();
    const SignedInputs* inputs = panel.inputs;
    const InputSums* input_sums = panel.sums;
    for (int64_t g = 0; g < groups; ++g, ++weights, inputs += kRows, input_sums += kRows) {
      AddGroup<kRows>(*weights, inputs, input_sums, sums);
    }
    const auto* header = reinterpret_cast<const ChannelTile*>(packed);
    const Avx512Lanes::Vector scales = Avx512Lanes::Load(header->scales);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float x_scale = ChannelScaleOf(block, {block.row_begin, kRows, r});
      StoreScaled<Avx512Lanes>(block, block.row_begin + r, tile, scales, x_scale, {sums[r]});
    }
  }
}

template <int... kRow>
void MultiplyFewRows(const LinearBlock& block, int64_t rows,
                     std::integer_sequence<int, kRow...> /*counts*/) {
  using Function = void (*)(const LinearBlock&);
  static constexpr Function kFunctions[] = {MultiplyFewRows<kRow + 1>...};
  kFunctions[rows - 1](block);
}

}  // namespace

void FewProgressiveRowsAvx512(const LinearBlock& block) {
  MultiplyFewRows(block, block.row_end - block.row_begin,
                  std::make_integer_sequence<int, static_cast<int>(kPanelRows)>());
}

}  // namespace aiomlc

#endif  // defined(__x86_64__)
