#if defined(__x86_64__)

#include "kernels/linear/base/bf16_lanes.h"
#include "kernels/linear/base/linear_avx512.h"
#include "kernels/simd/bf16_pairs_avx512.h"

namespace aiomlc {

#if defined(AIOMLC_AVX512BF16)
void (*const kBF16Avx512BF16)(const LinearBlock&) = BF16Kernel<Avx512Pairs>::Run;
#else
void (*const kBF16Avx512BF16)(const LinearBlock&) = nullptr;
#endif

}  // namespace aiomlc

#endif  // defined(__x86_64__)
