#if defined(__x86_64__)

#include <cstddef>
#include <cstdint>

#include "kernels/linear/base/linear_avx2.h"
#include "kernels/linear/channel/channel_lanes.h"
#include "kernels/linear/format/progressive_tile.h"

namespace aiomlc {

namespace {

/*! \brief The sums of both halves of 64 activations, for the offsets. */
struct InputSums {
  int16_t halves[2];
};

/*!
 * \brief Multiplies panels by one tile at a time.
 *
 * Without an instruction for sums of four products, those of signed bytes take several. Products of
 * codes and activations are sums of pairs that fit into 16 bits, and so does the sum over 32 inputs
 * (16 * 15 * 127 in each of two parts). Then one instruction multiplies it by the scale.
 */
class ProgressiveTiles {
 public:
  explicit ProgressiveTiles(const LinearBlock& block)
      : block_(block), groups_(ChannelGroupsOf(block.num_inputs)), input_sums_(SumInputs()) {}

  void Multiply() {
    for (int64_t tile = block_.tile_begin; tile < block_.tile_end; ++tile) {
      for (int64_t row = block_.row_begin; row < block_.row_end; row += kPanelRows) {
        MultiplyPanel(tile, PanelOf(row, block_.row_end));
      }
    }
  }

 private:
  const uint8_t* PanelAt(int64_t row) const {
    return block_.int8_rows + row * ChannelRowBytes(block_.num_inputs);
  }

  /*! \return The sums of all rows, in the order of the panels. */
  const InputSums* SumInputs() const {
    const int64_t rows = block_.row_end - block_.row_begin;
    auto* sums = reinterpret_cast<InputSums*>(
        KernelScratch(rows * groups_ * static_cast<int64_t>(sizeof(InputSums))));
    for (int64_t row = block_.row_begin; row < block_.row_end; row += kPanelRows) {
      const int64_t height = PanelOf(row, block_.row_end).height;
      const uint8_t* x = PanelAt(row);
      InputSums* panel = sums + (row - block_.row_begin) * groups_;
      for (int64_t i = 0; i < height * groups_; ++i, x += kChannelGroup) {
        panel[i] = {{SumOf32(x), SumOf32(x + kGroupSize)}};
      }
    }
    return sums;
  }

  static int16_t SumOf32(const uint8_t* x) {
    const __m256i values = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i biased = _mm256_xor_si256(values, _mm256_set1_epi8(static_cast<char>(kByteBias)));
    const __m256i eights = _mm256_sad_epu8(biased, _mm256_setzero_si256());
    const __m128i fours =
        _mm_add_epi64(_mm256_castsi256_si128(eights), _mm256_extracti128_si256(eights, 1));
    const int64_t sum = _mm_cvtsi128_si64(fours) + _mm_extract_epi64(fours, 1);
    return static_cast<int16_t>(sum - kByteBias * kGroupSize);
  }

  void MultiplyPanel(int64_t tile, const PanelCursor& at) {
    alignas(64) int32_t sums[kPanelRows][kTileRows] = {};
    const uint8_t* packed = ProgressiveMatrix::TileAt(block_, tile);
    const auto* weights = reinterpret_cast<const ProgressiveGroup*>(packed + sizeof(ChannelTile));
    const uint8_t* x = PanelAt(at.panel);
    const InputSums* input_sums = input_sums_ + (at.panel - block_.row_begin) * groups_;
    for (int64_t g = 0; g < groups_; ++g, ++weights) {
      for (size_t line = 0; line < sizeof(*weights); line += 64) {
        __builtin_prefetch(reinterpret_cast<const uint8_t*>(weights) + kPrefetchDistance + line);
      }
      for (int part = 0; part < 2; ++part) AddGroup(*weights, part, x, input_sums, at.height, sums);
      x += at.height * kChannelGroup;
      input_sums += at.height;
    }
    for (int64_t r = 0; r < at.height; ++r) {
      const float x_scale = ChannelScaleOf(block_, {at.panel, at.height, r});
      StoreChannelSums<Avx2Lanes, ProgressiveMatrix>(block_, at.panel + r, tile, x_scale, sums[r]);
    }
  }

  /*! \brief Add the products of 64 inputs and 8 outputs. \param part The first or the last 8. */
  [[gnu::always_inline]] static void AddGroup(const ProgressiveGroup& weights, int part,
                                              const uint8_t* x, const InputSums* input_sums,
                                              int64_t rows, int32_t (*sums)[kTileRows]) {
    const __m256i numbers =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights.numbers) + part);
    const __m256i offsets = _mm256_srai_epi16(numbers, 8);
    for (int half = 0; half < 2; ++half) {
      const __m256i scale =
          _mm256_and_si256(_mm256_srli_epi32(numbers, 16 * half), _mm256_set1_epi32(0xff));
      const __m256i scales = _mm256_or_si256(scale, _mm256_slli_epi32(scale, 16));
      __m256i codes[8];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m256i plane =
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights.codes[half][j]) + part);
        codes[j] = _mm256_and_si256(plane, _mm256_set1_epi8(15));
        codes[4 + j] = _mm256_and_si256(_mm256_srli_epi32(plane, 4), _mm256_set1_epi8(15));
      }
      for (int64_t r = 0; r < rows; ++r) {
        const uint8_t* inputs = x + r * kChannelGroup + half * kGroupSize;
        __m256i dots = _mm256_maddubs_epi16(codes[0], BroadcastFour(inputs));
#pragma GCC unroll 7
        for (int i = 1; i < 8; ++i) {
          dots =
              _mm256_add_epi16(dots, _mm256_maddubs_epi16(codes[i], BroadcastFour(inputs + 4 * i)));
        }
        auto* target = reinterpret_cast<__m256i*>(sums[r]) + part;
        __m256i sum = _mm256_add_epi32(_mm256_load_si256(target), _mm256_madd_epi16(dots, scales));
        if (half == 0) {
          int32_t pair;
          __builtin_memcpy(&pair, input_sums + r, sizeof(pair));
          sum = _mm256_add_epi32(sum, _mm256_madd_epi16(offsets, _mm256_set1_epi32(pair)));
        }
        _mm256_store_si256(target, sum);
      }
    }
  }

  const LinearBlock& block_;
  int64_t groups_;
  const InputSums* input_sums_;  //!< [panel][group][row].
};

}  // namespace

void ProgressiveAvx2(const LinearBlock& block) { ProgressiveTiles(block).Multiply(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
