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

unsigned Bit(unsigned byte, int64_t index) { return (byte >> index) & 1u; }

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
    for (int64_t i = 0; i < kBlock; ++i) codes[i] |= Bit(block[i / 8], i % 8) << 4;
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

/*! \brief 16 scales and minima of 4 bits, codes of 2 bits, float16 super scale and minimum. */
void DecodeQ2K(const uint8_t* block, int64_t index, GroupedRow row) {
  constexpr int64_t kGroups = 16;
  const uint8_t* packed = block + kGroups;
  for (int64_t g = 0; g < kGroups; ++g) {
    row.scales[index * kGroups + g] = block[g] & 15;
    row.zeros[index * kGroups + g] = block[g] >> 4;
  }
  uint8_t* codes = row.codes + index * kSuperBlock;
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    codes[i] = (packed[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3;
  }
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
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    const unsigned low = (packed[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32))) & 3u;
    codes[i] = static_cast<uint8_t>(low | Bit(block[i % 32], i / 32) << 2);
  }
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
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    const unsigned byte = nibbles[i / 64 * 32 + i % 32];
    unsigned code = i % 64 < 32 ? byte & 15u : byte >> 4;
    if constexpr (kHasFifthBit) code |= Bit(fifth[i % 32], i / 32) << 4;
    codes[i] = static_cast<uint8_t>(code);
  }
}

/*! \brief Nibbles, upper bits, 16 signed scales, float16 super scale. */
void DecodeQ6K(const uint8_t* block, int64_t index, GroupedRow row) {
  constexpr int64_t kGroups = 16;
  const uint8_t* upper = block + 128;
  const uint8_t* scales = upper + 64;
  std::memcpy(row.scales + index * kGroups, scales, kGroups);
  uint8_t* codes = row.codes + index * kSuperBlock;
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    const int64_t half = i / 128;
    const int64_t quarter = i % 128 / 32;
    const unsigned byte = block[half * 64 + i % 64];
    const unsigned low = quarter < 2 ? byte & 15u : byte >> 4;
    const unsigned high = (upper[half * 32 + i % 32] >> (2 * quarter)) & 3u;
    codes[i] = static_cast<uint8_t>(low | high << 4);
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
