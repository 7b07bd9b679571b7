#include "kernels/linear/format/matrix_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/linear/format/channel_tile.h"
#include "kernels/linear/format/grouped_tile.h"
#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/progressive_tile.h"
#include "platform/float_types.h"

namespace aiomlc {

namespace {

constexpr std::pair<std::string_view, WeightFormat> kFamilies[] = {
    {"f32", WeightFormat::kF32},           {"f16", WeightFormat::kF16},
    {"bf16", WeightFormat::kBF16},         {"q4", WeightFormat::kQ4},
    {"i8channel", WeightFormat::kChannel}, {"i4progressive", WeightFormat::kProgressive},
    {"i8rotated", WeightFormat::kRotated}};
// Longer names first, because a name may begin with another.
constexpr std::pair<std::string_view, ScaleType> kScales[] = {{"f16", ScaleType::kF16},
                                                              {"bf16", ScaleType::kBF16},
                                                              {"f32", ScaleType::kF32},
                                                              {"k8s", ScaleType::kK8S},
                                                              {"k8", ScaleType::kK8}};
constexpr int kByteZero = 128;
// Activations have sums of 16 inputs, which minima and zero points of bytes are multiplied by.
constexpr int kMinGroupWithMinima = 16;
// The positions of the fields in `Packed`.
constexpr int kBitsAt = 4, kGroupAt = 8, kScaleAt = 20, kCodeAt = 24, kZeroAt = 26,
              kConstantAt = 28;

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

bool IsSuper(ScaleType scale) { return scale == ScaleType::kK8 || scale == ScaleType::kK8S; }

bool IsGroupedValid(const MatrixFormat& format) {
  const auto is_one_of = [](int value, std::initializer_list<int> allowed) {
    return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
  };
  if (!is_one_of(format.bits, {2, 3, 4, 5, 6, 8})) return false;
  if (!is_one_of(format.group, {8, 16, 32, 64, 128, 256})) return false;
  if (format.code != CodeType::kUnsigned) {
    return format.bits == 4 && format.zero == ZeroType::kConstant && format.constant == 0;
  }
  const bool is_byte = format.bits == 8;
  if (format.zero == ZeroType::kMinima || (format.zero == ZeroType::kPoints && is_byte)) {
    return format.constant == 0 && format.group >= kMinGroupWithMinima;
  }
  if (format.zero == ZeroType::kPoints) return format.constant == 0;
  return is_byte ? format.constant == kByteZero : format.constant < 1 << format.bits;
}

/*! \brief Reads a name from its beginning to its end. */
class NameReader {
 public:
  explicit NameReader(std::string_view name) : rest_(name) {}

  bool Skip(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  /*! \brief Read a number without leading zeros. \return -1 if there is none below 1000. */
  int Number() {
    int value = 0;
    size_t length = 0;
    for (; length < std::min<size_t>(rest_.size(), 3); ++length) {
      const char digit = rest_[length];
      if (digit < '0' || digit > '9') break;
      value = 10 * value + (digit - '0');
    }
    if (length == 0 || (rest_[0] == '0' && length > 1)) return -1;
    rest_.remove_prefix(length);
    return value;
  }

  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool ReadCode(NameReader& name, MatrixFormat& format) {
  format.bits = 4;
  if (name.Skip("e2m1")) {
    format.code = CodeType::kE2M1;
    return true;
  }
  if (name.Skip("iq4nl")) {
    format.code = CodeType::kIQ4NL;
    return true;
  }
  if (!name.Skip("u")) return false;
  const int bits = name.Number();
  format.bits = static_cast<uint8_t>(std::clamp(bits, 0, 255));
  return bits >= 0;
}

bool ReadScale(NameReader& name, MatrixFormat& format) {
  const int group = name.Skip("g") ? name.Number() : -1;
  if (group < 0) return false;
  format.group = static_cast<uint16_t>(group);
  return std::any_of(std::begin(kScales), std::end(kScales), [&](const auto& entry) {
    format.scale = entry.second;
    return name.Skip(entry.first);
  });
}

bool ReadZero(NameReader& name, MatrixFormat& format) {
  if (format.code != CodeType::kUnsigned) return true;
  if (name.Skip("m")) {
    format.zero = ZeroType::kMinima;
    return true;
  }
  if (name.Skip("zp")) {
    format.zero = ZeroType::kPoints;
    return true;
  }
  const int constant = name.Skip("z") ? name.Number() : -1;
  format.constant = static_cast<uint8_t>(std::clamp(constant, 0, 255));
  return constant >= 0 && constant < 256;
}

}  // namespace

MatrixFormat MatrixFormat::Parse(std::string_view name) {
  for (const auto& [family_name, family] : kFamilies) {
    if (name == family_name) return family;
  }
  MatrixFormat format = WeightFormat::kGrouped;
  NameReader reader(name);
  if (!ReadCode(reader, format) || !ReadScale(reader, format) || !ReadZero(reader, format) ||
      !reader.empty() || !IsGroupedValid(format)) {
    throw std::invalid_argument(
        "unknown matrix format \"" + std::string(name) +
        "\"; expected f32, f16, bf16, q4, i8channel, i8rotated, i4progressive or a name like "
        "u4g32f16z8");
  }
  return format;
}

MatrixFormat MatrixFormat::FromPacked(int64_t packed) {
  const auto field = [packed](int at, int width) { return (packed >> at) & ((1 << width) - 1); };
  MatrixFormat format;
  format.family = static_cast<WeightFormat>(field(0, kBitsAt));
  format.bits = static_cast<uint8_t>(field(kBitsAt, kGroupAt - kBitsAt));
  format.group = static_cast<uint16_t>(field(kGroupAt, kScaleAt - kGroupAt));
  format.scale = static_cast<ScaleType>(field(kScaleAt, kCodeAt - kScaleAt));
  format.code = static_cast<CodeType>(field(kCodeAt, kZeroAt - kCodeAt));
  format.zero = static_cast<ZeroType>(field(kZeroAt, kConstantAt - kZeroAt));
  format.constant = static_cast<uint8_t>(field(kConstantAt, 8));
  const bool is_valid = format.family == WeightFormat::kGrouped
                            ? IsGroupedValid(format) && format.scale <= ScaleType::kK8S &&
                                  format.code <= CodeType::kIQ4NL &&
                                  format.zero <= ZeroType::kMinima
                            : format == MatrixFormat(format.family);
  if (!is_valid || format.family > WeightFormat::kRotated || format.Packed() != packed) {
    throw std::invalid_argument("unknown code of a matrix format: " + std::to_string(packed));
  }
  return format;
}

int64_t MatrixFormat::Packed() const {
  return static_cast<int64_t>(family) | static_cast<int64_t>(bits) << kBitsAt |
         static_cast<int64_t>(group) << kGroupAt | static_cast<int64_t>(scale) << kScaleAt |
         static_cast<int64_t>(code) << kCodeAt | static_cast<int64_t>(zero) << kZeroAt |
         static_cast<int64_t>(constant) << kConstantAt;
}

std::string MatrixFormat::Name() const {
  for (const auto& [family_name, value] : kFamilies) {
    if (family == value) return std::string(family_name);
  }
  std::string name = code == CodeType::kE2M1    ? "e2m1"
                     : code == CodeType::kIQ4NL ? "iq4nl"
                                                : "u" + std::to_string(bits);
  name += "g" + std::to_string(group);
  for (const auto& [scale_name, value] : kScales) {
    if (scale == value) name += scale_name;
  }
  if (code != CodeType::kUnsigned) return name;
  switch (zero) {
    case ZeroType::kConstant:
      return name + "z" + std::to_string(constant);
    case ZeroType::kPoints:
      return name + "zp";
    case ZeroType::kMinima:
      return name + "m";
  }
  return name;
}

GroupedTile GroupedTileOf(MatrixFormat format) {
  const bool is_super = IsSuper(format.scale);
  const bool has_minima = format.zero == ZeroType::kMinima;
  const int64_t inputs = is_super ? kSuperGroupSize : std::max<int64_t>(kChunkSize, format.group);
  const int element_bytes = is_super ? 1 : format.scale == ScaleType::kF32 ? 4 : 2;
  const int half_bytes = 2 * kTileRows;
  GroupedTile tile = {};
  tile.code = format.code;
  tile.scale = format.scale;
  tile.zero = format.zero;
  tile.bits = format.bits;
  tile.constant = format.constant;
  // The difference of a byte and any zero point would not fit into a byte.
  tile.subtracts = has_minima || (format.zero == ZeroType::kPoints && format.bits == 8);
  tile.group = format.group;
  tile.group_shift = std::countr_zero(format.group);
  tile.parts = static_cast<int>(std::max<int64_t>(1, kChunkSize / format.group));
  tile.block_chunks = static_cast<int>(inputs / kChunkSize);
  tile.block_groups = static_cast<int>(inputs / format.group);
  tile.super_minima = half_bytes;
  tile.scales = is_super ? half_bytes * (has_minima ? 2 : 1) : 0;
  tile.scale_bytes = element_bytes * static_cast<int>(kTileRows);
  tile.zeros = tile.scales + tile.block_groups * tile.scale_bytes;
  tile.zero_bytes = has_minima                         ? tile.scale_bytes
                    : format.zero == ZeroType::kPoints ? static_cast<int>(kTileRows)
                                                       : 0;
  tile.codes = tile.zeros + tile.block_groups * tile.zero_bytes;
  tile.chunk_bytes = static_cast<int>(kTileRows * kChunkSize / 8) * format.bits;
  tile.block_bytes = tile.codes + tile.block_chunks * tile.chunk_bytes;
  return tile;
}

int64_t BlocksOf(const GroupedTile& tile, int64_t cols) {
  return CeilDivide(cols, tile.block_chunks * kChunkSize);
}

size_t PackedMatrixBytes(MatrixFormat format, int64_t rows, int64_t cols) {
  const int64_t tiles = CeilDivide(rows, kTileRows);
  switch (format.family) {
    case WeightFormat::kF32:
      return tiles * kTileRows * cols * 4;
    case WeightFormat::kF16:
      return tiles * kTileRows * cols * 2;
    case WeightFormat::kBF16:
      return tiles * CeilDivide(cols, kGroupSize) * static_cast<int64_t>(sizeof(BF16Tile));
    case WeightFormat::kQ4:
      return tiles * CeilDivide(cols, kGroupSize) * kGroupBytes;
    case WeightFormat::kGrouped: {
      const GroupedTile tile = GroupedTileOf(format);
      return tiles * BlocksOf(tile, cols) * tile.block_bytes;
    }
    case WeightFormat::kChannel:
    case WeightFormat::kRotated:
      return tiles * ChannelTileBytes(cols);
    case WeightFormat::kProgressive:
      return tiles * ProgressiveTileBytes(cols);
  }
  return 0;
}

float ScaleNumber(ScaleType type, const uint8_t* numbers, int64_t index) {
  uint16_t half;
  float value;
  switch (type) {
    case ScaleType::kF16:
      std::memcpy(&half, numbers + 2 * index, sizeof(half));
      return HalfToFloat(half);
    case ScaleType::kBF16:
      std::memcpy(&half, numbers + 2 * index, sizeof(half));
      return BFloat16ToFloat(half);
    case ScaleType::kF32:
      std::memcpy(&value, numbers + 4 * index, sizeof(value));
      return value;
    case ScaleType::kK8:
      return numbers[index];
    case ScaleType::kK8S:
      return static_cast<int8_t>(numbers[index]);
  }
  return 0;
}

int64_t RowsOf(MatrixLayout layout) {
  int64_t rows = 0;
  for (const MatrixSegment& segment : layout) rows += segment.rows;
  return rows;
}

size_t PackedMatrixBytes(MatrixLayout layout, int64_t cols) {
  size_t bytes = 0;
  for (const MatrixSegment& segment : layout) {
    bytes += PackedMatrixBytes(segment.format, segment.rows, cols);
  }
  return bytes;
}

}  // namespace aiomlc
