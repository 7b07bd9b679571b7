/*!
 * \file kernels/linear/fused_linear.h
 * \brief Linear layers on 4-bit weights, together with what comes before and after them.
 *
 * Each gives the bits of the kernels that it stands for, called one after the other. What one of
 * them computes is quantised for the next while it is in the cache, and is never written as floats.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_
#define AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_

#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The arguments of `AddRmsNorm`, whose normalised rows only the next matrix sees. */
struct AddNormCall {
  const float* x = nullptr;  //!< [rows, size]
  const float* residual = nullptr;
  const float* weight = nullptr;  //!< [size]
  float eps = 0;
  int64_t rows = 0;
  int64_t size = 0;
  float* out_residual = nullptr;  //!< x + residual; may be an input.
};

/*!
 * \brief `AddRmsNorm`, then `Linear` with a q4 matrix of `rows_n` outputs.
 * \param bias float32[rows_n], or null. \param out [rows, rows_n], of `out_type`.
 */
void AddNormLinear(ThreadPool& pool, const AddNormCall& input, const void* packed, int64_t rows_n,
                   const float* bias, void* out, FloatType out_type);

/*!
 * \brief `AddRmsNorm`, `Linear` to gate and up, `GatedMul`, and `Linear` back to the size.
 * \param gate_up q4 of 2 * inner outputs, gate first. \param inner A multiple of 16.
 * \param down q4 of `size` outputs. \param out float32[rows, size], none of the inputs.
 */
void AddNormFeedForward(ThreadPool& pool, const AddNormCall& input, const void* gate_up,
                        int64_t inner, Activation activation, const void* down, float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FUSED_LINEAR_H_
