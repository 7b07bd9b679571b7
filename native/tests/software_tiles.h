/*!
 * \file software_tiles.h
 * \brief The q4 kernel of the AMX tier on tile registers that are made of loops.
 */
#ifndef AIOMLC_TESTS_SOFTWARE_TILES_H_
#define AIOMLC_TESTS_SOFTWARE_TILES_H_

#include "../src/kernels/linear_kernels.h"

namespace aiomlc {

#if defined(__x86_64__)
/*! \brief Needs AVX-512. What the processor would refuse ends the process. */
void Q4OnSoftwareTiles(const LinearBlock& block);
#endif

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_SOFTWARE_TILES_H_
