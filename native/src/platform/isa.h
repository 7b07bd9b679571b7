/*!
 * \file platform/isa.h
 * \brief The instruction set tier that the kernels run on.
 */
#ifndef AIOMLC_PLATFORM_ISA_H_
#define AIOMLC_PLATFORM_ISA_H_

#include <string_view>

namespace aiomlc {

/*! \brief The kernel tiers, in ascending order. */
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
 * A tier may be supported although a lower one is not: many processors with AVX-512 have no
 * AVX-VNNI. The first call for kAmx requests permission to use the tile registers.
 */
bool IsSupported(Isa isa);

/*! \return The highest tier that this processor and operating system can run. */
Isa SupportedIsa();

/*!
 * \brief Return the tier of a name, or the next lower supported tier.
 * \param name The name of a tier; empty means the highest supported tier.
 * \throws std::invalid_argument if the name is unknown; the message mentions `AIOMLC_ISA`.
 */
Isa ParseIsa(std::string_view name);

/*!
 * \brief Return the tier that kernels run on.
 *
 * The default is the highest supported tier, limited by the environment variable `AIOMLC_ISA`.
 * `SetIsa` overrides it.
 * \throws std::invalid_argument if `AIOMLC_ISA` has an unknown value.
 */
Isa ActiveIsa();

/*!
 * \brief Set the tier, for tests and benchmarks. No kernel may be running.
 * \throws std::invalid_argument if the tier is not supported.
 */
void SetIsa(Isa isa);

/*! \brief The AMX extensions that kernels use; a processor may support only one of them. */
struct AmxFeatures {
  bool int8 = false, bf16 = false;
};

/*!
 * \return The AMX extensions that the processor, the operating system and this build support.
 *
 * The first call requests permission to use the tile registers.
 */
AmxFeatures DetectedAmx();

/*! \return Whether the processor has AVX-512 with `vdpbf16ps`. */
bool HasAvx512BF16();

/*! \return Whether the processor is one of Intel's, for choices that its caches decide. */
bool IsIntel();

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_ISA_H_
