/*!
 * \file kernels/linear/tiers/linear_amx.h
 * \brief The q4 kernel on tile registers, as a template over a class of registers.
 *
 * The dot products of each group are exact integers, and the following operations are those of the
 * AVX-512 kernel, so the bits are the same. The library uses the AMX registers; the tests use a
 * class with plain loops, so that this code also runs on processors without AMX.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_H_
#define AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_H_

#include <cstdint>

#include "kernels/linear/base/linear_avx512.h"
#include "kernels/linear/base/tile_products.h"

namespace aiomlc {

namespace {

/*! \brief q4 for `TileKernel`. */
struct Q4Format {
  /*! \brief The weights of a group of a tile, minus the zero point. */
  struct alignas(64) Weights {
    int8_t quads[8][64];  //!< [input / 4][output][input % 4], in [-7, 8].
    float scales[kTileRows];
  };
  using Activations = ActivationGroup;

  static const Activations* Panels(const LinearBlock& block) { return block.activations; }

  template <int kSums, typename Tiles>
  static void Begin(Tiles& tiles, const Weights& /*weights*/) {
    tiles.template Zero<kSums>();
  }

  template <int kSums, int kA, int kB, typename Tiles>
  static void AddProducts(Tiles& tiles) {
    tiles.template AddDots<kSums, kA, kB>();
  }

  [[gnu::always_inline]] static __m512 Add(const Weights& weights, __m512i dot,
                                           const Activations& x, __m512 sums) {
    return AddScaledDot(dot, _mm512_load_ps(weights.scales), x, sums);
  }

  class Reader {
   public:
    Reader(const LinearBlock& block, int64_t tile)
        : next_(static_cast<const uint8_t*>(block.packed) +
                tile * GroupsOf(block.num_inputs) * kGroupBytes) {}

    void Unpack(int count, Weights* weights) {
      const __m512i low_nibbles = _mm512_set1_epi8(15);
      const __m512i seven = _mm512_set1_epi8(7);
      for (int g = 0; g < count; ++g, next_ += kGroupBytes, ++weights) {
        for (int i = 0; i < 4; ++i) {
          const __m512i bytes = _mm512_loadu_si512(next_ + 64 * i);
          const __m512i low = _mm512_and_si512(bytes, low_nibbles);
          const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low_nibbles);
          _mm512_store_si512(weights->quads[i], _mm512_sub_epi8(low, seven));
          _mm512_store_si512(weights->quads[4 + i], _mm512_sub_epi8(high, seven));
        }
        const void* scales = next_ + kGroupNibbleBytes;
        _mm512_store_ps(weights->scales,
                        _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(scales))));
      }
    }

    void Prefetch(int ahead) const {
      const uint8_t* group = next_ + ahead * kGroupBytes;
      for (int at = 0; at < kGroupBytes; at += 64) __builtin_prefetch(group + at);
    }

   private:
    const uint8_t* next_;
  };
};

/*!
 * \brief The q4 kernel.
 * \tparam Tiles The registers; constructed from `TileShapes`, and released by its destructor.
 */
template <typename Tiles>
void Q4OnTiles(const LinearBlock& block) {
  const auto [on_tiles, on_avx512] = DivideRows(block);
  if (on_tiles.row_begin < on_tiles.row_end) TileKernel<Q4Format, Tiles>::Run(on_tiles);
  if (on_avx512.row_begin < on_avx512.row_end) Q4StreamsAvx512(on_avx512);
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_TIERS_LINEAR_AMX_H_
