#if defined(__x86_64__)

#include "kernels/linear/channel/channel_avx2.h"

namespace aiomlc {

namespace {

/*!
 * \brief The signs of the weights move to the activations, because one factor must be unsigned: a
 * pair of products is at most 2 * 128 * 127, which fits into 16 bits.
 */
class SignedProducts {
 public:
  static constexpr uint8_t kBias = 0;

  explicit SignedProducts(__m256i weights)
      : weights_(weights), magnitudes_(_mm256_abs_epi8(weights)) {}

  [[gnu::always_inline]] __m256i Add(__m256i sums, __m256i four) const {
    const __m256i pairs = _mm256_maddubs_epi16(magnitudes_, _mm256_sign_epi8(four, weights_));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }

 private:
  __m256i weights_, magnitudes_;
};

}  // namespace

constinit const ChannelKernels kChannelAvx2 = {
    QuantizeChannelRow<Avx2Lanes, SignedProducts::kBias>,
    ChannelKernel<ChannelDotOf256<SignedProducts>, Int8Matrix>::Run, RotateRow<Avx2Lanes>,
    ProgressiveAvx2};

}  // namespace aiomlc

#endif  // defined(__x86_64__)
