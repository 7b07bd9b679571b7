/*!
 * \file kernels/linear/fused_linear.h
 * \brief Linear layers with q4 weights, fused with the preceding norm and the activation.
 *
 * Each fused kernel computes the same bits as the separate kernels. Intermediate results are
 * quantized for the next matrix while they are in the cache; they are never stored as floats.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_
#define AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_

#include <cstdint>

#include "kernels/elementwise/elementwise.h"
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

/*!
 * \brief Compute `AddRmsNorm`, and then `Linear` with a q4 matrix of `num_outputs` outputs.
 * \param bias float32[num_outputs], or null.
 * \param out [rows, num_outputs], of `out_type`.
 */
void AddNormLinear(ThreadPool& pool, const AddNormCall& input, const void* packed,
                   int64_t num_outputs, const float* bias, void* out, FloatType out_type);

/*!
 * \brief Compute `AddRmsNorm`, `Linear` to gate and up, `GatedMul`, and `Linear` back to `size`.
 * \param gate_up A q4 matrix of 2 * inner outputs, gate first.
 * \param inner A multiple of 16.
 * \param down A q4 matrix of `size` outputs.
 * \param out float32[rows, size]; must not be an input.
 */
void AddNormFeedForward(ThreadPool& pool, const AddNormCall& input, const void* gate_up,
                        int64_t inner, Activation activation, const void* down, float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_
