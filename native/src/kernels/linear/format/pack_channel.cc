#include <algorithm>
#include <cstring>

#include "kernels/linear/format/channel_tile.h"
#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/pack.h"

namespace aiomlc {

void PackChannel(const GroupedRows& rows, void* packed) {
  const int64_t tile_bytes = ChannelTileBytes(rows.cols);
  const auto* scales = static_cast<const float*>(rows.scales);
  auto* tile = static_cast<uint8_t*>(packed);
  for (int64_t row = 0; row < rows.rows; row += kTileRows, tile += tile_bytes) {
    std::memset(tile, 0, static_cast<size_t>(tile_bytes));
    ChannelTile header = {};
    for (int64_t n = 0; n < std::min(kTileRows, rows.rows - row); ++n) {
      header.scales[n] = scales[row + n];
      const uint8_t* codes = rows.codes + (row + n) * rows.cols;
      for (int64_t k = 0; k < rows.cols; ++k) {
        const int weight = codes[k] - kByteBias;
        header.sums[n] += weight;
        tile[sizeof(ChannelTile) + ChannelWeightIndex(n, k)] = static_cast<uint8_t>(weight);
      }
    }
    std::memcpy(tile, &header, sizeof(header));
  }
}

void EmbedChannelRow(const void* packed, int64_t hidden, int64_t row, float* out) {
  const uint8_t* tile =
      static_cast<const uint8_t*>(packed) + row / kTileRows * ChannelTileBytes(hidden);
  ChannelTile header;
  std::memcpy(&header, tile, sizeof(header));
  const int64_t n = row % kTileRows;
  for (int64_t k = 0; k < hidden; ++k) {
    const uint8_t weight = tile[sizeof(ChannelTile) + ChannelWeightIndex(n, k)];
    out[k] = header.scales[n] * static_cast<float>(static_cast<int8_t>(weight));
  }
}

}  // namespace aiomlc
