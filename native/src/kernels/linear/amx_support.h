/*!
 * \file kernels/linear/amx_support.h
 * \brief Multiplication in tile registers, where the processor has them.
 */
#ifndef AIOMLC_KERNELS_LINEAR_AMX_SUPPORT_H_
#define AIOMLC_KERNELS_LINEAR_AMX_SUPPORT_H_

#include <string>
#include <vector>

#include "kernels/linear/linear_kernels.h"
#include "platform/isa.h"

namespace aiomlc {

/*! \brief The kernels of the AMX tier; null if this library was built without it. */
extern void (*const kQ4Amx)(const LinearBlock&);
extern void (*const kBF16Amx)(const LinearBlock&);  //!< Takes the parts of `SplitRowsAvx512`.

/*!
 * \brief Whether a q4 kernel gives the bits of the AVX-512 kernel for a small matrix.
 *
 * The processor must have AVX-512.
 */
bool EqualsAvx512(void (*kernel)(const LinearBlock&));

/*!
 * \brief Whether a kernel of bf16 weights, which takes parts, gives for a small matrix what the
 * AVX-512 kernel does, to 2^-20 of the terms' sizes, and a row the same bits in two batches.
 *
 * The processor must have AVX-512.
 */
bool NearAvx512(void (*kernel)(const LinearBlock&));

/*! \brief Which kernels of the AMX tier can be used. */
struct AmxTrial {
  bool q4 = false, bf16 = false;
  /*! \brief Weight formats that AMX multiplies wrongly here, so that AVX-512 is used: for a log. */
  std::vector<std::string> rejected;
};

/*! \brief Try those of two kernels that are offered. The processor must have AVX-512. */
AmxTrial TryKernels(AmxFeatures offered, void (*q4)(const LinearBlock&),
                    void (*bf16)(const LinearBlock&));

/*!
 * \brief What this process can use.
 *
 * The first call tries the kernels. The processor must have AVX-512.
 */
const AmxTrial& AmxTrialResult();

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_AMX_SUPPORT_H_
