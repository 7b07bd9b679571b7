#if defined(__aarch64__)
#include "kernels/attention/attention_tier.h"
#include "kernels/simd/simd_neon.h"

namespace aiomlc {

void AttendTileNeon(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch) {
  AttendTile<NeonLanes>(tile, work, scratch);
}

}  // namespace aiomlc

#endif  // defined(__aarch64__)
