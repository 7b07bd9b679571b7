#if defined(__x86_64__)
#include "kernels/attention/attention_tier.h"
#include "kernels/simd/bf16_pairs_avx512.h"

namespace aiomlc {

#if defined(AIOMLC_AVX512BF16)
void (*const kAttendPairsTileAvx512)(const AttentionTile&, const TileWork&,
                                     const AttentionScratch&) = AttendPairsTile<Avx512Pairs>;
#else
void (*const kAttendPairsTileAvx512)(const AttentionTile&, const TileWork&,
                                     const AttentionScratch&) = nullptr;
#endif

}  // namespace aiomlc

#endif  // defined(__x86_64__)
