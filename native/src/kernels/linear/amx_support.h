/*!
 * \file kernels/linear/amx_support.h
 * \brief The AMX kernels of linear layers, and their tests at run time.
 */
#ifndef AIOMLC_KERNELS_LINEAR_AMX_SUPPORT_H_
#define AIOMLC_KERNELS_LINEAR_AMX_SUPPORT_H_

#include <string>
#include <vector>

#include "kernels/linear/base/linear_kernels.h"
#include "platform/isa.h"

namespace aiomlc {

/*! \brief The kernels of the AMX tier; null if the library was compiled without AMX. */
extern void (*const kQ4Amx)(const LinearBlock&);
extern void (*const kGroupedAmx)(const LinearBlock&);
extern void (*const kChannelAmx)(const LinearBlock&);
extern void (*const kProgressiveAmx)(const LinearBlock&);
extern void (*const kBF16Amx)(const LinearBlock&);

/*!
 * \return Whether a q4 kernel computes the same bits as the AVX-512 kernel for a small matrix.
 *
 * The processor must have AVX-512.
 */
bool EqualsAvx512(void (*kernel)(const LinearBlock&));

/*! \return The same of a kernel of grouped formats, for a few of them. */
bool GroupedEqualsAvx512(void (*kernel)(const LinearBlock&));

/*! \return The same of a kernel of int8 per channel. */
bool ChannelEqualsAvx512(void (*kernel)(const LinearBlock&));

/*!
 * \return Whether a bf16 kernel is correct for a small matrix.
 *
 * The difference to the AVX-512 kernel must be at most 2^-20 of the sum of the absolute products,
 * and a row must have the same bits in two batches. The processor must have AVX-512.
 */
bool NearAvx512(void (*kernel)(const LinearBlock&));

/*! \brief The result of testing the AMX kernels. */
struct AmxTrial {
  /*! \brief Whether each kernel is available and correct. */
  bool q4 = false, grouped = false, channel = false, bf16 = false;
  /*! \brief The weight formats whose AMX kernels gave wrong results; AVX-512 is used for them. */
  std::vector<std::string> rejected;
};

/*! \brief The kernels of the AMX tier. */
struct AmxKernels {
  void (*q4)(const LinearBlock&);
  void (*grouped)(const LinearBlock&);
  void (*channel)(const LinearBlock&);
  void (*bf16)(const LinearBlock&);
};

/*! \brief Test the kernels that the processor supports. The processor must have AVX-512. */
AmxTrial TryKernels(AmxFeatures supported, const AmxKernels& kernels);

/*!
 * \brief Return the result for this process; the first call tests the kernels.
 *
 * The processor must have AVX-512.
 */
const AmxTrial& AmxTrialResult();

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_AMX_SUPPORT_H_
