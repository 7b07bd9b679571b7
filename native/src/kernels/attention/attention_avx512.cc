#if defined(__x86_64__)
#include "kernels/attention/attention_tier.h"
#include "kernels/simd/simd_avx512.h"

namespace aiomlc {

void AttendTileAvx512(const AttentionTile& tile, const TileWork& work,
                      const AttentionScratch& scratch) {
  AttendTile<Avx512Lanes>(tile, work, scratch);
}

}  // namespace aiomlc

#endif  // defined(__x86_64__)
