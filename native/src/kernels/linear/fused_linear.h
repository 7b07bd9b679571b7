/*!
 * \file kernels/linear/fused_linear.h
 * \brief Linear layers with quantized weights, fused with the preceding norm and the activation.
 *
 * Each fused kernel computes the same bits as the separate kernels. Intermediate results are
 * quantized for the next matrix while they are in the cache. They are stored as floats only if the
 * next matrix is int8 per channel, whose scales of activations need whole rows.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_
#define AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_

#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/format/matrix_format.h"
#include "kernels/linear/gated_block.h"
#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The arguments of `AddRmsNorm`, except for the normalized rows. */
struct AddNormCall {
  const float* x = nullptr;  //!< [rows, size]
  const float* residual = nullptr;
  const float* weight = nullptr;  //!< [size]
  float eps = 0;
  int64_t rows = 0;
  int64_t size = 0;
  float* out_residual = nullptr;  //!< The result x + residual; may be an input.
};

/*! \brief A packed matrix whose segments are all floats, all bf16, all q4, all int8 per channel, or
 * all in grouped formats; only `FeedForward` computes with floats. */
struct QuantizedMatrix {
  MatrixLayout layout;
  const void* packed;
};

/*!
 * \brief Compute `AddRmsNorm`, and then `Linear`.
 * \param bias float32[outputs of the matrix], or null.
 * \param out [rows, outputs of the matrix], of `out_type`.
 */
void AddNormLinear(ThreadPool& pool, const AddNormCall& input, const QuantizedMatrix& matrix,
                   const float* bias, void* out, FloatType out_type);

/*!
 * \brief Compute `AddRmsNorm`, `Linear` to gate and up, `GatedMul`, and `Linear` back to `size`.
 * \param gate_up A matrix of 2 * inner outputs, gate first; inner and the rows of each segment are
 *     multiples of 16.
 * \param down A matrix of `size` outputs.
 * \param out float32[rows, size]; must not be an input.
 */
void AddNormFeedForward(ThreadPool& pool, const AddNormCall& input, const QuantizedMatrix& gate_up,
                        Activation activation, const QuantizedMatrix& down, float* out);

/*! \brief A matrix and what is added to its outputs. */
struct BiasedMatrix {
  QuantizedMatrix matrix;
  const float* bias;  //!< float32[outputs], or null.
};

/*!
 * \brief Compute `Linear`, an activation, and `Linear` back to `size` outputs.
 * \param x float32[rows, size]
 * \param up Its segments consist of whole tiles.
 * \param down A matrix of `size` outputs.
 * \param out float32[rows, size]; may be x.
 */
void FeedForward(ThreadPool& pool, const float* x, int64_t rows, int64_t size,
                 const BiasedMatrix& up, ActivationKernel activation, const BiasedMatrix& down,
                 float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_
