#include "prompt/rope_positions.h"

#include <algorithm>
#include <array>

namespace aiomlc {

bool HasGrids(std::span<const PieceKey> pieces) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const PieceKey& piece) { return !piece.grid.is_empty(); });
}

void WriteRopePositions(std::span<const PieceKey> pieces, int64_t begin, int64_t end,
                        int64_t stride, int32_t* out) {
  int64_t offset = 0;  // From the index of a token to its position.
  int64_t next = begin;
  const auto write = [&](const std::array<int64_t, kRopeAxes>& position) {
    for (int64_t axis = 0; axis < kRopeAxes; ++axis) {
      out[axis * stride + next - begin] = static_cast<int32_t>(position[static_cast<size_t>(axis)]);
    }
    ++next;
  };
  const auto write_text = [&](int64_t text_end) {
    while (next < text_end) {
      const int64_t position = next + offset;
      write({position, position, position});
    }
  };
  for (const PieceKey& piece : pieces) {
    if (piece.begin >= end) break;
    const PieceGrid& grid = piece.grid;
    if (grid.is_empty()) continue;
    write_text(std::min(piece.begin, end));
    const int64_t first = piece.begin + offset;
    while (next < std::min(piece.end(), end)) {
      const int64_t row = next - piece.begin;
      write({first + row / (grid.height * grid.width), first + row / grid.width % grid.height,
             first + row % grid.width});
    }
    offset += grid.num_rope_positions() - piece.num_positions;
  }
  write_text(end);
}

}  // namespace aiomlc
