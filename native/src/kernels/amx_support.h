/*!
 * \file src/kernels/amx_support.h
 * \brief Multiplication in tile registers, where the processor has them.
 */
#ifndef AIOMLC_SRC_KERNELS_AMX_SUPPORT_H_
#define AIOMLC_SRC_KERNELS_AMX_SUPPORT_H_

#include "linear_kernels.h"

namespace aiomlc {

/*! \brief The q4 kernel of the AMX tier; null if this library was built without it. */
extern void (*const kQ4Amx)(const LinearBlock&);

/*!
 * \brief Whether `kernel` gives the bits of the AVX-512 kernel for a small matrix.
 *
 * The processor must have AVX-512.
 */
bool EqualsAvx512(void (*kernel)(const LinearBlock&));

/*!
 * \brief Whether this process can use `kQ4Amx`.
 *
 * Asks the operating system for the registers and tries the kernel; a result that is not that of
 * AVX-512 is reported on standard error, and the answer is no. The processor must have AVX-512.
 */
bool AmxUsable();

}  // namespace aiomlc

#endif  // AIOMLC_SRC_KERNELS_AMX_SUPPORT_H_
