/*!
 * \file kernels/linear/grouped/grouped_rows_avx2.cc
 * \brief Products of grouped formats and a few rows, without storing unpacked weights.
 *
 * Unpacking to the cache takes longer than the products of one row. Here the codes stay in
 * registers, as they are: the products with their zeros, the same for a part of the row, are
 * subtracted from the dot products. All integers are exact, so the bits are those of the other
 * kernels.
 */
#if defined(__x86_64__)

#include <array>
#include <utility>

#include "kernels/linear/grouped/grouped_avx2.h"

namespace aiomlc {

namespace {

/*! \brief The activations of a chunk of a row, and their sums. */
template <int kParts>
struct SignedGroup {
  alignas(32) int8_t values[kGroupSize];
  int32_t sums[kParts];

  void Set(const BiasedGroup& x) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.bytes));
    const __m256i bias = _mm256_set1_epi8(static_cast<char>(kByteBias));
    _mm256_store_si256(reinterpret_cast<__m256i*>(values), _mm256_xor_si256(bytes, bias));
    alignas(32) int64_t eights[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(eights),
                       _mm256_sad_epu8(bytes, _mm256_setzero_si256()));
    constexpr int kEights = 4 / kParts;
    for (int part = 0; part < kParts; ++part) {
      int64_t sum = -8 * kEights * kByteBias;
      for (int i = 0; i < kEights; ++i) sum += eights[part * kEights + i];
      sums[part] = static_cast<int32_t>(sum);
    }
  }
};

// The chunks whose activations become signed at a time. With one, the loads of parts of what has
// just been stored would wait for the stores.
constexpr int64_t kSignedChunks = 4;

/*! \brief Of a `ChunkReader` that does not unpack. */
struct Avx2Registers {
  using Lanes = Avx2Lanes;
};

/*!
 * \brief Multiplies at most kMaxRows rows of a panel by one tile of 4-bit codes.
 *
 * Groups have 32 inputs or more. The zeros are subtracted as floats, which is exact, too.
 */
template <bool kSubtracts>
struct Avx2NibbleRows {
  using Lanes = Avx2Lanes;
  static constexpr int kMaxRows = 8;

  template <int kRows>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row, PanelCursor at) {
    const int64_t chunks = GroupsOf(block.num_inputs);
    const BiasedGroup* x = block.biased + at.panel * chunks + at.row;
    ChunkReader<Avx2Registers, 1> reader(block.tile, GroupedTileAt(block, tile));
    Lanes::Vector sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = Lanes::Set(0.0f);
    alignas(32) int8_t values[kSignedChunks][kRows][kGroupSize];
    for (int64_t chunk = 0; chunk < chunks; ++chunk, x += at.height, reader.Next()) {
      const int64_t copy = chunk % kSignedChunks;
      if (copy == 0) CopyValues<kRows>(x, at.height, chunks - chunk, values);
      reader.PrefetchAt(kPrefetchDistance);
      __m256i pairs[kRows][2];
      MultiplyNibbles<kRows>(
          reader.codes(), [&](int r) __attribute__((always_inline)) { return values[copy][r]; },
          pairs);
      const Lanes::Vector scales = reader.Scales(0);
      // Minima, or the zeros of the codes.
      const Lanes::Vector negative =
          kSubtracts ? reader.NegativeMinima(0, scales) : NegativeZeros(block.tile, reader);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i ones = _mm256_set1_epi16(1);
        Lanes::Vector dot = Lanes::ToFloat(
            {_mm256_madd_epi16(pairs[r][0], ones), _mm256_madd_epi16(pairs[r][1], ones)});
        if constexpr (!kSubtracts) {
          dot = Lanes::Fma(negative, Lanes::Set(x[r].value_sum), dot);
        }
        sums[r] = Lanes::Fma(dot, Lanes::Mul(scales, Lanes::Set(x[r].scale)), sums[r]);
        if constexpr (kSubtracts) sums[r] = Lanes::Fma(negative, Lanes::Set(x[r].sum), sums[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile, sums[r]);
  }

 private:
  /*!
   * \brief Copy the signed activations of the next chunks of some rows.
   * \param left The chunks that are left.
   */
  template <int kRows>
  [[gnu::always_inline]] static void CopyValues(
      const BiasedGroup* x, int64_t height, int64_t left,
      int8_t (&values)[kSignedChunks][kRows][kGroupSize]) {
    const __m256i bias = _mm256_set1_epi8(static_cast<char>(kByteBias));
    const int64_t count = left < kSignedChunks ? left : kSignedChunks;
    for (int64_t c = 0; c < count; ++c, x += height) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[r].bytes));
        _mm256_store_si256(reinterpret_cast<__m256i*>(values[c][r]), _mm256_xor_si256(bytes, bias));
      }
    }
  }

  [[gnu::always_inline]] static Lanes::Vector NegativeZeros(
      const GroupedTile& tile, const ChunkReader<Avx2Registers, 1>& reader) {
    if (tile.zero != ZeroType::kPoints) return Lanes::Set(-static_cast<float>(tile.constant));
    return Lanes::Sub(Lanes::Set(0.0f), Lanes::Load(reader.zeros(0)));
  }
};

/*!
 * \brief Multiplies at most kMaxRows rows of a panel by one tile.
 * \tparam kBits Of a code. \tparam kLooksUp Whether codes are indices of signed values.
 */
template <int kBits, int kParts, bool kSubtracts, bool kLooksUp = false>
struct Avx2FewRows {
  using Lanes = Avx2Lanes;
  using Words = Registers<32>::Words;
  using Reader = ChunkReader<Avx2Registers, kParts>;
  static constexpr int kMaxRows = 4;

  template <int kRows>
  static void Run(const LinearBlock& block, int64_t tile, int64_t row, PanelCursor at) {
    const int64_t chunks = GroupsOf(block.num_inputs);
    const BiasedGroup* x = block.biased + at.panel * chunks + at.row;
    Reader reader(block.tile, GroupedTileAt(block, tile));
    Lanes::Vector sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = Lanes::Set(0.0f);
    SignedGroup<kParts> signed_x[kSignedChunks][kRows] = {};  // GCC does not see that it is set.
    for (int64_t chunk = 0; chunk < chunks; ++chunk, x += at.height, reader.Next()) {
      const int64_t copy = chunk % kSignedChunks;
      if (copy == 0) {
        for (int64_t c = 0; c < kSignedChunks && chunk + c < chunks; ++c) {
          for (int r = 0; r < kRows; ++r) signed_x[c][r].Set(x[c * at.height + r]);
        }
      }
      const SignedGroup<kParts>* groups = signed_x[copy];
      reader.PrefetchAt(kPrefetchDistance);
      __m256i dots[kParts][kRows][2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Words codes[kQuads];
        ReadCodes<kBits>(reader.codes() + 32 * half, codes);
        if constexpr (kLooksUp) LookUp(block.tile.code, codes);
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
          const __m256i zeros = Zeros(block.tile, reader, part, half);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            __m256i& dot = dots[part][r][half];
            dot = DotOf(codes, part, groups[r].values);
            if constexpr (kIsSigned) continue;  // The zero is in the minimum, or there is none.
            const __m256i sum = _mm256_set1_epi32(groups[r].sums[part]);
            dot = _mm256_sub_epi32(dot, _mm256_mullo_epi32(zeros, sum));
          }
        }
      }
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const Lanes::Vector scales = reader.Scales(part);
        Lanes::Vector minima = scales;
        if constexpr (kSubtracts) minima = reader.NegativeMinima(part, scales);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const Lanes::Integers dot = {dots[part][r][0], dots[part][r][1]};
          sums[r] = AddPart<Lanes, kParts, kSubtracts>(scales, minima, part, dot, x[r], sums[r]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) StoreOutputs<Lanes>(block, row + r, tile, sums[r]);
  }

 private:
  static constexpr int kPartQuads = kQuads / kParts;
  // Whether products are of signed values, which are too large to be added as 16 bits.
  static constexpr bool kIsSigned = kBits == 8 || kLooksUp;
  // The quads whose pairs of products, with activations of at most 127, are added as 16 bits.
  static constexpr int kPairQuads = kBits <= 4 ? 8 : kBits == 5 ? 4 : 2;
  static_assert(kBits == 8 || kPairQuads * 2 * 127 * ((1 << kBits) - 1) < 1 << 15);

  /*! \return The zeros to subtract from the codes of 8 outputs, as int32. */
  [[gnu::always_inline]] static __m256i Zeros(const GroupedTile& tile, const Reader& reader,
                                              int part, int half) {
    if (tile.zero != ZeroType::kPoints) return _mm256_set1_epi32(tile.constant);
    return _mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(reader.zeros(part) + 8 * half)));
  }

  /*! \brief Replace codes by their values. */
  [[gnu::always_inline]] static void LookUp(CodeType code, Words (&codes)[kQuads]) {
    const int8_t* values = code == CodeType::kE2M1 ? kE2M1Values : kIQ4NLValues;
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
#pragma GCC unroll 8
    for (Words& quad : codes) {
      quad = reinterpret_cast<Words>(
          _mm256_shuffle_epi8(table, reinterpret_cast<const __m256i&>(quad)));
    }
  }

  /*! \return The dot products of 8 outputs; of codes of 8 bits, with the codes minus 128. */
  [[gnu::always_inline]] static __m256i DotOf(const Words (&codes)[kQuads], int part,
                                              const int8_t* x) {
    const __m256i ones = _mm256_set1_epi16(1);
    const __m256i bias = _mm256_set1_epi8(static_cast<char>(kByteBias));
    __m256i dot = _mm256_setzero_si256();
    __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int i = 0; i < kPartQuads; ++i) {
      const auto quad = reinterpret_cast<const __m256i&>(codes[part * kPartQuads + i]);
      const __m256i four = BroadcastFour(x + 4 * (part * kPartQuads + i));
      if constexpr (kIsSigned) {
        const __m256i value = kLooksUp ? quad : _mm256_xor_si256(quad, bias);
        const __m256i products =
            _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(four, value));
        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(products, ones));
      } else {
        pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(quad, four));
        if ((i + 1) % kPairQuads != 0 && i + 1 < kPartQuads) continue;
        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
        pairs = _mm256_setzero_si256();
      }
    }
    return dot;
  }
};

/*! \brief Computes some rows of all tiles, at most kMaxRows at a time. */
template <typename Kernel>
void MultiplyRows(const LinearBlock& block) {
  using Function = void (*)(const LinearBlock&, int64_t, int64_t, PanelCursor);
  static constexpr auto kFunctions =
      []<int... kRow>(std::integer_sequence<int, kRow...> /*counts*/) {
        return std::array<Function, sizeof...(kRow)>{Kernel::template Run<kRow + 1>...};
      }(std::make_integer_sequence<int, Kernel::kMaxRows>());
  for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
    for (int64_t row = block.row_begin; row < block.row_end;) {
      const PanelCursor at = PanelOf(row, block.row_end);
      const int64_t left = at.height - at.row;
      const int64_t rows = left < Kernel::kMaxRows ? left : Kernel::kMaxRows;
      kFunctions[rows - 1](block, tile, row, at);
      row += rows;
    }
  }
}

template <int kBits, int kParts, bool kSubtracts>
void MultiplyFewRows(const LinearBlock& block) {
  MultiplyRows<Avx2FewRows<kBits, kParts, kSubtracts>>(block);
}

template <int kParts, bool kSubtracts>
void MultiplyFewRows(const LinearBlock& block) {
  switch (block.tile.bits) {
    case 2:
      return MultiplyFewRows<2, kParts, kSubtracts>(block);
    case 3:
      return MultiplyFewRows<3, kParts, kSubtracts>(block);
    case 4:
      return MultiplyFewRows<4, kParts, kSubtracts>(block);
    case 5:
      return MultiplyFewRows<5, kParts, kSubtracts>(block);
    case 6:
      return MultiplyFewRows<6, kParts, kSubtracts>(block);
    default:
      return MultiplyFewRows<8, kParts, kSubtracts>(block);
  }
}

// The rows for which unpacking to the cache is too slow; of 4-bit codes with one scale in a chunk.
constexpr int64_t kFewRows = 4;
constexpr int64_t kNibbleRows = 16;

struct Avx2FewRowsKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    if (block.tile.code != CodeType::kUnsigned) {
      return MultiplyRows<Avx2FewRows<4, kParts, kSubtracts, true>>(block);
    }
    if constexpr (kParts == 1) {
      if (block.tile.bits == 4) return MultiplyRows<Avx2NibbleRows<kSubtracts>>(block);
    }
    MultiplyFewRows<kParts, kSubtracts>(block);
  }
};

}  // namespace

bool FewGroupedRowsAvx2(const LinearBlock& block) {
  const GroupedTile& tile = block.tile;
  const bool is_nibble = tile.code == CodeType::kUnsigned && tile.bits == 4 && tile.parts == 1;
  if (block.row_end - block.row_begin > (is_nibble ? kNibbleRows : kFewRows)) return false;
  Grouped<Avx2FewRowsKernel>(block);
  return true;
}

}  // namespace aiomlc

#endif  // defined(__x86_64__)
