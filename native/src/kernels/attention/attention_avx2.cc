#if defined(__x86_64__)
#include "kernels/attention/attention_tier.h"
#include "kernels/simd/simd_avx2.h"

namespace aiomlc {

void AttendTileAvx2(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch) {
  AttendTile<Avx2Lanes>(tile, work, scratch);
}

}  // namespace aiomlc

#endif  // defined(__x86_64__)
