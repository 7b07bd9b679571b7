#include "kernels/linear/base/linear_kernels.h"

#if defined(AIOMLC_I8MM)

#include "kernels/linear/base/linear_neon.h"
#include "kernels/linear/grouped/grouped_neon.h"

namespace aiomlc {

namespace {

/*! \brief Two rows of activations by eight inputs, for each quarter of a group. */
struct RowPair {
  int8x16_t octets[4];
};

RowPair LoadPair(const ActivationGroup& first, const ActivationGroup& second) {
  RowPair pair;
  for (int i = 0; i < 4; ++i) {
    pair.octets[i] = vcombine_s8(vld1_s8(first.values + 8 * i), vld1_s8(second.values + 8 * i));
  }
  return pair;
}

/*! \brief The dot products of a pair of rows with two outputs, and with the next two outputs. */
struct PairDots {
  int32x4_t outputs[2];
};

/*! \brief Multiplies pairs of rows; an odd last row is paired with itself. */
struct I8mmDot {
  using Lanes = NeonLanes;
  static constexpr int kMaxRows = 8;

  template <int kRows, typename Emit>
  static void ForDots(const uint8_t* weights, const ActivationGroup* x, Emit emit) {
    constexpr int kPairs = (kRows + 1) / 2;
    RowPair pairs[kPairs];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) pairs[p] = LoadPair(x[2 * p], x[Second(p, kRows)]);
    int32x4_t dots[2 * kPairs][4];
    // Not unrolled, because the pairs fill half of the registers, and the sums are in memory.
#pragma GCC unroll 1
    for (int quarter = 0; quarter < 4; ++quarter) {
      PairDots quarter_dots[kPairs];
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
        const int32x4_t offsets =
            vcombine_s32(vdup_n_s32(x[2 * p].offset), vdup_n_s32(x[Second(p, kRows)].offset));
        quarter_dots[p].outputs[0] = quarter_dots[p].outputs[1] = offsets;
      }
      AddProducts<kPairs>(weights + 16 * quarter, pairs, quarter_dots);
#pragma GCC unroll 4
      for (int p = 0; p < kPairs; ++p) {
        const int64x2_t begin = vreinterpretq_s64_s32(quarter_dots[p].outputs[0]);
        const int64x2_t end = vreinterpretq_s64_s32(quarter_dots[p].outputs[1]);
        dots[2 * p][quarter] = vreinterpretq_s32_s64(vtrn1q_s64(begin, end));
        dots[2 * p + 1][quarter] = vreinterpretq_s32_s64(vtrn2q_s64(begin, end));
      }
    }
    for (int r = 0; r < kRows; ++r) {
      emit(r, {dots[r][0], dots[r][1], dots[r][2], dots[r][3]});
    }
  }

 private:
  static constexpr int Second(int pair, int rows) {
    return 2 * pair + 1 < rows ? 2 * pair + 1 : 2 * pair;
  }

  /*! \brief Add the products of pairs of rows and four outputs of one group. */
  template <int kPairs>
  static void AddProducts(const uint8_t* quarter, const RowPair* x, PairDots* dots) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      // Two vectors of 4 outputs by 4 inputs become two vectors of 2 outputs by 8 inputs.
      const uint32x4_t begin = vreinterpretq_u32_u8(vld1q_u8(quarter + 128 * i));
      const uint32x4_t end = vreinterpretq_u32_u8(vld1q_u8(quarter + 128 * i + 64));
      const uint8x16_t bytes[2] = {vreinterpretq_u8_u32(vzip1q_u32(begin, end)),
                                   vreinterpretq_u8_u32(vzip2q_u32(begin, end))};
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int8x16_t low = LowNibbles(bytes[half]);
        const int8x16_t high = HighNibbles(bytes[half]);
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          int32x4_t& dot = dots[p].outputs[half];
          dot = vmmlaq_s32(dot, x[p].octets[i], low);
          dot = vmmlaq_s32(dot, x[p].octets[2 + i], high);
        }
      }
    }
  }
};

/*! \brief Multiplies pairs of rows, as `I8mmDot`. */
struct I8mmGroupedDot {
  using Lanes = NeonLanes;
  static constexpr int kMaxRows = 8;
  static constexpr bool kIsBiased = false;

  template <int kRows, int kParts, typename Emit>
  static void ForDots(const UnpackedChunk<kParts>& weights, const BiasedGroup* x, Emit emit) {
    constexpr int kPairs = (kRows + 1) / 2;
    constexpr int kPartQuads = kQuads / kParts;
    RowPair pairs[kPairs];
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
      const int second = 2 * p + 1 < kRows ? 2 * p + 1 : 2 * p;
      for (int i = 0; i < 4; ++i) {
        pairs[p].octets[i] = LoadOctets(x[2 * p].bytes + 8 * i, x[second].bytes + 8 * i);
      }
    }
    for (int part = 0; part < kParts; ++part) {
      int32x4_t dots[2 * kPairs][4];
#pragma GCC unroll 1
      for (int quarter = 0; quarter < 4; ++quarter) {
        PairDots sums[kPairs];
        for (int p = 0; p < kPairs; ++p) sums[p].outputs[0] = sums[p].outputs[1] = vdupq_n_s32(0);
#pragma GCC unroll 4
        for (int i = part * kPartQuads; i < (part + 1) * kPartQuads; i += 2) {
          AddOctet<kPairs>(weights.quads[i] + 16 * quarter, pairs, i / 2, sums);
        }
#pragma GCC unroll 4
        for (int p = 0; p < kPairs; ++p) {
          const int64x2_t begin = vreinterpretq_s64_s32(sums[p].outputs[0]);
          const int64x2_t end = vreinterpretq_s64_s32(sums[p].outputs[1]);
          dots[2 * p][quarter] = vreinterpretq_s32_s64(vtrn1q_s64(begin, end));
          dots[2 * p + 1][quarter] = vreinterpretq_s32_s64(vtrn2q_s64(begin, end));
        }
      }
      for (int r = 0; r < kRows; ++r) {
        emit(r, part, {dots[r][0], dots[r][1], dots[r][2], dots[r][3]});
      }
    }
  }

  static void LookUp(const int8_t (&values)[16], int8_t* codes) { LookUpCodes(values, codes); }

 private:
  static int8x16_t LoadOctets(const uint8_t* first, const uint8_t* second) {
    const uint8x16_t bytes = vcombine_u8(vld1_u8(first), vld1_u8(second));
    return vreinterpretq_s8_u8(veorq_u8(bytes, vdupq_n_u8(kByteBias)));
  }

  /*! \brief Add the products of pairs of rows and four outputs of two adjacent quads. */
  template <int kPairs>
  [[gnu::always_inline]] static void AddOctet(const int8_t* quarter, const RowPair* x, int octet,
                                              PairDots* sums) {
    // Two vectors of 4 outputs by 4 inputs become two vectors of 2 outputs by 8 inputs.
    const int32x4_t begin = vreinterpretq_s32_s8(vld1q_s8(quarter));
    const int32x4_t end = vreinterpretq_s32_s8(vld1q_s8(quarter + kQuadBytes));
    const int8x16_t halves[2] = {vreinterpretq_s8_s32(vzip1q_s32(begin, end)),
                                 vreinterpretq_s8_s32(vzip2q_s32(begin, end))};
#pragma GCC unroll 4
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        sums[p].outputs[half] = vmmlaq_s32(sums[p].outputs[half], x[p].octets[octet], halves[half]);
      }
    }
  }
};

void GroupedOnRowPairs(const LinearBlock& block) {
  // One row would be computed twice.
  if (block.row_end - block.row_begin == 1) return kLinearNeon->grouped(block);
  Grouped<GroupedKernel<I8mmGroupedDot>>(block);
}

void Q4OnRowPairs(const LinearBlock& block) {
  // One row would be computed twice.
  if (block.row_end - block.row_begin == 1) return kLinearNeon->q4(block);
  Q4<I8mmDot>(block);
}

}  // namespace

void (*const kQ4I8mm)(const LinearBlock&) = Q4OnRowPairs;
void (*const kGroupedI8mm)(const LinearBlock&) = GroupedOnRowPairs;

}  // namespace aiomlc

#elif defined(__aarch64__)

namespace aiomlc {

void (*const kQ4I8mm)(const LinearBlock&) = nullptr;
void (*const kGroupedI8mm)(const LinearBlock&) = nullptr;

}  // namespace aiomlc

#endif  // defined(AIOMLC_I8MM)
