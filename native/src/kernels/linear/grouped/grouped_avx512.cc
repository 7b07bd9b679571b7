#if defined(__x86_64__)

#include "kernels/linear/grouped/grouped_avx512.h"

namespace aiomlc {

namespace {

// With fewer rows, memory is the bottleneck rather than arithmetic.
constexpr int kPairRows = 5;

/*!
 * \brief Multiplies rows by two adjacent tiles, so that each loaded activation is used twice.
 *
 * The weights of a chunk fill the registers, so the sums stay in the first-level cache.
 */
template <int kParts, bool kSubtracts>
struct GroupedPair {
  using Chunk = UnpackedChunk<kParts>;
  using Sums = float[2][kTileRows];

  /*! \brief Add the products of a chunk of both tiles and the rows of a panel. */
  static void AddChunk(const Chunk& left, const Chunk& right, const BiasedGroup* x, int64_t rows,
                       Sums* sums) {
    constexpr int kPartQuads = kQuads / kParts;
    __m512i left_quads[kQuads];
    __m512i right_quads[kQuads];
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) {
      left_quads[i] = _mm512_load_si512(left.quads[i]);
      right_quads[i] = _mm512_load_si512(right.quads[i]);
    }
#pragma GCC unroll 1
    for (int64_t r = 0; r < rows; ++r) {
      Avx512Lanes::Vector left_sums = {_mm512_load_ps(sums[r][0])};
      Avx512Lanes::Vector right_sums = {_mm512_load_ps(sums[r][1])};
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        __m512i left_dot = _mm512_load_si512(left.offsets[part]);
        __m512i right_dot = _mm512_load_si512(right.offsets[part]);
#pragma GCC unroll 8
        for (int i = part * kPartQuads; i < (part + 1) * kPartQuads; ++i) {
          const __m512i four = BroadcastFour(x[r].bytes + 4 * i);
          left_dot = _mm512_dpbusd_epi32(left_dot, four, left_quads[i]);
          right_dot = _mm512_dpbusd_epi32(right_dot, four, right_quads[i]);
        }
        left_sums =
            AddPart<Avx512Lanes, kParts, kSubtracts>(left, part, {left_dot}, x[r], left_sums);
        right_sums =
            AddPart<Avx512Lanes, kParts, kSubtracts>(right, part, {right_dot}, x[r], right_sums);
      }
      _mm512_store_ps(sums[r][0], left_sums.all);
      _mm512_store_ps(sums[r][1], right_sums.all);
    }
  }

  /*! \brief Multiply at most kGroupedRows rows by the tiles `tile` and `tile + 1`. */
  static void Run(const LinearBlock& block, int64_t tile, int64_t row_begin, int64_t row_end) {
    const int64_t chunks = GroupsOf(block.num_inputs);
    ChunkReader<Avx512GroupedDot, kParts> left(block.tile, GroupedTileAt(block, tile));
    ChunkReader<Avx512GroupedDot, kParts> right(block.tile, GroupedTileAt(block, tile + 1));
    Chunk left_chunks[kUnpackedChunks];
    Chunk right_chunks[kUnpackedChunks];
    alignas(64) Sums sums[kGroupedRows];
    __builtin_memset(sums, 0, (row_end - row_begin) * sizeof(Sums));
    for (int64_t chunk = 0; chunk < chunks; chunk += kUnpackedChunks) {
      const int count =
          static_cast<int>(chunks - chunk < kUnpackedChunks ? chunks - chunk : kUnpackedChunks);
      left.template Unpack<0>(count, left_chunks);
      right.template Unpack<0>(count, right_chunks);
      for (int64_t row = row_begin; row < row_end; row += kPanelRows) {
        const int64_t height = PanelOf(row, block.row_end).height;
        const BiasedGroup* x = block.biased + row * chunks + chunk * height;
        for (int c = 0; c < count; ++c, x += height) {
          if (row == row_begin) {
            left.Prefetch(c);
            right.Prefetch(c);
          }
          AddChunk(left_chunks[c], right_chunks[c], x, height, sums + (row - row_begin));
        }
      }
    }
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int t = 0; t < 2; ++t) {
        StoreSums(block, row, tile + t, _mm512_load_ps(sums[row - row_begin][t]));
      }
    }
  }
};

/*! \brief Computes pairs of tiles if there are enough rows, and then the other tiles. */
struct Avx512GroupedKernel {
  template <int kParts, bool kSubtracts>
  static void Run(const LinearBlock& block) {
    LinearBlock rest = block;
    if (block.row_end - block.row_begin >= kPairRows) {
      rest.tile_begin = block.tile_end - (block.tile_end - block.tile_begin) % 2;
      for (int64_t row = block.row_begin; row < block.row_end; row += kGroupedRows) {
        const int64_t end = row + kGroupedRows < block.row_end ? row + kGroupedRows : block.row_end;
        for (int64_t tile = block.tile_begin; tile < rest.tile_begin; tile += 2) {
          GroupedPair<kParts, kSubtracts>::Run(block, tile, row, end);
        }
      }
    }
    GroupedKernel<Avx512GroupedDot>::Run<kParts, kSubtracts>(rest);
  }
};

}  // namespace

void GroupedAvx512(const LinearBlock& block) {
  if (!FewGroupedRowsAvx512(block)) Grouped<Avx512GroupedKernel>(block);
}

void GroupedStreamsAvx512(const LinearBlock& block) {
  if (!FewGroupedRowStreamsAvx512(block)) Grouped<Avx512GroupedKernel>(block);
}

}  // namespace aiomlc

#endif  // defined(__x86_64__)
