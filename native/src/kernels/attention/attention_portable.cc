#include "kernels/attention/attention_tier.h"
#include "kernels/simd/simd_portable.h"

namespace aiomlc {

void AttendTilePortable(const AttentionTile& tile, const TileWork& work,
                        const AttentionScratch& scratch) {
  AttendTile<PortableLanes>(tile, work, scratch);
}

}  // namespace aiomlc
