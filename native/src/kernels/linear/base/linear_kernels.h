/*!
 * \file kernels/linear/base/linear_kernels.h
 * \brief The kernels of linear layers of one tier, and the arguments that the dispatcher passes.
 *
 * The files of a tier are compiled for its instructions. They must not call inline functions with
 * external linkage from shared headers: the linker keeps one copy of each, and this copy may
 * contain instructions that another processor does not have. native/tests/check_isa_leaks.py checks
 * this.
 */
#ifndef AIOMLC_KERNELS_LINEAR_BASE_LINEAR_KERNELS_H_
#define AIOMLC_KERNELS_LINEAR_BASE_LINEAR_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/linear/format/grouped_tile.h"
#include "kernels/linear/format/layout.h"
#include "kernels/linear/format/matrix_format.h"
#include "platform/float_types.h"

namespace aiomlc {

/*!
 * \brief 32 activations of one row, quantized to int8.
 *
 * scale = max|x| / 127; value = x / scale, rounded to nearest, ties to even. The scale of a group
 * of zeros (or of numbers for which the scale underflows) is 0. A group with a non-finite
 * activation has values 0 and a non-finite scale, so that its outputs become NaN.
 */
struct ActivationGroup {
  int8_t values[kGroupSize];  //!< Zeros after the last input.
  float scale;
  int32_t offset;  //!< -kZeroPoint times the sum of the values.
};

/*!
 * \brief 32 activations of one row, quantized like those of `ActivationGroup`, for weights in a
 * grouped format.
 *
 * The x86 instructions multiply unsigned by signed bytes. Here the activations are the unsigned
 * ones, because the sums of the weights, which compensate for the bias, do not depend on the row.
 */
struct BiasedGroup {
  uint8_t bytes[kGroupSize];  //!< The values plus kByteBias.
  float scale;
  float sum;           //!< scale * (the sum of the values), for minima.
  float half_sums[2];  //!< The same of the first and of the last 16 values.
  float value_sum;     //!< The sum of the values.
};

/*!
 * \brief `BiasedGroup` with the values themselves, for one scale in 32 inputs.
 *
 * AMX multiplies signed by signed bytes, and AVX-512 uses the codes of a few rows as the unsigned
 * operand.
 */
struct SignedGroup {
  int8_t values[kGroupSize];
  float scale;
  float sum;        //!< scale * (the sum of the values), for minima.
  float value_sum;  //!< The sum of the values.
};

/*! \brief 32 activations of one row, rounded to bf16, ties to even; zeros after the last input. */
struct BF16Group {
  uint16_t values[kGroupSize];
};

/*! \brief The arguments to quantize rows of activations. */
struct QuantizeBlock {
  const void* x;  //!< [rows, cols], the whole matrix.
  FloatType x_type;
  int64_t rows, cols;
  int64_t groups;
  int64_t row_begin, row_end;  //!< The rows to quantize.
  void* result;                //!< The panels of all rows: ActivationGroup, BiasedGroup, ...
};

/*! \brief The arguments to write rows of activations, or some of their columns, as floats. */
struct PanelBlock {
  const void* x;  //!< The first element of the first row.
  FloatType x_type;
  int64_t stride;  //!< The elements from a row to the next.
  int64_t height;  //!< The number of rows, at most kPanelRows.
  int64_t count;   //!< The number of columns.
  float* panel;    //!< [count, height]
};

/*! \brief A rectangle of the output: tiles of 16 outputs by rows of activations. */
struct LinearBlock {
  const void* packed;  //!< The whole matrix.
  GroupedTile tile;    //!< The layout of its tiles; grouped formats only.
  int64_t num_outputs, num_inputs;
  int64_t tile_begin, tile_end;
  int64_t row_begin, row_end;          //!< Whole panels.
  const ActivationGroup* activations;  //!< The panels of all rows; q4 only.
  const BiasedGroup* biased;           //!< The panels of all rows; grouped formats only.
  const SignedGroup* signed_groups;    //!< Replaces biased: see `LinearKernels::quantize_signed`.
  const BF16Group* bf16_rows;          //!< The panels of all rows; bf16 only.
  const float* x;                      //!< The panels of all rows; f16 and f32 only.
  const float* bias;                   //!< May be null.
  void* out;                           //!< [rows, num_outputs] of `out_type`.
  int64_t out_stride;                  //!< The elements from a row of `out` to the next.
  FloatType out_type;
  const uint8_t* int8_rows;  //!< The panels of all rows (channel_kernels.h).
};

/*! \brief The kernels of one tier. */
struct LinearKernels {
  void (*quantize)(const QuantizeBlock&);         //!< Writes ActivationGroup.
  void (*quantize_biased)(const QuantizeBlock&);  //!< Writes BiasedGroup.
  void (*quantize_bf16)(const QuantizeBlock&);    //!< Writes BF16Group.
  void (*write_panel)(const PanelBlock&);
  void (*q4)(const LinearBlock&);
  void (*bf16)(const LinearBlock&);
  void (*f16)(const LinearBlock&);
  void (*f32)(const LinearBlock&);
  void (*grouped)(const LinearBlock&);
  // Writes SignedGroup, which `grouped` reads if codes are unsigned and groups have at least 32
  // inputs. On AMX only: else null.
  void (*quantize_signed)(const QuantizeBlock&) = nullptr;
};

/*!
 * \brief Return memory for what a kernel computes once for all tiles of a block.
 *
 * It is aligned to cache lines, belongs to the thread, and is valid until the thread's next call.
 */
std::byte* KernelScratch(int64_t bytes);

/*! \brief The same, for weights that a kernel unpacks before it calls another kernel. */
std::byte* UnpackedScratch(int64_t bytes);

extern const LinearKernels kLinearPortable;
#if defined(__x86_64__)
/*! \brief The kernels of grouped formats. */
void GroupedAvx2(const LinearBlock& block);
void GroupedAvx512(const LinearBlock& block);
/*! \return False if the block has other codes or more rows, and nothing was computed. */
bool FewGroupedRowsAvx2(const LinearBlock& block);
bool FewGroupedRowsAvx512(const LinearBlock& block);
bool FewGroupedRowStreamsAvx512(const LinearBlock& block);
extern const LinearKernels kLinearAvx2;
extern const LinearKernels kLinearAvx512;
/*! \brief Kernels of AVX-VNNI; the others are kLinearAvx2's. Null if not compiled. */
extern void (*const kQ4AvxVnni)(const LinearBlock&);
extern void (*const kGroupedAvxVnni)(const LinearBlock&);

/*!
 * \brief Kernels that multiply one row, or a few, by several tiles at a time.
 *
 * Intel's processors read several streams of weights faster than one, AMD's do not.
 */
void Q4StreamsAvx2(const LinearBlock& block);
extern void (*const kQ4StreamsAvxVnni)(const LinearBlock&);  //!< Null if not compiled.
void Q4StreamsAvx512(const LinearBlock& block);
void GroupedStreamsAvx512(const LinearBlock& block);

/*! \brief The kernel of AVX512-BF16, whose bits are those of kLinearAvx512.bf16. Null if not
 * compiled. */
extern void (*const kBF16Avx512BF16)(const LinearBlock&);
/*! \brief Write SignedGroup, for the AMX kernel. */
void QuantizeSignedAvx512(const QuantizeBlock& block);
#elif defined(__aarch64__)
/*! \brief Null if the compiler does not support the dot product. */
extern const LinearKernels* const kLinearNeon;
/*! \brief Kernels of i8mm; the others are kLinearNeon's. Null if not compiled. */
extern void (*const kQ4I8mm)(const LinearBlock&);
extern void (*const kGroupedI8mm)(const LinearBlock&);
#endif

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_BASE_LINEAR_KERNELS_H_
