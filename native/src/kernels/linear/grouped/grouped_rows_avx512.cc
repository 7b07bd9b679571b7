/*!
 * \file kernels/linear/grouped/grouped_rows_avx512.cc
 * \brief Products of grouped formats and a few rows, whose unpacked weights stay in registers.
 *
 * Unpacking to the cache takes longer than the products of one row, and so do subtracting zeros
 * from codes and compensating for the bias of the activations. So the activations become signed
 * once for all tiles, and the codes are the unsigned operand. Their zeros, times the sum of the
 * activations, are subtracted from the dot products, which is exact. Codes that are indices of
 * signed values are replaced by these values plus kByteBias, which is then their zero.
 */
#if defined(__x86_64__)

#include <cstdint>
#include <type_traits>

#include "kernels/linear/grouped/grouped_avx512.h"

namespace aiomlc {

namespace {

// The rows for which unpacking to the cache is too slow, if a chunk has so many scales.
constexpr int FewRowsOf(int parts) { return parts == 1 ? kPanelRows : 8; }
// At most as many rows read several streams of weights at a time: see linear_kernels.h.
constexpr int kStreamRows = 2;
// With fewer rows, one tile at a time is faster than a pair where several streams are not read.
constexpr int kCodePairRows = 5;

/*! \brief The activations of a chunk with several scales. */
template <int kParts>
struct PartedGroup {
  int8_t values[kGroupSize];
  float scale;
  int32_t offsets[kParts];  //!< Minus the zero of the codes times the sum of the part's values.
  float half_sums[2];       //!< As in BiasedGroup.
};

/*! \brief The activations for kernels of a few rows, if a chunk has kParts scales. */
template <int kParts>
using FewRowsGroup = std::conditional_t<kParts == 1, SignedGroup, PartedGroup<kParts>>;

/*! \brief Rows of one panel. */
template <int kParts>
struct FewRows {
  const FewRowsGroup<kParts>* x;  //!< The first row.
  int64_t height;                 //!< Of the panel.

  /*! \return The rows from another one on; row `height` is in the next chunk. */
  FewRows From(int64_t row) const { return {x + row, height}; }
};

/*!
 * \brief The fields of a format for which the kernels are specialized.
 * \tparam kBitsOfCode Of an unsigned code. \tparam kIsIndex Whether a code is the index of a value.
 */
template <int kBitsOfCode, int kPartsOfChunk, bool kHasMinima, bool kIsIndex>
struct CodeFormat {
  static constexpr int kBits = kBitsOfCode;
  static constexpr int kParts = kPartsOfChunk;
  static constexpr bool kSubtracts = kHasMinima;
  static constexpr bool kLooksUp = kIsIndex;
  using Reader = ChunkReader<Avx512GroupedDot, kParts>;
  using Rows = FewRows<kParts>;
};

/*! \return The zero of all codes of a tile without zero points. */
inline int ZeroOf(const GroupedTile& tile) {
  return tile.bits == 8 || tile.code != CodeType::kUnsigned ? kByteBias : tile.constant;
}

/*! \brief The codes of a chunk of a tile as the unsigned operand of products. */
template <typename Format>
class UnsignedCodes {
 public:
  [[gnu::always_inline]] UnsignedCodes(const GroupedTile& tile, const uint8_t* planes) {
    ReadCodes<Format::kBits>(planes, codes_);
    if constexpr (!Format::kLooksUp) return;
    const int8_t* values = tile.code == CodeType::kE2M1 ? kE2M1Values : kIQ4NLValues;
    const __m128i biased = _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)),
                                         _mm_set1_epi8(static_cast<char>(kByteBias)));
    const __m512i table = _mm512_broadcast_i32x4(biased);
#pragma GCC unroll 8
    for (auto& quad : codes_) {
      quad = reinterpret_cast<Registers<64>::Words>(
          _mm512_shuffle_epi8(table, reinterpret_cast<const __m512i&>(quad)));
    }
  }

  /*! \brief Add the products of a quad. \param four Its activations, repeated. */
  [[gnu::always_inline]] __m512i AddQuad(int quad, __m512i four, __m512i dot) const {
    return _mm512_dpbusd_epi32(dot, reinterpret_cast<const __m512i&>(codes_[quad]), four);
  }

 private:
  Registers<64>::Words codes_[kQuads];
};

/*! \brief A chunk of a tile that has one scale, for signed activations. */
template <typename Format>
class CodeChunk {
 public:
  using Lanes = Avx512Lanes;

  [[gnu::always_inline]] CodeChunk(const GroupedTile& tile, const typename Format::Reader& reader)
      : codes_(tile, reader.codes()), scales_(reader.Scales(0)), minima_(scales_), zeros_(scales_) {
    if constexpr (Format::kSubtracts) minima_ = reader.NegativeMinima(0, scales_);
    if constexpr (!kHasZeros) return;
    if (tile.zero == ZeroType::kPoints && Format::kBits < 8) {
      zeros_ = Lanes::Sub(Lanes::Set(0.0f), Lanes::Load(reader.zeros(0)));
    } else {
      zeros_ = Lanes::Set(-static_cast<float>(ZeroOf(tile)));
    }
  }

  [[gnu::always_inline]] __m512i AddQuad(int quad, __m512i four, __m512i dot) const {
    return codes_.AddQuad(quad, four, dot);
  }

  /*! \brief Add the scaled products of a row. \param dot Of all quads. */
  [[gnu::always_inline]] Lanes::Vector Add(__m512i dot, const SignedGroup& x,
                                           Lanes::Vector sums) const {
    Lanes::Vector product = Lanes::ToFloat({dot});
    if constexpr (kHasZeros) product = Lanes::Fma(zeros_, Lanes::Set(x.value_sum), product);
    sums = Lanes::Fma(product, Lanes::Mul(scales_, Lanes::Set(x.scale)), sums);
    if constexpr (Format::kSubtracts) sums = Lanes::Fma(minima_, Lanes::Set(x.sum), sums);
    return sums;
  }

 private:
  // With minima there are no zero points, except with 8 bits: these minima are of codes minus 128.
  static constexpr bool kHasZeros = !Format::kSubtracts || Format::kBits == 8;

  UnsignedCodes<Format> codes_;
  Lanes::Vector scales_, minima_, zeros_;  // The minima and zeros with the opposite sign.
};

/*! \brief Multiplies kRows rows of a panel by kTiles tiles. */
template <typename Format>
struct Avx512FewRows {
  using Lanes = Avx512Lanes;
  using Reader = typename Format::Reader;
  static constexpr int kParts = Format::kParts;

  template <int kRows, int kTiles>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row, FewRows<kParts> rows) {
    constexpr int kDistance = kTiles == 1 ? kPrefetchDistance : kPrefetchDistancePerStream;
    const int64_t chunks = GroupsOf(block.num_inputs);
    Reader reader(block.tile, GroupedTileAt(block, tile));
    const int64_t tile_bytes = GroupedTileAt(block, tile + 1) - GroupedTileAt(block, tile);
    Lanes::Vector sums[kTiles][kRows];
    for (auto& of_tile : sums) {
      for (Lanes::Vector& sum : of_tile) sum = Lanes::Set(0.0f);
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk, reader.Next()) {
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const Reader of_tile = reader.After(t * tile_bytes);
        of_tile.PrefetchAt(kDistance);
        AddChunk<kRows>(block.tile, of_tile, rows.x, sums[t]);
      }
      rows = rows.From(rows.height);
    }
    for (int t = 0; t < kTiles; ++t) {
      for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile + t, sums[t][r]);
    }
  }

 private:
  /*! \brief Add the products of the reader's chunk to the sums of the rows. */
  template <int kRows>
  [[gnu::always_inline]] static void AddChunk(const GroupedTile& tile, const Reader& reader,
                                              const SignedGroup* x, Lanes::Vector (&sums)[kRows]) {
    const CodeChunk<Format> chunk(tile, reader);
    // GCC would keep the activations of all rows for the next tile, on the stack.
    asm("" : "+r"(x));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      __m512i dot = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (int i = 0; i < kQuads; ++i) {
        dot = chunk.AddQuad(i, BroadcastFour(x[r].values + 4 * i), dot);
      }
      sums[r] = chunk.Add(dot, x[r], sums[r]);
    }
  }

  template <int kRows>
  [[gnu::always_inline]] static void AddChunk(const GroupedTile& tile, const Reader& reader,
                                              const PartedGroup<kParts>* x,
                                              Lanes::Vector (&sums)[kRows]) {
    constexpr int kPartQuads = kQuads / kParts;
    const UnsignedCodes<Format> codes(tile, reader.codes());
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const Lanes::Vector scales = reader.Scales(part);
      Lanes::Vector minima = scales;
      if constexpr (Format::kSubtracts) minima = reader.NegativeMinima(part, scales);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        __m512i dot = _mm512_set1_epi32(x[r].offsets[part]);
#pragma GCC unroll 8
        for (int i = part * kPartQuads; i < (part + 1) * kPartQuads; ++i) {
          dot = codes.AddQuad(i, BroadcastFour(x[r].values + 4 * i), dot);
        }
        sums[r] =
            AddPart<Lanes, kParts, Format::kSubtracts>(scales, minima, part, {dot}, x[r], sums[r]);
      }
    }
  }
};

/*!
 * \brief Multiplies the rows of a panel by two adjacent tiles, so that each loaded activation is
 * used twice.
 *
 * The codes fill the registers, so the sums stay in the first-level cache, as with q4.
 */
template <typename Format>
struct Avx512PairOfFewRows {
  static void Run(const LinearBlock& block, int64_t tile, int64_t row, int64_t count,
                  FewRows<1> rows) {
    using Chunk = CodeChunk<Format>;
    using Reader = typename Format::Reader;
    const int64_t chunks = GroupsOf(block.num_inputs);
    Reader left(block.tile, GroupedTileAt(block, tile));
    Reader right(block.tile, GroupedTileAt(block, tile + 1));
    alignas(64) float sums[FewRowsOf(1)][2][kTileRows] = {};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      left.PrefetchAt(kPrefetchDistancePerStream);
      right.PrefetchAt(kPrefetchDistancePerStream);
      const Chunk left_chunk(block.tile, left);
      const Chunk right_chunk(block.tile, right);
#pragma GCC unroll 1
      for (int64_t r = 0; r < count; ++r) {
        const SignedGroup& x = rows.x[r];
        __m512i left_dot = _mm512_setzero_si512();
        __m512i right_dot = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < kQuads; ++i) {
          const __m512i four = BroadcastFour(x.values + 4 * i);
          left_dot = left_chunk.AddQuad(i, four, left_dot);
          right_dot = right_chunk.AddQuad(i, four, right_dot);
        }
        float* sum = sums[r][0];
        _mm512_store_ps(sum, left_chunk.Add(left_dot, x, {_mm512_load_ps(sum)}).all);
        sum = sums[r][1];
        _mm512_store_ps(sum, right_chunk.Add(right_dot, x, {_mm512_load_ps(sum)}).all);
      }
      left.Next();
      right.Next();
      rows = rows.From(rows.height);
    }
    for (int64_t r = 0; r < count; ++r) {
      for (int t = 0; t < 2; ++t) StoreSums(block, row + r, tile + t, _mm512_load_ps(sums[r][t]));
    }
  }
};

inline void SetGroup(const BiasedGroup& x, int /*zero*/, SignedGroup& group) {
  group.sum = x.sum;
  group.value_sum = x.value_sum;
}

template <int kParts>
void SetGroup(const BiasedGroup& x, int zero, PartedGroup<kParts>& group) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.bytes));
  alignas(32) int64_t eights[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(eights),
                     _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
  constexpr int kEights = 4 / kParts;
  for (int part = 0; part < kParts; ++part) {
    int64_t sum = -8 * kEights * kByteBias;
    for (int i = 0; i < kEights; ++i) sum += eights[part * kEights + i];
    group.offsets[part] = static_cast<int32_t>(-zero * sum);
  }
  for (int half = 0; half < 2; ++half) group.half_sums[half] = x.half_sums[half];
}

/*! \return The groups of a panel without their bias, in their order. */
template <int kParts>
const FewRowsGroup<kParts>* SignedGroups(const GroupedTile& tile, const BiasedGroup* x,
                                         int64_t count) {
  using Group = FewRowsGroup<kParts>;
  const __m256i bias = _mm256_set1_epi8(static_cast<char>(kByteBias));
  const auto bytes = static_cast<int64_t>(sizeof(Group));
  auto* groups = reinterpret_cast<Group*>(KernelScratch(count * bytes));
  for (int64_t i = 0; i < count; ++i) {
    const __m256i biased = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[i].bytes));
    auto* values = reinterpret_cast<__m256i*>(groups[i].values);
    _mm256_storeu_si256(values, _mm256_xor_si256(biased, bias));
    groups[i].scale = x[i].scale;
    SetGroup(x[i], ZeroOf(tile), groups[i]);
  }
  return groups;
}

/*! \return The rows of a panel of a block. \param first Its first group in the panels. */
template <int kParts>
FewRows<kParts> RowsOfPanel(const LinearBlock& block, int64_t first, int64_t height) {
  if constexpr (kParts == 1) {
    if (block.signed_groups != nullptr) return {block.signed_groups + first, height};
  }
  const int64_t count = height * GroupsOf(block.num_inputs);
  return {SignedGroups<kParts>(block.tile, block.biased + first, count), height};
}

/*! \brief Compute `count` rows of a panel for one tile. */
template <typename Kernel, int kParts>
void MultiplyFewRowsOfTile(const LinearBlock& block, int64_t tile, int64_t row, int64_t count,
                           const FewRows<kParts>& rows) {
  for (int64_t done = 0; done < count;) {
    const int64_t left = count - done;
    if (left >= 8) {
      Kernel::template Run<8, 1>(block, tile, row + done, rows.From(done));
      done += 8;
    } else if (left >= 4) {
      Kernel::template Run<4, 1>(block, tile, row + done, rows.From(done));
      done += 4;
    } else if (left >= 2) {
      Kernel::template Run<2, 1>(block, tile, row + done, rows.From(done));
      done += 2;
    } else {
      Kernel::template Run<1, 1>(block, tile, row + done, rows.From(done));
      done += 1;
    }
  }
}

/*! \brief Computes a few rows, as in decoding. \tparam kStreams The tiles at a time, or 1. */
template <typename Format, int kStreams>
void MultiplyFewRows(const LinearBlock& block) {
  using Kernel = Avx512FewRows<Format>;
  constexpr int kParts = Format::kParts;
  constexpr int kMinPairRows = kStreams > 1 ? kStreamRows + 1 : kCodePairRows;
  const int64_t chunks = GroupsOf(block.num_inputs);
  for (int64_t row = block.row_begin; row < block.row_end;) {
    const PanelCursor at = PanelOf(row, block.row_end);
    const int64_t count = at.height - at.row;
    const FewRows<kParts> rows =
        RowsOfPanel<kParts>(block, at.panel * chunks, at.height).From(at.row);
    int64_t tile = block.tile_begin;
    if constexpr (kStreams > 1) {
      static_assert(kStreamRows == 2);
      for (; count <= kStreamRows && tile + kStreams <= block.tile_end; tile += kStreams) {
        if (count == 1) {
          Kernel::template Run<1, kStreams>(block, tile, row, rows);
        } else {
          Kernel::template Run<2, kStreams>(block, tile, row, rows);
        }
      }
    }
    if constexpr (kParts == 1) {
      for (; count >= kMinPairRows && tile + 2 <= block.tile_end; tile += 2) {
        Avx512PairOfFewRows<Format>::Run(block, tile, row, count, rows);
      }
    }
    for (; tile < block.tile_end; ++tile) {
      MultiplyFewRowsOfTile<Kernel>(block, tile, row, count, rows);
    }
    row += count;
  }
}

/*! \tparam kStreams The tiles at a time. */
template <int kStreams>
struct Avx512FewRowsKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    if constexpr (!kSubtracts && kParts <= 2) {
      if (block.tile.code != CodeType::kUnsigned) {
        return MultiplyFewRows<CodeFormat<4, kParts, false, true>, kStreams>(block);
      }
    }
    switch (block.tile.bits) {
      case 2:
        return MultiplyFewRows<CodeFormat<2, kParts, kSubtracts, false>, kStreams>(block);
      case 3:
        return MultiplyFewRows<CodeFormat<3, kParts, kSubtracts, false>, kStreams>(block);
      case 4:
        return MultiplyFewRows<CodeFormat<4, kParts, kSubtracts, false>, kStreams>(block);
      case 5:
        return MultiplyFewRows<CodeFormat<5, kParts, kSubtracts, false>, kStreams>(block);
      case 6:
        return MultiplyFewRows<CodeFormat<6, kParts, kSubtracts, false>, kStreams>(block);
      default:
        return MultiplyFewRows<CodeFormat<8, kParts, kSubtracts, false>, kStreams>(block);
    }
  }
};

template <int kStreams>
bool FewGroupedRows(const LinearBlock& block) {
  const GroupedTile& tile = block.tile;
  const bool has_zero_of_part = tile.parts > 1 && tile.zero == ZeroType::kPoints && tile.bits < 8;
  const bool is_rare_table = tile.code != CodeType::kUnsigned && (tile.parts > 2 || tile.subtracts);
  if (has_zero_of_part || is_rare_table ||
      block.row_end - block.row_begin > FewRowsOf(tile.parts)) {
    return false;
  }
  Grouped<Avx512FewRowsKernel<kStreams>>(block);
  return true;
}

}  // namespace

bool FewGroupedRowsAvx512(const LinearBlock& block) { return FewGroupedRows<1>(block); }

bool FewGroupedRowStreamsAvx512(const LinearBlock& block) { return FewGroupedRows<4>(block); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
