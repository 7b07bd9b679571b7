/*!
 * \file kernels/linear/linear_kernels.h
 * \brief What the dispatcher of linear layers hands to the kernels of one tier.
 *
 * The files of a tier are compiled for its instructions. They must not call inline functions of
 * shared headers: the linker keeps one copy of those, and it might pick the one with the newest
 * instructions for everyone.
 */
#ifndef AIOMLC_KERNELS_LINEAR_LINEAR_KERNELS_H_
#define AIOMLC_KERNELS_LINEAR_LINEAR_KERNELS_H_

#include <cstdint>

#include "kernels/linear/linear.h"

namespace aiomlc {

/*!
 * \brief 32 activations of one row as 8-bit integers.
 *
 * scale = max|x| / 127; value = x / scale, rounded to nearest even. A group that is zero (or whose
 * scale is too small for a float) has scale 0; one that is not finite has values 0 and a scale that
 * is not finite, so that its outputs become NaN.
 */
struct ActivationGroup {
  int8_t values[kGroupSize];  //!< Zeros after the last input.
  float scale;
  int32_t offset;  //!< -kZeroPoint times the sum of the values.
};

/*! \brief Rows of activations to quantise. */
struct QuantizeBlock {
  const void* x;  //!< [rows, cols], the first row of the matrix.
  FloatType x_type;
  int64_t rows, cols;
  int64_t groups;
  int64_t row_begin, row_end;
  ActivationGroup* result;  //!< Of all rows, in panels.
};

/*! \brief A float32 activation is the sum of so many bf16 ones: its 24 bits in three pieces. */
inline constexpr int64_t kParts = 3;

/*!
 * \brief Rows of activations to cut into bf16 parts, for kernels that multiply bf16 by bf16.
 *
 * The parts are of one sign, and their sum is the activation, except that what is below 2^-126 of a
 * part is lost. Of one that is not finite the first part is it (a NaN stays one) and the others are
 * zero.
 *
 * Of a panel of h rows, parts are ordered [group of 32 inputs][part][row of h][input of 32], the
 * largest part first, with zeros behind the last input. The panel of row r begins at
 * r * groups * kParts * 32.
 */
struct SplitBlock {
  const void* x;  //!< [rows, cols], the first row of the matrix.
  FloatType x_type;
  int64_t rows, cols;
  int64_t row_begin, row_end;  //!< From the beginning of a panel to the end of one.
  uint16_t* result;            //!< Of all rows, in panels.
};

/*! \brief A rectangle of the output: tiles of 16 outputs by rows of activations. */
struct LinearBlock {
  const void* packed;  //!< The whole matrix.
  int64_t rows_n, cols_k;
  int64_t tile_begin, tile_end;
  int64_t row_begin, row_end;          //!< From the beginning of a panel to the end of one.
  const ActivationGroup* activations;  //!< Of all rows, in panels; q4 only.
  const float* x;                      //!< Of all rows, in panels; other formats only.
  const uint16_t* parts;               //!< Instead of x, for a kernel that has `split`.
  const float* bias;                   //!< May be null.
  void* out;                           //!< [m, rows_n]
  FloatType out_type;
};

/*! \brief The kernels of one tier. */
struct LinearKernels {
  void (*quantize)(const QuantizeBlock&);
  void (*q4)(const LinearBlock&);
  void (*bf16)(const LinearBlock&);
  void (*f32)(const LinearBlock&);
  void (*split)(const SplitBlock&) = nullptr;  //!< If not null, bf16 takes parts.
};

/*! \brief Copy one row of a packed embedding table into float32[hidden]. */
void EmbedRow(WeightFormat format, const void* packed, int64_t hidden, int64_t row, float* out);

extern const LinearKernels kLinearPortable;
#if defined(__x86_64__)
extern const LinearKernels kLinearAvx2;
extern const LinearKernels kLinearAvx512;
/*! \brief Null where the compiler does not know AVX-VNNI. Everything else is kLinearAvx2's. */
extern void (*const kQ4AvxVnni)(const LinearBlock&);

/*! \brief Makes parts with AVX-512, whose own kernels take floats. */
void SplitRowsAvx512(const SplitBlock& block);
#elif defined(__aarch64__)
/*! \brief Null where the compiler does not know the dot product. */
extern const LinearKernels* const kLinearNeon;
/*! \brief Null where the compiler does not know i8mm. Everything else is kLinearNeon's. */
extern void (*const kQ4I8mm)(const LinearBlock&);
#endif

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_LINEAR_KERNELS_H_
