#include "attention_tile.h"
#include "simd_portable.h"

namespace aiomlc {

void AttendTilePortable(const AttentionTile& tile, const AttentionScratch& scratch) {
  AttendTile<PortableLanes>(tile, scratch);
}

}  // namespace aiomlc
