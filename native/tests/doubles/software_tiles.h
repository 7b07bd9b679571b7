/*!
 * \file tests/doubles/software_tiles.h
 * \brief The kernels of the AMX tier, on tile registers implemented with plain loops.
 *
 * They need AVX-512. Operations that would fault on a processor with AMX terminate the process.
 */
#ifndef AIOMLC_TESTS_DOUBLES_SOFTWARE_TILES_H_
#define AIOMLC_TESTS_DOUBLES_SOFTWARE_TILES_H_

#include "kernels/linear/base/linear_kernels.h"

namespace aiomlc {

#if defined(__x86_64__)
void Q4OnSoftwareTiles(const LinearBlock& block);
void GroupedOnSoftwareTiles(const LinearBlock& block);
void ChannelOnSoftwareTiles(const LinearBlock& block);
void ProgressiveOnSoftwareTiles(const LinearBlock& block);

/*! \brief Adds products in the order that Intel's instruction set reference specifies. */
void BF16OnSoftwareTiles(const LinearBlock& block);

/*! \brief Adds products in the order that the intrinsics' documentation specifies. */
void BF16OnSequentialTiles(const LinearBlock& block);
#endif

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_SOFTWARE_TILES_H_
