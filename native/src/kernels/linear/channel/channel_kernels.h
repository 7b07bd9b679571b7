/*!
 * \file kernels/linear/channel/channel_kernels.h
 * \brief The layout and the kernels of int8 matrices with one scale per output.
 *
 * An output is one sum of products of int8, an int32, times the scale of the output and the scale
 * of the row of activations:
 *
 *   out[i, n] = float(sum over k of q[i, k] * w[n, k]) * (scale[n] * x_scale[i]) + bias[n]
 *
 * The integers are exact and the float operations have one order, so the bits are the same on every
 * tier.
 *
 * Matrices with progressive scales (progressive_tile.h) have 4 bits and the same arithmetic, for
 * activations that were rotated before they were quantized.
 *
 * A panel of h rows of activations is [group of 64 inputs][row of h][input of 64], followed by
 * float32 scales [h]. A panel with first row r begins at r * ChannelRowBytes(cols).
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_KERNELS_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_KERNELS_H_

#include <cstdint>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/format/channel_tile.h"

namespace aiomlc {

/*!
 * \brief The arguments to quantize a row of activations.
 *
 * scale = max|x| / 127; value = x / scale, rounded to nearest, ties to even. The scale of a row of
 * zeros (or of numbers for which the scale underflows) is 0. A row with a non-finite activation has
 * values 0 and a non-finite scale, so that its outputs become NaN.
 */
struct ChannelRow {
  const void* x;
  FloatType x_type;
  int64_t first;  //!< The first element of the row in `x`.
  int64_t cols;
  uint8_t* bytes;  //!< The row in the first group of its panel.
  int64_t stride;  //!< The bytes from a group of the panel to the next.
  void* scale;     //!< Receives the scale, a float.
};

/*!
 * \brief The kernels of a tier. All are null if they were not compiled.
 *
 * The bytes of an activation are int8, or have 128 added: that is between the first two functions.
 */
struct ChannelKernels {
  void (*quantize)(const ChannelRow&);
  void (*multiply)(const LinearBlock&);
  /*!
   * \brief Multiply each 32 inputs of a row by the Hadamard matrix of ones and minus ones: log2(32)
   * steps of sums and differences, of elements 1, 2, 4, 8 and 16 apart.
   * \param first The first element of the row in `x`.
   * \param out float32[cols, rounded up to 32]; zeros follow the last input.
   */
  void (*rotate)(const void* x, FloatType x_type, int64_t first, int64_t cols, float* out);
  /*! \brief `multiply` with a matrix of progressive_tile.h, which is unpacked in the caches. */
  void (*multiply_progressive)(const LinearBlock&);
};

/*! \return The kernels of the active tier. */
ChannelKernels ActiveChannelKernels();

extern const ChannelKernels kChannelPortable;
#if defined(__x86_64__)
extern const ChannelKernels kChannelAvx2;
extern const ChannelKernels kChannelAvxVnni;
extern const ChannelKernels kChannelAvx512;
/*! \brief kChannelAvx512's, but one row as well is multiplied by several tiles at a time. */
void ChannelStreamsAvx512(const LinearBlock& block);
/*! \brief Multiply by a matrix with progressive scales, without unpacking it. */
void ProgressiveAvx2(const LinearBlock& block);
/*! \brief The same, of one panel. */
void FewProgressiveRowsAvx512(const LinearBlock& block);
#elif defined(__aarch64__)
extern const ChannelKernels kChannelNeon;
extern const ChannelKernels kChannelI8mm;
#endif

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_KERNELS_H_
