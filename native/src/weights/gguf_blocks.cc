#include "weights/gguf_blocks.h"

#include <cstring>

#include "weights/source_floats.h"

namespace aiomlc {

namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kSuperBlock = 256;
constexpr int64_t kHalf = 2;  // The bytes of a float16.

uint16_t ReadHalf(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return half;
}

void WriteHalf(uint8_t* halves, int64_t index, uint16_t half) {
  std::memcpy(halves + kHalf * index, &half, sizeof(half));
}

/*! \brief Add the bits of 4 bytes, in ascending order, to 32 codes as their bit `shift`. */
void AddBits(const uint8_t* bytes, int shift, uint8_t* codes) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  for (int64_t i = 0; i < kBlock / 8; ++i) {
    uint64_t eight;
    std::memcpy(&eight, codes + 8 * i, sizeof(eight));
    // Byte k keeps only bit k, which moves to its highest bit by a carry, if it is set.
    const uint64_t bits = bytes[i] * kOnes & 0x8040201008040201u;
    eight |= ((bits + 0x7f * kOnes) >> 7 & kOnes) << shift;
    std::memcpy(codes + 8 * i, &eight, sizeof(eight));
  }
}

/*! \brief Add the bits of 32 bytes to 256 codes as their bit `shift`: the lowest bits first. */
void AddBitColumns(const uint8_t* bytes, int shift, uint8_t* codes) {
  for (int bit = 0; bit < 8; ++bit) {
    uint8_t part[kBlock];
    std::memcpy(part, codes, sizeof(part));
    for (int64_t i = 0; i < kBlock; ++i) part[i] |= ((bytes[i] >> bit) & 1) << shift;
    std::memcpy(codes, part, sizeof(part));
    codes += kBlock;
  }
}

/*! \brief Unpack 16 bytes: the low nibbles, then the high ones. */
void Nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int64_t i = 0; i < kBlock / 2; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + kBlock / 2] = bytes[i] >> 4;
  }
}

/*! \brief Blocks of 32 inputs of 4 or 5 bits: float16 scale, float16 minimum, fifth bits, nibbles.
 */
template <bool kHasMinimum, bool kHasFifthBit>
void DecodeSmall(const uint8_t* block, int64_t index, GroupedRow row) {
  WriteHalf(row.scales, index, ReadHalf(block));
  block += kHalf;
  if constexpr (kHasMinimum) {
    // It is added here and subtracted in the packed format.
    WriteHalf(row.zeros, index, ReadHalf(block) ^ 0x8000u);
    block += kHalf;
  }
  uint8_t* codes = row.codes + index * kBlock;
  if constexpr (kHasFifthBit) {
    Nibbles(block + 4, codes);
    AddBits(block, 4, codes);
  } else {
    Nibbles(block, codes);
  }
}

void DecodeQ8(const uint8_t* block, int64_t index, GroupedRow row) {
  WriteHalf(row.scales, index, ReadHalf(block));
  for (int64_t i = 0; i < kBlock; ++i) row.codes[index * kBlock + i] = block[kHalf + i] ^ 0x80;
}

/*! \brief An exponent, then nibbles; the values of the codes are doubled, so the scale is halved.
 */
void DecodeMXFP4(const uint8_t* block, int64_t index, GroupedRow row) {
  WriteHalf(row.scales, index, HalfOfPower(block[0]));
  Nibbles(block + 1, row.codes + index * kBlock);
}

/*! \brief Unpack 64 bytes: of each 32, the lowest 2 bits first. */
void DecodeTwoBits(const uint8_t* packed, uint8_t* codes) {
  for (int64_t half = 0; half < 2; ++half) {
    for (int shift = 0; shift < 8; shift += 2) {
      uint8_t part[kBlock];  // A local array, so that the loop is vectorized, as those below.
      for (int64_t i = 0; i < kBlock; ++i) part[i] = (packed[half * kBlock + i] >> shift) & 3;
      std::memcpy(codes, part, sizeof(part));
      codes += kBlock;
    }
  }
}

/*! \brief 16 scales and minima of 4 bits, codes of 2 bits, float16 super scale and minimum. */
void DecodeQ2K(const uint8_t* block, int64_t index, GroupedRow row) {
  constexpr int64_t kGroups = 16;
  const uint8_t* packed = block + kGroups;
  for (int64_t g = 0; g < kGroups; ++g) {
    row.scales[index * kGroups + g] = block[g] & 15;
    row.zeros[index * kGroups + g] = block[g] >> 4;
  }
  DecodeTwoBits(packed, row.codes + index * kSuperBlock);
  row.super_scales[index] = ReadHalf(packed + 64);
  row.super_minima[index] = ReadHalf(packed + 64 + kHalf);
}

/*! \brief Third bits, codes of 2 bits, 16 scales of 6 bits, float16 super scale. */
void DecodeQ3K(const uint8_t* block, int64_t index, GroupedRow row) {
  constexpr int64_t kGroups = 16;
  const uint8_t* packed = block + 32;
  const uint8_t* scales = packed + 64;
  for (int64_t g = 0; g < kGroups; ++g) {
    const unsigned low = g < 8 ? scales[g] & 15u : scales[g - 8] >> 4;
    const unsigned high = (scales[8 + g % 4] >> (2 * (g / 4))) & 3u;
    row.scales[index * kGroups + g] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  uint8_t* codes = row.codes + index * kSuperBlock;
  DecodeTwoBits(packed, codes);
  AddBitColumns(block, 2, codes);
  row.super_scales[index] = ReadHalf(scales + 12);
}

/*! \brief The scales and minima of 6 bits of Q4_K and Q5_K, in 12 bytes. */
void DecodeScales(const uint8_t* packed, int64_t index, GroupedRow row) {
  constexpr int64_t kGroups = 8;
  uint8_t* scales = row.scales + index * kGroups;
  uint8_t* minima = row.zeros + index * kGroups;
  for (int64_t g = 0; g < 4; ++g) {
    scales[g] = packed[g] & 63;
    minima[g] = packed[g + 4] & 63;
    scales[g + 4] = static_cast<uint8_t>((packed[g + 8] & 15) | packed[g] >> 6 << 4);
    minima[g + 4] = static_cast<uint8_t>(packed[g + 8] >> 4 | packed[g + 4] >> 6 << 4);
  }
}

/*! \brief Float16 super scale and minimum, scales and minima, fifth bits, nibbles. */
template <bool kHasFifthBit>
void DecodeQ45K(const uint8_t* block, int64_t index, GroupedRow row) {
  row.super_scales[index] = ReadHalf(block);
  row.super_minima[index] = ReadHalf(block + kHalf);
  DecodeScales(block + 2 * kHalf, index, row);
  const uint8_t* fifth = block + 2 * kHalf + 12;
  const uint8_t* nibbles = fifth + (kHasFifthBit ? 32 : 0);
  uint8_t* codes = row.codes + index * kSuperBlock;
  for (int64_t part = 0; part < kSuperBlock / (2 * kBlock); ++part) {
    uint8_t low[kBlock], high[kBlock];
    for (int64_t i = 0; i < kBlock; ++i) {
      low[i] = nibbles[part * kBlock + i] & 15;
      high[i] = nibbles[part * kBlock + i] >> 4;
    }
    std::memcpy(codes + 2 * part * kBlock, low, sizeof(low));
    std::memcpy(codes + (2 * part + 1) * kBlock, high, sizeof(high));
  }
  if constexpr (kHasFifthBit) AddBitColumns(fifth, 4, codes);
}

/*! \brief Nibbles, upper bits, 16 signed scales, float16 super scale. */
void DecodeQ6K(const uint8_t* block, int64_t index, GroupedRow row) {
  constexpr int64_t kGroups = 16;
  const uint8_t* upper = block + 128;
  const uint8_t* scales = upper + 64;
  std::memcpy(row.scales + index * kGroups, scales, kGroups);
  uint8_t* codes = row.codes + index * kSuperBlock;
  for (int64_t half = 0; half < 2; ++half) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      const uint8_t* nibbles = block + half * 2 * kBlock + quarter % 2 * kBlock;
      const int shift = quarter / 2 * 4;
      uint8_t part[kBlock];
      for (int64_t i = 0; i < kBlock; ++i) {
        const int high = (upper[half * kBlock + i] >> (2 * quarter)) & 3;
        part[i] = static_cast<uint8_t>(((nibbles[i] >> shift) & 15) | high << 4);
      }
      std::memcpy(codes, part, sizeof(part));
      codes += kBlock;
    }
  }
  row.super_scales[index] = ReadHalf(scales + kGroups);
}

using DecodeBlock = void (*)(const uint8_t* block, int64_t index, GroupedRow row);

DecodeBlock DecoderOf(SourceType type) {
  switch (type) {
    case SourceType::kQ40:
    case SourceType::kIQ4NL:
      return DecodeSmall<false, false>;
    case SourceType::kQ41:
      return DecodeSmall<true, false>;
    case SourceType::kQ50:
      return DecodeSmall<false, true>;
    case SourceType::kQ51:
      return DecodeSmall<true, true>;
    case SourceType::kQ80:
      return DecodeQ8;
    case SourceType::kQ2K:
      return DecodeQ2K;
    case SourceType::kQ3K:
      return DecodeQ3K;
    case SourceType::kQ4K:
      return DecodeQ45K<false>;
    case SourceType::kQ5K:
      return DecodeQ45K<true>;
    case SourceType::kQ6K:
      return DecodeQ6K;
    case SourceType::kMXFP4:
      return DecodeMXFP4;
    default:
      return nullptr;
  }
}

}  // namespace

BlockLayout BlockLayoutOf(SourceType type) {
  switch (type) {
    case SourceType::kQ40:
      return {kBlock, 18, "u4g32f16z8"};
    case SourceType::kQ41:
      return {kBlock, 20, "u4g32f16m"};
    case SourceType::kQ50:
      return {kBlock, 22, "u5g32f16z16"};
    case SourceType::kQ51:
      return {kBlock, 24, "u5g32f16m"};
    case SourceType::kQ80:
      return {kBlock, 34, "u8g32f16z128"};
    case SourceType::kIQ4NL:
      return {kBlock, 18, "iq4nlg32f16"};
    case SourceType::kMXFP4:
      return {kBlock, 17, "e2m1g32bf16"};
    case SourceType::kQ2K:
      return {kSuperBlock, 84, "u2g16k8m"};
    case SourceType::kQ3K:
      return {kSuperBlock, 110, "u3g16k8sz4"};
    case SourceType::kQ4K:
      return {kSuperBlock, 144, "u4g32k8m"};
    case SourceType::kQ5K:
      return {kSuperBlock, 176, "u5g32k8m"};
    case SourceType::kQ6K:
      return {kSuperBlock, 210, "u6g16k8sz32"};
    default:
      return {1, 0, "f32"};
  }
}

void DecodeBlocks(SourceType type, const uint8_t* blocks, int64_t cols, GroupedRow row) {
  const BlockLayout layout = BlockLayoutOf(type);
  const DecodeBlock decode = DecoderOf(type);
  for (int64_t index = 0; index < cols / layout.inputs; ++index) {
    decode(blocks + index * layout.bytes, index, row);
  }
}

}  // namespace aiomlc
