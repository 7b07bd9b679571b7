#include <algorithm>
#include <cstring>

#include "kernels/linear/format/grouped_tile.h"
#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/pack.h"
#include "platform/float_types.h"

namespace aiomlc {

namespace {

constexpr int64_t kQuads = 8;                  // Of a chunk.
constexpr int64_t kQuadBytes = 4 * kTileRows;  // The codes of a quad.
constexpr int64_t kChunkCodes = kQuads * kQuadBytes;
constexpr int64_t kHalfBytes = 2;

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

/*! \return The index of a code in the quads of a chunk. */
int64_t QuadIndex(int64_t output, int64_t input) {
  return input / 4 * kQuadBytes + output * 4 + input % 4;
}

/*! \brief A bit plane: `quads_per_byte` codes of `bits` bits in a byte, of bits from `shift` on. */
struct Plane {
  int bits;
  int shift;   // The lowest of its bits in a code.
  int offset;  // In the chunk, in bytes.
};

/*! \brief Call `visit` for the planes of codes of `bits` bits, lowest bits first. */
template <typename Visit>
void ForPlanes(int bits, Visit visit) {
  int shift = 0;
  int offset = 0;
  for (const int width : {8, 4, 2, 1}) {
    if ((bits & width) == 0) continue;
    visit(Plane{width, shift, offset});
    shift += width;
    offset += static_cast<int>(kChunkCodes / 8) * width;
  }
}

/*! \brief Write the bit plane of `kBits` bits from `kShift` on of the codes of a chunk. */
template <int kBits, int kShift>
void WritePlane(const uint8_t (&codes)[kChunkCodes], uint8_t* chunk) {
  constexpr int64_t kInByte = 8 / kBits;
  // The quads of adjacent bits of a byte are this far apart.
  constexpr int64_t kStride = kBits == 4 ? 4 : 1;
  uint8_t* plane = chunk + kChunkCodes / 8 * kShift;
  for (int64_t j = 0; j < kBits; ++j, plane += kQuadBytes) {
    const uint8_t* first = codes + (kStride == 1 ? j * kInByte : j) * kQuadBytes;
    uint8_t bytes[kQuadBytes];  // A local array, so that the loop is vectorized.
    for (int64_t i = 0; i < kQuadBytes; ++i) {
      unsigned byte = 0;
      for (int64_t f = 0; f < kInByte; ++f) {
        const unsigned code = first[f * kStride * kQuadBytes + i];
        byte |= ((code >> kShift) & ((1u << kBits) - 1)) << (f * kBits);
      }
      bytes[i] = static_cast<uint8_t>(byte);
    }
    std::memcpy(plane, bytes, sizeof(bytes));
  }
}

/*! \brief Write the codes of a chunk, in the order of `QuadIndex`, as bit planes. */
template <int kBits>
void WritePlanes(const uint8_t (&codes)[kChunkCodes], uint8_t* chunk) {
  if constexpr (kBits == 8) {
    std::memcpy(chunk, codes, sizeof(codes));
  } else {
    if constexpr ((kBits & 4) != 0) WritePlane<4, 0>(codes, chunk);
    if constexpr ((kBits & 2) != 0) WritePlane<2, kBits & 4>(codes, chunk);
    if constexpr ((kBits & 1) != 0) WritePlane<1, kBits & 6>(codes, chunk);
  }
}

using PlanesWriter = void (*)(const uint8_t (&)[kChunkCodes], uint8_t*);

/*! \brief `WritePlanes` for codes of 1 to 8 bits. */
constexpr PlanesWriter kPlanesWriters[] = {nullptr,        WritePlanes<1>, WritePlanes<2>,
                                           WritePlanes<3>, WritePlanes<4>, WritePlanes<5>,
                                           WritePlanes<6>, WritePlanes<7>, WritePlanes<8>};

/*! \return A code of a chunk. */
int ReadCode(int bits, const uint8_t* chunk, int64_t index) {
  const int64_t quad = index / kQuadBytes;
  int code = 0;
  ForPlanes(bits, [&](const Plane& plane) {
    const int64_t in_byte = 8 / plane.bits;
    const int64_t j = plane.bits == 4 ? quad % 4 : quad / in_byte;
    const int64_t f = plane.bits == 4 ? quad / 4 : quad % in_byte;
    const int byte = chunk[plane.offset + j * kQuadBytes + index % kQuadBytes];
    code |= ((byte >> (f * plane.bits)) & ((1 << plane.bits) - 1)) << plane.shift;
  });
  return code;
}

/*! \brief Packs rows; the outputs after the last row have the code, scale and zero 0. */
class TilePacker {
 public:
  TilePacker(MatrixFormat format, const GroupedRows& rows)
      : rows_(rows),
        tile_(GroupedTileOf(format)),
        groups_(CeilDivide(rows.cols, format.group)),
        supers_(CeilDivide(rows.cols, kSuperGroupSize)),
        is_super_(rows.super_scales != nullptr) {}

  void Pack(uint8_t* packed) const {
    const int64_t blocks = BlocksOf(tile_, rows_.cols);
    for (int64_t row = 0; row < rows_.rows; row += kTileRows) {
      const int64_t count = std::min(kTileRows, rows_.rows - row);
      for (int64_t block = 0; block < blocks; ++block, packed += tile_.block_bytes) {
        std::memset(packed, 0, static_cast<size_t>(tile_.codes));
        for (int64_t n = 0; n < count; ++n) PackNumbers(row + n, n, block, packed);
        for (int64_t c = 0; c < tile_.block_chunks; ++c) {
          PackChunk(row, count, (block * tile_.block_chunks + c) * kChunkSize,
                    packed + tile_.codes + c * tile_.chunk_bytes);
        }
      }
    }
  }

 private:
  /*! \brief Pack the scales, zero points and minima of a row. \param n The output in the tile. */
  void PackNumbers(int64_t row, int64_t n, int64_t block, uint8_t* packed) const {
    if (is_super_) {
      Copy(rows_.super_scales, row * supers_ + block, kHalfBytes, packed + kHalfBytes * n);
      if (tile_.zero == ZeroType::kMinima) {
        Copy(rows_.super_minima, row * supers_ + block, kHalfBytes,
             packed + tile_.super_minima + kHalfBytes * n);
      }
    }
    for (int64_t g = 0; g < tile_.block_groups; ++g) {
      const int64_t group = block * tile_.block_groups + g;
      if (group >= groups_) return;
      PackGroup(rows_.scales, row * groups_ + group, tile_.scale_bytes, n,
                packed + tile_.scales + g * tile_.scale_bytes);
      PackGroup(rows_.zeros, row * groups_ + group, tile_.zero_bytes, n,
                packed + tile_.zeros + g * tile_.zero_bytes);
    }
  }

  /*! \param bytes The bytes of the 16 outputs of a group. */
  static void PackGroup(const void* source, int64_t index, int64_t bytes, int64_t n,
                        uint8_t* packed) {
    if (bytes == 0) return;
    const int64_t element = bytes / kTileRows;
    Copy(source, index, element, packed + n * element);
  }

  /*! \brief Copy an element of 1, 2 or 4 bytes, which is faster if the size is a constant. */
  static void Copy(const void* source, int64_t index, int64_t bytes, uint8_t* packed) {
    const uint8_t* element = static_cast<const uint8_t*>(source) + index * bytes;
    if (bytes == 1) std::memcpy(packed, element, 1);
    if (bytes == 2) std::memcpy(packed, element, 2);
    if (bytes == 4) std::memcpy(packed, element, 4);
  }

  void PackChunk(int64_t row, int64_t count, int64_t first, uint8_t* packed) const {
    uint8_t codes[kChunkCodes] = {};
    const int64_t inputs = std::min(kChunkSize, rows_.cols - first);
    for (int64_t n = 0; n < count; ++n) {
      const uint8_t* source = rows_.codes + (row + n) * rows_.cols + first;
      int64_t k = 0;
      for (; k + 4 <= inputs; k += 4) std::memcpy(codes + QuadIndex(n, k), source + k, 4);
      for (; k < inputs; ++k) codes[QuadIndex(n, k)] = source[k];
    }
    kPlanesWriters[tile_.bits](codes, packed);
  }

  const GroupedRows& rows_;
  GroupedTile tile_;
  int64_t groups_, supers_;
  bool is_super_;
};

/*! \brief Reads the numbers of one output of a block. */
class OutputReader {
 public:
  OutputReader(const GroupedTile& tile, const uint8_t* block, int64_t n)
      : tile_(tile), block_(block), n_(n) {}

  float Weight(int64_t input) const {
    const uint8_t* chunk = block_ + tile_.codes + input / kChunkSize * tile_.chunk_bytes;
    const int code = ReadCode(tile_.bits, chunk, QuadIndex(n_, input % kChunkSize));
    const int64_t group = input / tile_.group;
    const float scale = Super(0) * ScaleNumber(tile_.scale, block_ + tile_.scales, At(group));
    const uint8_t* zeros = block_ + tile_.zeros;
    if (tile_.code == CodeType::kE2M1) return scale * kE2M1Values[code];
    if (tile_.code == CodeType::kIQ4NL) return scale * kIQ4NLValues[code];
    switch (tile_.zero) {
      case ZeroType::kConstant:
        return scale * static_cast<float>(code - tile_.constant);
      case ZeroType::kPoints:
        return scale * static_cast<float>(code - zeros[At(group)]);
      case ZeroType::kMinima:
        break;
    }
    const ScaleType type = tile_.scale == ScaleType::kK8S ? ScaleType::kK8 : tile_.scale;
    const float product = scale * static_cast<float>(code);
    return product - Super(tile_.super_minima) * ScaleNumber(type, zeros, At(group));
  }

 private:
  int64_t At(int64_t group) const { return group * kTileRows + n_; }

  float Super(int64_t offset) const {
    if (tile_.scale != ScaleType::kK8 && tile_.scale != ScaleType::kK8S) return 1.0f;
    return ScaleNumber(ScaleType::kF16, block_ + offset, n_);
  }

  const GroupedTile& tile_;
  const uint8_t* block_;
  int64_t n_;
};

}  // namespace

void PackGrouped(MatrixFormat format, const GroupedRows& rows, void* packed) {
  TilePacker(format, rows).Pack(static_cast<uint8_t*>(packed));
}

void EmbedGroupedRow(MatrixFormat format, const void* packed, int64_t hidden, int64_t row,
                     float* out) {
  const GroupedTile tile = GroupedTileOf(format);
  const int64_t block_inputs = tile.block_chunks * kChunkSize;
  const uint8_t* block = static_cast<const uint8_t*>(packed) +
                         row / kTileRows * BlocksOf(tile, hidden) * tile.block_bytes;
  for (int64_t first = 0; first < hidden; first += block_inputs, block += tile.block_bytes) {
    const OutputReader reader(tile, block, row % kTileRows);
    const int64_t count = std::min(block_inputs, hidden - first);
    for (int64_t k = 0; k < count; ++k) out[first + k] = reader.Weight(k);
  }
}

}  // namespace aiomlc
