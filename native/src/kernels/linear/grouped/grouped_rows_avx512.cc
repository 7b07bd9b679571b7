/*!
 * \file kernels/linear/grouped/grouped_rows_avx512.cc
 * \brief Products of grouped formats and a few rows, whose unpacked weights stay in registers.
 *
 * Unpacking to the cache takes longer than the products of one row. Subtracting zero points from
 * codes and compensating for the bias of the activations takes as long as the products of two rows.
 * So with one scale per chunk, the activations become signed once for all tiles, and the codes are
 * the unsigned operand; zero points are subtracted from the sums as floats, which is exact, too.
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

/*! \brief The activations for kernels of a few rows, if a chunk has kParts scales. */
template <int kParts>
using FewRowsGroup = std::conditional_t<kParts == 1, SignedGroup, BiasedGroup>;

/*! \brief Rows of one panel. */
template <int kParts>
struct FewRows {
  const FewRowsGroup<kParts>* x;  //!< The first row.
  int64_t height;                 //!< Of the panel.

  /*! \return The rows from another one on; row `height` is in the next chunk. */
  FewRows From(int64_t row) const { return {x + row, height}; }
};

/*!
 * \brief A chunk of a tile that has one scale, for signed activations.
 * \tparam kBits Of an unsigned code.
 */
template <int kBits, bool kSubtracts>
class CodeChunk {
 public:
  using Lanes = Avx512Lanes;

  [[gnu::always_inline]] CodeChunk(const GroupedTile& tile,
                                   const ChunkReader<Avx512GroupedDot, 1>& reader)
      : scales_(reader.Scales(0)), minima_(scales_), zeros_(scales_) {
    ReadCodes<kBits>(reader.codes(), codes_);
    if constexpr (kSubtracts) minima_ = reader.NegativeMinima(0, scales_);
    if constexpr (!kHasZeros) return;
    if (kBits == 8) {
      zeros_ = Lanes::Set(-static_cast<float>(kByteBias));
    } else if (tile.zero == ZeroType::kPoints) {
      zeros_ = Lanes::Sub(Lanes::Set(0.0f), Lanes::Load(reader.zeros(0)));
    } else {
      zeros_ = Lanes::Set(-static_cast<float>(tile.constant));
    }
  }

  /*! \brief Add the products of a quad. \param four Its activations, repeated. */
  [[gnu::always_inline]] __m512i AddQuad(int quad, __m512i four, __m512i dot) const {
    return _mm512_dpbusd_epi32(dot, reinterpret_cast<const __m512i&>(codes_[quad]), four);
  }

  /*! \brief Add the scaled products of a row. \param dot Of all quads. */
  [[gnu::always_inline]] Lanes::Vector Add(__m512i dot, const SignedGroup& x,
                                           Lanes::Vector sums) const {
    Lanes::Vector product = Lanes::ToFloat({dot});
    if constexpr (kHasZeros) product = Lanes::Fma(zeros_, Lanes::Set(x.value_sum), product);
    sums = Lanes::Fma(product, Lanes::Mul(scales_, Lanes::Set(x.scale)), sums);
    if constexpr (kSubtracts) sums = Lanes::Fma(minima_, Lanes::Set(x.sum), sums);
    return sums;
  }

 private:
  // With minima there are no zero points, except with 8 bits: these minima are of codes minus 128.
  static constexpr bool kHasZeros = !kSubtracts || kBits == 8;

  Codes<64>::Words codes_[kQuads];
  Lanes::Vector scales_, minima_, zeros_;  // The minima and zeros with the opposite sign.
};

/*! \brief Multiplies kRows rows of a panel by one tile. \tparam kBits Of an unsigned code. */
template <int kBits, int kParts, bool kSubtracts>
struct Avx512FewRows {
  using Lanes = Avx512Lanes;
  using Reader = ChunkReader<Avx512GroupedDot, kParts>;

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
        of_tile.PrefetchCodes(of_tile.codes() + kDistance);
        if constexpr (kParts == 1) {
          AddSignedChunk<kRows>(block.tile, of_tile, rows.x, sums[t]);
        } else {
          AddChunk<kRows>(block.tile, of_tile, rows.x, sums[t]);
        }
      }
      rows = rows.From(rows.height);
    }
    for (int t = 0; t < kTiles; ++t) {
      for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile + t, sums[t][r]);
    }
  }

 private:
  static constexpr int kPartQuads = kQuads / kParts;

  /*! \brief `AddChunk` with signed activations, for a chunk with one scale. */
  template <int kRows>
  [[gnu::always_inline]] static void AddSignedChunk(const GroupedTile& tile, const Reader& reader,
                                                    const SignedGroup* x,
                                                    Lanes::Vector (&sums)[kRows]) {
    const CodeChunk<kBits, kSubtracts> chunk(tile, reader);
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

  /*! \brief Add the products of the reader's chunk to the sums of the rows. */
  template <int kRows>
  [[gnu::always_inline]] static void AddChunk(const GroupedTile& tile, const Reader& reader,
                                              const BiasedGroup* x, Lanes::Vector (&sums)[kRows]) {
    Codes<64>::Words codes[kQuads];
    ReadCodes<kBits>(reader.codes(), codes);
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      __m512i quads[kPartQuads];
      const __m512i offset = Subtract(codes, part, Zeros(tile, reader, part), quads);
      const Lanes::Vector scales = reader.Scales(part);
      Lanes::Vector minima = scales;
      if constexpr (kSubtracts) minima = reader.NegativeMinima(part, scales);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        __m512i dot = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int i = 0; i < kPartQuads; ++i) {
          const __m512i four = BroadcastFour(x[r].bytes + 4 * (part * kPartQuads + i));
          dot = _mm512_dpbusd_epi32(dot, four, quads[i]);
        }
        dot = _mm512_add_epi32(dot, offset);
        sums[r] = AddPart<Lanes, kParts, kSubtracts>(scales, minima, part, {dot}, x[r], sums[r]);
      }
    }
  }

  /*! \return The zeros to subtract from the codes of a quad: see `ChunkReader::UnpackValues`. */
  [[gnu::always_inline]] static __m512i Zeros(const GroupedTile& tile, const Reader& reader,
                                              int part) {
    if (kBits == 8) return _mm512_set1_epi8(static_cast<char>(kByteBias));
    if (tile.zero != ZeroType::kPoints) return _mm512_set1_epi8(static_cast<char>(tile.constant));
    // Each of 16 zero points four times, for the four inputs of a quad.
    const __m512i repeated =
        _mm512_set_epi32(0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a,
                         0x09090909, 0x08080808, 0x07070707, 0x06060606, 0x05050505, 0x04040404,
                         0x03030303, 0x02020202, 0x01010101, 0x00000000);
    const __m128i points = _mm_loadu_si128(reinterpret_cast<const __m128i*>(reader.zeros(part)));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(points), repeated);
  }

  /*!
   * \brief Subtract the zeros from the codes of a part.
   * \return The sum that compensates for the bias of the activations.
   */
  [[gnu::always_inline]] static __m512i Subtract(const Codes<64>::Words (&codes)[kQuads], int part,
                                                 __m512i zeros, __m512i (&quads)[kPartQuads]) {
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(kByteBias));
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < kPartQuads; ++i) {
      const auto quad = reinterpret_cast<const __m512i&>(codes[part * kPartQuads + i]);
      quads[i] = _mm512_sub_epi8(quad, zeros);
      sum = _mm512_dpbusd_epi32(sum, bias, quads[i]);
    }
    return _mm512_sub_epi32(_mm512_setzero_si512(), sum);
  }
};

/*!
 * \brief Multiplies the rows of a panel by two adjacent tiles, so that each loaded activation is
 * used twice.
 *
 * The codes fill the registers, so the sums stay in the first-level cache, as with q4.
 */
template <int kBits, bool kSubtracts>
struct Avx512PairOfFewRows {
  static void Run(const LinearBlock& block, int64_t tile, int64_t row, int64_t count,
                  FewRows<1> rows) {
    using Chunk = CodeChunk<kBits, kSubtracts>;
    using Reader = ChunkReader<Avx512GroupedDot, 1>;
    const int64_t chunks = GroupsOf(block.num_inputs);
    Reader left(block.tile, GroupedTileAt(block, tile));
    Reader right(block.tile, GroupedTileAt(block, tile + 1));
    alignas(64) float sums[FewRowsOf(1)][2][kTileRows] = {};
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      left.PrefetchCodes(left.codes() + kPrefetchDistancePerStream);
      right.PrefetchCodes(right.codes() + kPrefetchDistancePerStream);
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

/*! \return The groups of a panel without their bias, in their order. */
inline const SignedGroup* SignedGroups(const BiasedGroup* x, int64_t count) {
  const __m256i bias = _mm256_set1_epi8(static_cast<char>(kByteBias));
  const auto bytes = static_cast<int64_t>(sizeof(SignedGroup));
  auto* groups = reinterpret_cast<SignedGroup*>(KernelScratch(count * bytes));
  for (int64_t i = 0; i < count; ++i) {
    const __m256i biased = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[i].bytes));
    auto* values = reinterpret_cast<__m256i*>(groups[i].values);
    _mm256_storeu_si256(values, _mm256_xor_si256(biased, bias));
    groups[i].scale = x[i].scale;
    groups[i].sum = x[i].sum;
    groups[i].value_sum = x[i].value_sum;
  }
  return groups;
}

/*! \return The rows of a panel of a block. \param first Its first group in the panels. */
template <int kParts>
FewRows<kParts> RowsOfPanel(const LinearBlock& block, int64_t first, int64_t height) {
  if constexpr (kParts > 1) {
    return {block.biased + first, height};
  } else if (block.signed_groups != nullptr) {
    return {block.signed_groups + first, height};
  } else {
    return {SignedGroups(block.biased + first, height * GroupsOf(block.num_inputs)), height};
  }
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
template <int kBits, int kParts, bool kSubtracts, int kStreams>
void MultiplyFewRows(const LinearBlock& block) {
  using Kernel = Avx512FewRows<kBits, kParts, kSubtracts>;
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
        Avx512PairOfFewRows<kBits, kSubtracts>::Run(block, tile, row, count, rows);
      }
    }
    for (; tile < block.tile_end; ++tile) {
      MultiplyFewRowsOfTile<Kernel>(block, tile, row, count, rows);
    }
    row += count;
  }
}

template <int kParts, bool kSubtracts, int kStreams>
void MultiplyFewRows(const LinearBlock& block) {
  switch (block.tile.bits) {
    case 2:
      return MultiplyFewRows<2, kParts, kSubtracts, kStreams>(block);
    case 3:
      return MultiplyFewRows<3, kParts, kSubtracts, kStreams>(block);
    case 4:
      return MultiplyFewRows<4, kParts, kSubtracts, kStreams>(block);
    case 5:
      return MultiplyFewRows<5, kParts, kSubtracts, kStreams>(block);
    case 6:
      return MultiplyFewRows<6, kParts, kSubtracts, kStreams>(block);
    default:
      return MultiplyFewRows<8, kParts, kSubtracts, kStreams>(block);
  }
}

/*! \tparam kStreams The tiles at a time. */
template <int kStreams>
struct Avx512FewRowsKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    MultiplyFewRows<kParts, kSubtracts, kStreams>(block);
  }
};

template <int kStreams>
bool FewGroupedRows(const LinearBlock& block) {
  if (block.tile.code != CodeType::kUnsigned ||
      block.row_end - block.row_begin > FewRowsOf(block.tile.parts)) {
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
