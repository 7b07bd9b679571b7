#include "kernels/linear/channel/channel_kernels.h"

#if defined(AIOMLC_AVXVNNI)

#include "kernels/linear/channel/channel_avx2.h"

namespace aiomlc {

namespace {

class BiasedProducts {
 public:
  static constexpr uint8_t kBias = kByteBias;

  explicit BiasedProducts(__m256i weights) : weights_(weights) {}

  [[gnu::always_inline]] __m256i Add(__m256i sums, __m256i four) const {
    return _mm256_dpbusd_avx_epi32(sums, four, weights_);
  }

 private:
  __m256i weights_;
};

}  // namespace

constinit const ChannelKernels kChannelAvxVnni =
    ChannelKernelsOf<ChannelDotOf256<BiasedProducts>>();

}  // namespace aiomlc

#elif defined(__x86_64__)

namespace aiomlc {

constinit const ChannelKernels kChannelAvxVnni = {nullptr, nullptr, nullptr, nullptr};

}  // namespace aiomlc

#endif  // defined(AIOMLC_AVXVNNI)
