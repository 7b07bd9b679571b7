/*!
 * \file kernels/linear/grouped_rows_avx512.h
 * \brief Products of grouped formats and a few rows, whose unpacked weights stay in registers.
 *
 * Unpacking to the cache takes longer than the products of one row.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_GROUPED_ROWS_AVX512_H_
#define AIOMLC_KERNELS_LINEAR_GROUPED_ROWS_AVX512_H_

#include "kernels/linear/grouped_avx512.h"

namespace aiomlc {

namespace {

/*! \brief Multiplies kRows rows of a panel by one tile. \tparam kBits Of an unsigned code. */
template <int kBits, int kParts, bool kSubtracts>
struct Avx512FewRows {
  using Lanes = Avx512Lanes;
  using Reader = ChunkReader<Avx512GroupedDot, kParts>;

  template <int kRows, int kTiles>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row, PanelCursor at) {
    constexpr int kDistance = kTiles == 1 ? kPrefetchDistance : kPrefetchDistancePerStream;
    const int64_t chunks = GroupsOf(block.num_inputs);
    const BiasedGroup* x = block.biased + at.panel * chunks + at.row;
    Reader reader(block.tile, GroupedTileAt(block, tile));
    const int64_t tile_bytes = GroupedTileAt(block, tile + 1) - GroupedTileAt(block, tile);
    Lanes::Vector sums[kTiles][kRows];
    for (auto& of_tile : sums) {
      for (Lanes::Vector& sum : of_tile) sum = Lanes::Set(0.0f);
    }
    for (int64_t chunk = 0; chunk < chunks; ++chunk, x += at.height, reader.Next()) {
#pragma GCC unroll 4
      for (int t = 0; t < kTiles; ++t) {
        const Reader of_tile = reader.After(t * tile_bytes);
        of_tile.PrefetchCodes(of_tile.codes() + kDistance);
        AddChunk<kRows>(block.tile, of_tile, x, sums[t]);
      }
    }
    for (int t = 0; t < kTiles; ++t) {
      for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile + t, sums[t][r]);
    }
  }

 private:
  static constexpr int kPartQuads = kQuads / kParts;

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

  /*! \return What is subtracted from the codes of a quad: see `ChunkReader::UnpackValues`. */
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
   * \return What compensates for the bias of the activations.
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

/*! \brief Computes a few rows, as in decoding. \tparam kStreams The tiles of one row at a time. */
template <int kBits, int kParts, bool kSubtracts, int kStreams>
void MultiplyFewRows(const LinearBlock& block) {
  using Kernel = Avx512FewRows<kBits, kParts, kSubtracts>;
  int64_t tile = block.tile_begin;
  if constexpr (kStreams > 1) {
    if (block.row_end - block.row_begin == 1) {
      const PanelCursor at = PanelOf(block.row_begin, block.row_end);
      for (; tile + kStreams <= block.tile_end; tile += kStreams) {
        Kernel::template Run<1, kStreams>(block, tile, block.row_begin, at);
      }
    }
  }
  for (; tile < block.tile_end; ++tile) {
    for (int64_t row = block.row_begin; row < block.row_end;) {
      const PanelCursor at = PanelOf(row, block.row_end);
      const int64_t left = at.height - at.row;
      if (left >= 8) {
        Kernel::template Run<8, 1>(block, tile, row, at);
        row += 8;
      } else if (left >= 4) {
        Kernel::template Run<4, 1>(block, tile, row, at);
        row += 4;
      } else if (left >= 2) {
        Kernel::template Run<2, 1>(block, tile, row, at);
        row += 2;
      } else {
        Kernel::template Run<1, 1>(block, tile, row, at);
        row += 1;
      }
    }
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

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_GROUPED_ROWS_AVX512_H_
