/*!
 * \file tests/doubles/software_tiles.h
 * \brief The kernels of the AMX tier on tile registers that are made of loops.
 *
 * They need AVX-512. What the processor would refuse ends the process.
 */
#ifndef AIOMLC_TESTS_DOUBLES_SOFTWARE_TILES_H_
#define AIOMLC_TESTS_DOUBLES_SOFTWARE_TILES_H_

#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

#if defined(__x86_64__)
void Q4OnSoftwareTiles(const LinearBlock& block);

/*! \brief In the order of addition that the processor's manual gives. */
void BF16OnSoftwareTiles(const LinearBlock& block);

/*! \brief In another order, that of the documentation of compilers' intrinsics. */
void BF16OnSequentialTiles(const LinearBlock& block);
#endif

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_SOFTWARE_TILES_H_
