/*!
 * \file platform/isa.h
 * \brief The instruction set tier that the kernels run on.
 */
#ifndef AIOMLC_PLATFORM_ISA_H_
#define AIOMLC_PLATFORM_ISA_H_

#include <string_view>

namespace aiomlc {

/*! \brief A tier of kernels, in rising order. */
enum class Isa {
  kPortable,
  kNeon,     //!< AArch64 with the dot product of 8-bit integers.
  kI8mm,     //!< i8mm for 4-bit weights; everything else as kNeon.
  kAvx2,     //!< x86-64 with AVX2, FMA and F16C.
  kAvxVnni,  //!< AVX-VNNI for 4-bit weights; everything else as kAvx2.
  kAvx512,   //!< kAvx2, and AVX-512 F, BW, VL, DQ and VNNI.
  kAmx       //!< AMX int8 for 4-bit weights, AMX bf16 for bf16 weights; everything else as kAvx512.
};

/*! \return "portable", "neon", "i8mm", "avx2", "avxvnni", "avx512" or "amx". */
std::string_view IsaName(Isa isa);

/*!
 * \return Whether this processor and operating system can run a tier.
 *
 * A higher tier may be supported where a lower one is not: many processors with AVX-512 have no
 * AVX-VNNI. The first call for kAmx asks the system for the tile registers.
 */
bool IsSupported(Isa isa);

/*! \return The highest tier that this processor and operating system can run. */
Isa SupportedIsa();

/*!
 * \brief The tier that a name asks for, or the next lower one that is supported.
 * \param name A tier's name; empty means the highest.
 * \throws std::invalid_argument The name is unknown. The message says `AIOMLC_ISA`.
 */
Isa ParseIsa(std::string_view name);

/*!
 * \brief The tier that kernels run on.
 *
 * At first the highest supported one, lowered by the environment variable `AIOMLC_ISA`; later the
 * one that `SetIsa` chose.
 * \throws std::invalid_argument `AIOMLC_ISA` has an unknown value.
 */
Isa ActiveIsa();

/*!
 * \brief Choose the tier, for tests and measurements. Not while a kernel runs.
 * \throws std::invalid_argument The processor does not support it.
 */
void SetIsa(Isa isa);

/*! \brief The halves of AMX, each of which a processor may have alone. */
struct AmxFeatures {
  bool int8 = false, bf16 = false;
};

/*!
 * \return What processor and operating system offer of AMX, if this library was built with it.
 *
 * The first call asks the system for the tile registers.
 */
AmxFeatures DetectedAmx();

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_ISA_H_
