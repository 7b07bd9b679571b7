/*!
 * \file weights/source_floats.h
 * \brief Conversion of stored floats of 8, 16 and 32 bits to float32.
 */
#ifndef AIOMLC_WEIGHTS_SOURCE_FLOATS_H_
#define AIOMLC_WEIGHTS_SOURCE_FLOATS_H_

#include <cstdint>

#include "weights/source_matrix.h"

namespace aiomlc {

/*! \return The bytes of an element of a float type. */
int64_t SourceFloatBytes(SourceType type);

/*! \brief Convert elements of a float type exactly; a NaN stays some NaN. */
void WidenFloats(SourceType type, const uint8_t* in, int64_t count, float* out);

/*! \return Half of the power of two that E8M0 encodes, as a bfloat16. */
uint16_t HalfOfPower(uint8_t exponent);

/*! \return The largest magnitude, or a NaN or infinity if there is one. */
float LargestMagnitude(const float* values, int64_t count);

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_SOURCE_FLOATS_H_
