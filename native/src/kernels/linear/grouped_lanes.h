/*!
 * \file kernels/linear/grouped_lanes.h
 * \brief The kernels of grouped weight formats, as templates over the `Lanes` classes.
 *
 * The weights of some chunks of a tile are unpacked to signed bytes and float scales in the
 * first-level cache, where the rows of activations read them. Only the format's codes and numbers
 * differ in this step; the products depend only on the number of scales of a chunk and on whether
 * minima are subtracted. Each tier defines the integer dot product, as a class `Dot` with
 *
 *   using Lanes = ...;
 *   static constexpr int kMaxRows;  // The maximum number of rows of activations at a time.
 *   // Whether the dot products are of the biased bytes, so that `UnpackedChunk::offsets` is added.
 *   static constexpr bool kIsBiased;
 *   // Call emit(r, part, dot) for every row and part: the 16 dot products of the values.
 *   template <int kRows, int kParts, typename Emit>
 *   static void ForDots(const UnpackedChunk<kParts>& weights, const BiasedGroup* x, Emit emit);
 *   // Replace codes by their values: values[code] for 512 codes in [0, 15].
 *   static void LookUp(const int8_t (&values)[16], int8_t* codes);
 *
 * The sequence of float operations is the same on every tier, so the bits are the same.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_LANES_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_LANES_H_

#include <cstdint>
#include <utility>

#include "kernels/linear/grouped_tile.h"
#include "kernels/linear/linear_lanes.h"

namespace aiomlc {

namespace {

constexpr int kQuads = 8;       // Of a chunk.
constexpr int kQuadBytes = 64;  // Four inputs of 16 outputs.
// The chunks that are unpacked at a time: at most 9 KiB per tile.
constexpr int kUnpackedChunks = 8;
// The rows whose sums stay in the first-level cache.
constexpr int kGroupedRows = 8 * kPanelRows;

/*! \brief The weights of a chunk of a tile. \tparam kParts The parts with different scales. */
template <int kParts>
struct alignas(64) UnpackedChunk {
  int8_t quads[kQuads][kQuadBytes];    //!< The codes minus the zero points.
  int32_t offsets[kParts][kTileRows];  //!< -kByteBias times the sum of the part of the quads.
  float scales[kParts][kTileRows];
  float minima[kParts][kTileRows];  //!< With the opposite sign; only if the format has minima.
};

// ---- Unpacking ----

/*! \brief Read codes from bit planes. The loops are vectorized by the compiler. */
template <int kBits>
inline void UnpackCodes(const uint8_t* planes, int8_t (&quads)[kQuads][kQuadBytes]) {
  uint8_t codes[kQuads][kQuadBytes];
  if constexpr ((kBits & 8) != 0) __builtin_memcpy(codes, planes, sizeof(codes));
  if constexpr ((kBits & 4) != 0) {
    for (int j = 0; j < 4; ++j, planes += kQuadBytes) {
      for (int b = 0; b < kQuadBytes; ++b) {
        codes[j][b] = planes[b] & 15;
        codes[4 + j][b] = planes[b] >> 4;
      }
    }
  }
  if constexpr ((kBits & 2) != 0) {
    constexpr int kShift = kBits & 4;
    for (int j = 0; j < 2; ++j, planes += kQuadBytes) {
#pragma GCC unroll 4
      for (int f = 0; f < 4; ++f) {
        uint8_t* quad = codes[4 * j + f];
        for (int b = 0; b < kQuadBytes; ++b) {
          const uint8_t low = kShift == 0 ? 0 : quad[b];
          quad[b] = low | static_cast<uint8_t>(((planes[b] >> (2 * f)) & 3) << kShift);
        }
      }
    }
  }
  if constexpr ((kBits & 1) != 0) {
    constexpr int kShift = (kBits & 4) != 0 ? 4 : 2;
#pragma GCC unroll 8
    for (int f = 0; f < kQuads; ++f) {
      for (int b = 0; b < kQuadBytes; ++b) {
        codes[f][b] |= static_cast<uint8_t>(((planes[b] >> f) & 1) << kShift);
      }
    }
  }
  __builtin_memcpy(quads, codes, sizeof(codes));
}

inline void UnpackCodes(int bits, const uint8_t* planes, int8_t (&quads)[kQuads][kQuadBytes]) {
  switch (bits) {
    case 2:
      return UnpackCodes<2>(planes, quads);
    case 3:
      return UnpackCodes<3>(planes, quads);
    case 4:
      return UnpackCodes<4>(planes, quads);
    case 5:
      return UnpackCodes<5>(planes, quads);
    case 6:
      return UnpackCodes<6>(planes, quads);
    default:
      return UnpackCodes<8>(planes, quads);
  }
}

inline void Subtract(const uint8_t* zero, int8_t* quad) {
  for (int b = 0; b < kQuadBytes; ++b) quad[b] = static_cast<int8_t>(quad[b] - zero[b]);
}

/*! \brief Subtract the zero points of each part. \param zeros [parts], each uint8[16]. */
template <int kParts>
inline void SubtractPoints(const uint8_t* const (&zeros)[kParts],
                           int8_t (&quads)[kQuads][kQuadBytes]) {
  constexpr int kPartQuads = kQuads / kParts;
  for (int part = 0; part < kParts; ++part) {
    uint32_t words[kTileRows];  // Each zero point four times.
    for (int n = 0; n < kTileRows; ++n) words[n] = zeros[part][n] * 0x01010101u;
    uint8_t bytes[kQuadBytes];
    __builtin_memcpy(bytes, words, sizeof(bytes));
    for (int i = 0; i < kPartQuads; ++i) Subtract(bytes, quads[part * kPartQuads + i]);
  }
}

template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector LoadUnsigned(const uint8_t* bytes) {
  float values[kTileRows];
  for (int n = 0; n < kTileRows; ++n) values[n] = static_cast<float>(bytes[n]);
  return Lanes::Load(values);
}

/*! \brief Load 16 scales or minima. \param supers The float16 that multiply k8 and k8s. */
template <typename Lanes>
[[gnu::always_inline]] inline typename Lanes::Vector LoadNumbers(ScaleType type,
                                                                 const uint8_t* numbers,
                                                                 const uint8_t* supers) {
  const auto* halves = reinterpret_cast<const uint16_t*>(numbers);
  switch (type) {
    case ScaleType::kF16:
      return Lanes::Load(halves);
    case ScaleType::kBF16:
      return Lanes::LoadBFloat16(halves);
    case ScaleType::kF32:
      return Lanes::Load(reinterpret_cast<const float*>(numbers));
    case ScaleType::kK8:
      return Lanes::Mul(Lanes::Load(reinterpret_cast<const uint16_t*>(supers)),
                        LoadUnsigned<Lanes>(numbers));
    case ScaleType::kK8S:
      break;
  }
  return Lanes::Mul(Lanes::Load(reinterpret_cast<const uint16_t*>(supers)),
                    Lanes::Load(reinterpret_cast<const int8_t*>(numbers)));
}

/*! \brief Unpacks the chunks of one tile in ascending order. */
template <typename Dot, int kParts>
class ChunkReader {
 public:
  using Lanes = typename Dot::Lanes;
  using Vector = typename Lanes::Vector;

  /*! \param block The first block of a tile of the format. */
  ChunkReader(const GroupedTile& tile, const uint8_t* block) : tile_(tile), block_(block) {}

  /*! \brief Unpack the next `count` chunks. */
  template <int kDistance>
  void Unpack(int count, UnpackedChunk<kParts>* result) {
    for (int c = 0; c < count; ++c, ++result) {
      const uint8_t* codes = block_ + tile_.codes + chunk_ * tile_.chunk_bytes;
      for (int at = 0; at < tile_.chunk_bytes; at += kQuadBytes) {
        __builtin_prefetch(codes + kDistance + at);
      }
      UnpackValues(codes, result->quads);
      UnpackNumbers(*result);
      if constexpr (Dot::kIsBiased) AddOffsets(*result);
      if (++chunk_ < tile_.block_chunks) continue;
      chunk_ = 0;
      block_ += tile_.block_bytes;
    }
  }

 private:
  int GroupOf(int part) const {
    constexpr int kPartInputs = static_cast<int>(kChunkSize) / kParts;
    return (chunk_ * kParts + part) * kPartInputs >> tile_.group_shift;
  }

  void UnpackValues(const uint8_t* codes, int8_t (&quads)[kQuads][kQuadBytes]) const {
    UnpackCodes(tile_.bits, codes, quads);
    if (tile_.code == CodeType::kE2M1) return Dot::LookUp(kE2M1Values, quads[0]);
    if (tile_.code == CodeType::kIQ4NL) return Dot::LookUp(kIQ4NLValues, quads[0]);
    if (tile_.zero == ZeroType::kPoints && tile_.bits < 8) {
      const uint8_t* zeros[kParts];
      for (int part = 0; part < kParts; ++part) {
        zeros[part] = block_ + tile_.zeros + GroupOf(part) * tile_.zero_bytes;
      }
      return SubtractPoints<kParts>(zeros, quads);
    }
    // Bytes become signed; what else is to be subtracted from them is a part of the minimum.
    const int constant = tile_.bits == 8 ? kByteBias : tile_.constant;
    if (constant == 0) return;
    uint8_t zero[kQuadBytes];
    __builtin_memset(zero, constant, sizeof(zero));
    for (int i = 0; i < kQuads; ++i) Subtract(zero, quads[i]);
  }

  void UnpackNumbers(UnpackedChunk<kParts>& chunk) const {
    for (int part = 0; part < kParts; ++part) {
      const int group = GroupOf(part);
      const Vector scales = LoadNumbers<Lanes>(
          tile_.scale, block_ + tile_.scales + group * tile_.scale_bytes, block_);
      Lanes::Store(chunk.scales[part], scales);
      if (!tile_.subtracts) continue;
      Lanes::Store(chunk.minima[part],
                   NegativeMinima(scales, block_ + tile_.zeros + group * tile_.zero_bytes));
    }
  }

  Vector NegativeMinima(Vector scales, const uint8_t* zeros) const {
    const Vector zero = Lanes::Set(0.0f);
    const Vector bias = Lanes::Set(static_cast<float>(kByteBias));
    if (tile_.zero == ZeroType::kPoints) {
      return Lanes::Mul(scales, Lanes::Sub(bias, LoadUnsigned<Lanes>(zeros)));
    }
    const ScaleType type = tile_.scale == ScaleType::kK8S ? ScaleType::kK8 : tile_.scale;
    const Vector minima = LoadNumbers<Lanes>(type, zeros, block_ + tile_.super_minima);
    const Vector negative = Lanes::Sub(zero, minima);
    return tile_.bits == 8 ? Lanes::Fma(scales, bias, negative) : negative;
  }

  static void AddOffsets(UnpackedChunk<kParts>& chunk) {
    BiasedGroup zeros = {};
    __builtin_memset(zeros.bytes, kByteBias, sizeof(zeros.bytes));
    __builtin_memset(chunk.offsets, 0, sizeof(chunk.offsets));
    int32_t sums[kParts][kTileRows];
    Dot::template ForDots<1, kParts>(
        chunk, &zeros,
        [&](int, int part, typename Lanes::Integers dot)
            __attribute__((always_inline)) { __builtin_memcpy(sums[part], &dot, sizeof(dot)); });
    for (int part = 0; part < kParts; ++part) {
      for (int n = 0; n < kTileRows; ++n) chunk.offsets[part][n] = -sums[part][n];
    }
  }

  const GroupedTile& tile_;
  const uint8_t* block_;
  int chunk_ = 0;  // In the block.
};

// ---- Products ----

/*!
 * \return The sums plus the products of a part: fma(dot, scales * x_scale, sums), and then, with
 * minima, fma(minima, x_sum, that): the order of operations on every tier.
 */
template <typename Lanes, int kParts, bool kSubtracts>
[[gnu::always_inline]] inline typename Lanes::Vector AddPart(const UnpackedChunk<kParts>& weights,
                                                             int part, typename Lanes::Integers dot,
                                                             const BiasedGroup& x,
                                                             typename Lanes::Vector sums) {
  sums = AddScaled<Lanes>(dot, Lanes::Load(weights.scales[part]), x.scale, sums);
  if constexpr (kSubtracts) {
    const float x_sum = kParts == 1 ? x.sum : x.half_sums[part];
    sums = Lanes::Fma(Lanes::Load(weights.minima[part]), Lanes::Set(x_sum), sums);
  }
  return sums;
}

/*! \brief Adds the products of unpacked chunks and a few rows to their sums. */
template <typename Dot, int kParts, bool kSubtracts>
struct ChunkProducts {
  using Lanes = typename Dot::Lanes;

  /*! \param height The distance between the chunks of a row of x. */
  template <int kRows>
  static void Run(const UnpackedChunk<kParts>* chunks, int count, const BiasedGroup* x,
                  int64_t height, float (*sums)[kTileRows]) {
    typename Lanes::Vector rows[kRows];
    for (int r = 0; r < kRows; ++r) rows[r] = Lanes::Load(sums[r]);
    for (int c = 0; c < count; ++c, x += height) {
      const UnpackedChunk<kParts>& weights = chunks[c];
      Dot::template ForDots<kRows, kParts>(
          weights, x,
          [&](int r, int part, typename Lanes::Integers dot) __attribute__((always_inline)) {
            rows[r] = AddPart<Lanes, kParts, kSubtracts>(weights, part, dot, x[r], rows[r]);
          });
    }
    for (int r = 0; r < kRows; ++r) Lanes::Store(sums[r], rows[r]);
  }

  template <int... kRow>
  static void RunAny(int64_t rows, const UnpackedChunk<kParts>* chunks, int count,
                     const BiasedGroup* x, int64_t height, float (*sums)[kTileRows],
                     std::integer_sequence<int, kRow...> /*counts*/) {
    using Function = void (*)(const UnpackedChunk<kParts>*, int, const BiasedGroup*, int64_t,
                              float (*)[kTileRows]);
    static constexpr Function kFunctions[] = {Run<kRow + 1>...};
    kFunctions[rows - 1](chunks, count, x, height, sums);
  }
};

/*! \return The first block of a tile. */
inline const uint8_t* GroupedTileAt(const LinearBlock& block, int64_t tile) {
  const int64_t block_inputs = block.tile.block_chunks * kChunkSize;
  const int64_t blocks = (block.num_inputs + block_inputs - 1) / block_inputs;
  return static_cast<const uint8_t*>(block.packed) + tile * blocks * block.tile.block_bytes;
}

/*! \brief Multiply at most kGroupedRows rows by one tile. */
template <typename Dot, int kParts, bool kSubtracts>
void MultiplyGroupedTile(const LinearBlock& block, int64_t tile, int64_t row_begin,
                         int64_t row_end) {
  using Lanes = typename Dot::Lanes;
  const int64_t chunks = GroupsOf(block.num_inputs);
  ChunkReader<Dot, kParts> reader(block.tile, GroupedTileAt(block, tile));
  UnpackedChunk<kParts> unpacked[kUnpackedChunks];
  alignas(64) float sums[kGroupedRows][kTileRows];
  __builtin_memset(sums, 0, (row_end - row_begin) * sizeof(sums[0]));
  for (int64_t chunk = 0; chunk < chunks; chunk += kUnpackedChunks) {
    const int count =
        static_cast<int>(chunks - chunk < kUnpackedChunks ? chunks - chunk : kUnpackedChunks);
    reader.template Unpack<kPrefetchDistance>(count, unpacked);
    for (int64_t row = row_begin; row < row_end;) {
      const PanelCursor at = PanelOf(row, block.row_end);
      const int64_t left = at.height - at.row;
      const int64_t rows = left < Dot::kMaxRows ? left : Dot::kMaxRows;
      const BiasedGroup* x = block.biased + at.panel * chunks + chunk * at.height + at.row;
      ChunkProducts<Dot, kParts, kSubtracts>::RunAny(
          rows, unpacked, count, x, at.height, sums + (row - row_begin),
          std::make_integer_sequence<int, Dot::kMaxRows>());
      row += rows;
    }
  }
  for (int64_t row = row_begin; row < row_end; ++row) {
    StoreOutputs<Lanes>(block, row, tile, Lanes::Load(sums[row - row_begin]));
  }
}

/*! \brief A kernel of a tier, which computes one tile at a time. */
template <typename Dot>
struct GroupedKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    for (int64_t row = block.row_begin; row < block.row_end; row += kGroupedRows) {
      const int64_t end = row + kGroupedRows < block.row_end ? row + kGroupedRows : block.row_end;
      for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
        MultiplyGroupedTile<Dot, kParts, kSubtracts>(block, tile, row, end);
      }
    }
  }
};

/*! \brief Call `Kernel::Run` for the format of a block. */
template <typename Kernel>
void Grouped(const LinearBlock& block) {
  const bool subtracts = block.tile.subtracts;
  switch (block.tile.parts) {
    case 1:
      return subtracts ? Kernel::template Run<1, true>(block)
                       : Kernel::template Run<1, false>(block);
    case 2:
      return subtracts ? Kernel::template Run<2, true>(block)
                       : Kernel::template Run<2, false>(block);
    default:
      return Kernel::template Run<4, false>(block);
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_LANES_H_
