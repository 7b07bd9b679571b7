/*!
 * \file kernels/linear/grouped/grouped_lanes.h
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
 *   // Set the offsets of the chunk; only if kIsBiased.
 *   template <int kParts>
 *   static void SetOffsets(UnpackedChunk<kParts>& chunk);
 *   // Replace codes by their values: values[code] for 512 codes in [0, 15].
 *   static void LookUp(const int8_t (&values)[16], int8_t* codes);
 *
 * The sequence of float operations is the same on every tier, so the bits are the same.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_LANES_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_LANES_H_

#include <cstdint>
#include <utility>

#include "kernels/linear/base/linear_lanes.h"
#include "kernels/linear/format/grouped_tile.h"
#include "kernels/simd/registers.h"

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

/*! \brief Read a register of each quad from bit planes. \tparam kBits Of a code. */
template <int kBits, typename Words>
[[gnu::always_inline]] inline void ReadCodes(const uint8_t* planes, Words (&codes)[kQuads]) {
  constexpr uint64_t kEveryByte = 0x0101010101010101u;
  if constexpr (kBits == 8) {
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) codes[i] = LoadVector<Words>(planes + i * kQuadBytes);
  }
  if constexpr ((kBits & 4) != 0) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j, planes += kQuadBytes) {
      const auto plane = LoadVector<Words>(planes);
      codes[j] = plane & (15 * kEveryByte);
      codes[4 + j] = (plane >> 4) & (15 * kEveryByte);
    }
  }
  if constexpr ((kBits & 2) != 0) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j, planes += kQuadBytes) {
      const auto plane = LoadVector<Words>(planes);
#pragma GCC unroll 4
      for (int f = 0; f < 4; ++f) {
        if constexpr ((kBits & 4) != 0) {
          // One shift puts the field above the other bits.
          const Words field = f < 2 ? plane << (4 - 2 * f) : plane >> (2 * f - 4);
          codes[4 * j + f] |= field & (48 * kEveryByte);
        } else {
          codes[4 * j + f] = (plane >> (2 * f)) & (3 * kEveryByte);
        }
      }
    }
  }
  if constexpr ((kBits & 1) != 0) {
    constexpr int kShift = (kBits & 4) != 0 ? 4 : 2;
    const auto plane = LoadVector<Words>(planes);
#pragma GCC unroll 8
    for (int f = 0; f < kQuads; ++f) {
      const Words bit = f < kShift ? plane << (kShift - f) : plane >> (f - kShift);
      codes[f] |= bit & (kEveryByte << kShift);
    }
  }
}

/*!
 * \brief Read codes, and subtract the zeros of their part, modulo 256.
 * \tparam kBytes Of a register.
 */
template <int kBits, int kBytes, int kParts>
inline void UnpackCodes(const uint8_t* planes, const uint8_t (&zeros)[kParts][kQuadBytes],
                        int8_t (&quads)[kQuads][kQuadBytes]) {
  using Words = typename Registers<kBytes>::Words;
  using Values = typename Registers<kBytes>::Bytes;
  static_assert(sizeof(Words) == kBytes && sizeof(Values) == kBytes);
#pragma GCC unroll 1
  for (int at = 0; at < kQuadBytes; at += kBytes) {
    Words codes[kQuads];
    ReadCodes<kBits>(planes + at, codes);
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) {
      const Values values = reinterpret_cast<const Values&>(codes[i]) -
                            LoadVector<Values>(zeros[i * kParts / kQuads] + at);
      __builtin_memcpy(quads[i] + at, &values, sizeof(values));
    }
  }
}

template <int kBytes, int kParts>
inline void UnpackCodes(int bits, const uint8_t* planes, const uint8_t (&zeros)[kParts][kQuadBytes],
                        int8_t (&quads)[kQuads][kQuadBytes]) {
  switch (bits) {
    case 2:
      return UnpackCodes<2, kBytes>(planes, zeros, quads);
    case 3:
      return UnpackCodes<3, kBytes>(planes, zeros, quads);
    case 4:
      return UnpackCodes<4, kBytes>(planes, zeros, quads);
    case 5:
      return UnpackCodes<5, kBytes>(planes, zeros, quads);
    case 6:
      return UnpackCodes<6, kBytes>(planes, zeros, quads);
    default:
      return UnpackCodes<8, kBytes>(planes, zeros, quads);
  }
}

/*! \brief Repeat each of 16 zero points four times, for the four inputs of a quad. */
inline void RepeatPoints(const uint8_t* points, uint8_t (&zeros)[kQuadBytes]) {
  uint32_t words[kTileRows];
  for (int n = 0; n < kTileRows; ++n) words[n] = points[n] * 0x01010101u;
  __builtin_memcpy(zeros, words, sizeof(zeros));
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
                        Lanes::Load(numbers));
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
  ChunkReader(const GroupedTile& tile, const uint8_t* block)
      : tile_(tile), block_(block), stride_(tile.block_bytes / tile.block_chunks) {}

  /*! \brief Unpack the next `count` chunks. \tparam kDistance Of prefetches in bytes; may be 0. */
  template <int kDistance>
  void Unpack(int count, UnpackedChunk<kParts>* result) {
    for (int c = 0; c < count; ++c, ++result, Next()) {
      if constexpr (kDistance > 0) PrefetchAt(kDistance);
      UnpackValues(codes(), result->quads);
      UnpackNumbers(*result);
      if constexpr (Dot::kIsBiased) Dot::SetOffsets(*result);
    }
  }

  void Next() {
    if (++chunk_ < tile_.block_chunks) return;
    chunk_ = 0;
    block_ += tile_.block_bytes;
  }

  /*! \return The reader of the same chunk of another tile. \param bytes From one to the other. */
  ChunkReader After(int64_t bytes) const {
    ChunkReader other = *this;
    other.block_ += bytes;
    return other;
  }

  /*! \return The bit planes of the chunk. */
  const uint8_t* codes() const { return block_ + tile_.codes + chunk_ * tile_.chunk_bytes; }

  /*! \return The zero points or the minima of a part, which the format must have. */
  const uint8_t* zeros(int part) const {
    return block_ + tile_.zeros + GroupOf(part) * tile_.zero_bytes;
  }

  [[gnu::always_inline]] Vector Scales(int part) const {
    return LoadNumbers<Lanes>(tile_.scale,
                              block_ + tile_.scales + GroupOf(part) * tile_.scale_bytes, block_);
  }

  [[gnu::always_inline]] Vector NegativeMinima(int part, Vector scales) const {
    const Vector zero = Lanes::Set(0.0f);
    const Vector bias = Lanes::Set(static_cast<float>(kByteBias));
    if (tile_.zero == ZeroType::kPoints) {
      return Lanes::Mul(scales, Lanes::Sub(bias, Lanes::Load(zeros(part))));
    }
    const ScaleType type = tile_.scale == ScaleType::kK8S ? ScaleType::kK8 : tile_.scale;
    const Vector minima = LoadNumbers<Lanes>(type, zeros(part), block_ + tile_.super_minima);
    const Vector negative = Lanes::Sub(zero, minima);
    return tile_.bits == 8 ? Lanes::Fma(scales, bias, negative) : negative;
  }

  /*! \brief Prefetch about what is needed to unpack a chunk. \param ahead The chunks before it. */
  void Prefetch(int ahead) const { PrefetchAt(ahead * stride_); }

  /*!
   * \brief Prefetch an equal share of a block for each of its chunks.
   * \param distance From the chunk in bytes.
   */
  [[gnu::always_inline]] void PrefetchAt(int distance) const {
    const uint8_t* share = block_ + chunk_ * stride_ + distance;
    for (int at = 0; at < stride_; at += kQuadBytes) __builtin_prefetch(share + at);
  }

 private:
  int GroupOf(int part) const {
    constexpr int kPartInputs = static_cast<int>(kChunkSize) / kParts;
    return (chunk_ * kParts + part) * kPartInputs >> tile_.group_shift;
  }

  void UnpackValues(const uint8_t* codes, int8_t (&quads)[kQuads][kQuadBytes]) const {
    constexpr int kBytes = kQuadBytes / Lanes::kRegisters;
    alignas(kQuadBytes) uint8_t zeros[kParts][kQuadBytes];
    if (tile_.zero == ZeroType::kPoints && tile_.bits < 8) {
      for (int part = 0; part < kParts; ++part) {
        RepeatPoints(this->zeros(part), zeros[part]);
      }
    } else {
      // Bytes become signed; what else is to be subtracted from them is a part of the minimum.
      const int constant = tile_.bits == 8 ? kByteBias : tile_.constant;
      __builtin_memset(zeros, constant, sizeof(zeros));
    }
    UnpackCodes<kBytes>(tile_.bits, codes, zeros, quads);
    if (tile_.code == CodeType::kE2M1) return Dot::LookUp(kE2M1Values, quads[0]);
    if (tile_.code == CodeType::kIQ4NL) Dot::LookUp(kIQ4NLValues, quads[0]);
  }

  void UnpackNumbers(UnpackedChunk<kParts>& chunk) const {
    for (int part = 0; part < kParts; ++part) {
      const Vector scales = Scales(part);
      Lanes::Store(chunk.scales[part], scales);
      if (tile_.subtracts) Lanes::Store(chunk.minima[part], NegativeMinima(part, scales));
    }
  }

  const GroupedTile& tile_;
  const uint8_t* block_;
  int stride_;     // The bytes of a block per chunk, numbers included.
  int chunk_ = 0;  // In the block.
};

// ---- Products ----

/*!
 * \return The sums plus the products of a part: fma(dot, scales * x_scale, sums), and then, with
 * minima, fma(minima, x_sum, that): the order of operations on every tier.
 */
template <typename Lanes, int kParts, bool kSubtracts, typename Group>
[[gnu::always_inline]] inline typename Lanes::Vector AddPart(typename Lanes::Vector scales,
                                                             typename Lanes::Vector minima,
                                                             int part, typename Lanes::Integers dot,
                                                             const Group& x,
                                                             typename Lanes::Vector sums) {
  sums = AddScaled<Lanes>(dot, scales, x.scale, sums);
  if constexpr (kSubtracts && kParts == 1) {
    sums = Lanes::Fma(minima, Lanes::Set(x.sum), sums);
  } else if constexpr (kSubtracts) {
    sums = Lanes::Fma(minima, Lanes::Set(x.half_sums[part]), sums);
  }
  return sums;
}

template <typename Lanes, int kParts, bool kSubtracts, typename Group>
[[gnu::always_inline]] inline typename Lanes::Vector AddPart(const UnpackedChunk<kParts>& weights,
                                                             int part, typename Lanes::Integers dot,
                                                             const Group& x,
                                                             typename Lanes::Vector sums) {
  return AddPart<Lanes, kParts, kSubtracts>(Lanes::Load(weights.scales[part]),
                                            Lanes::Load(weights.minima[part]), part, dot, x, sums);
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

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_GROUPED_LANES_H_
