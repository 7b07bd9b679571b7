/*!
 * \file platform/cpu_info.h
 * \brief What the processor offers this process.
 */
#ifndef AIOMLC_PLATFORM_CPU_INFO_H_
#define AIOMLC_PLATFORM_CPU_INFO_H_

#include <string>
#include <string_view>

namespace aiomlc {

/*! \brief A tier of kernels, in rising order. */
enum class Isa {
  kPortable,
  kNeon,     //!< Of AArch64: the dot product of 8-bit integers.
  kI8mm,     //!< Also i8mm for 4-bit weights; everything else is that of kNeon.
  kAvx2,     //!< Of x86-64, as are the others: AVX2, FMA, F16C.
  kAvxVnni,  //!< Also AVX-VNNI for 4-bit weights; everything else is that of kAvx2.
  kAvx512,   //!< AVX2, FMA, F16C, and AVX-512 F, BW, VL, DQ and VNNI.
  kAmx       //!< Also AMX int8 for 4-bit weights or AMX bf16 for bf16 weights; else as kAvx512.
};

/*! \return "portable", "neon", "i8mm", "avx2", "avxvnni", "avx512" or "amx". */
std::string_view IsaName(Isa isa);

/*!
 * \return Whether this processor and operating system can run a tier. A higher one says nothing of
 * a lower one: many a processor with AVX-512 has no AVX-VNNI.
 */
bool IsSupported(Isa isa);

/*!
 * \return The highest tier that this processor and operating system can run.
 *
 * The first call asks the system for AMX's registers and compares its kernels with those of
 * AVX-512.
 */
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
 * At first the highest supported one, lowered by the environment variable `AIOMLC_ISA`; later what
 * `SetIsa` chose.
 * \throws std::invalid_argument `AIOMLC_ISA` has an unknown value.
 */
Isa ActiveIsa();

/*!
 * \brief Choose the tier, for tests and measurements. Not while a kernel runs.
 * \throws std::invalid_argument The processor does not support it.
 */
void SetIsa(Isa isa);

/*!
 * \return The physical cores this process may use, at least 1: those of its affinity mask, SMT
 * siblings counted once, limited by the CPU quota of its control groups.
 */
int PhysicalCores();

/*! \brief Where the counts of `PhysicalCores` are read; tests give other folders. */
struct CpuSources {
  std::string sys_cpu = "/sys/devices/system/cpu";
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string proc_self_cgroup = "/proc/self/cgroup";
};

/*! \brief Whole CPUs that the quota of the control groups allows, rounded up; 0 if unlimited. */
int QuotaCpus(const CpuSources& sources);

/*! \brief How many of these logical CPUs are on different physical cores. */
int DistinctCores(const CpuSources& sources, const int* cpus, int num_cpus);

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_CPU_INFO_H_
