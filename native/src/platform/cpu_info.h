/*!
 * \file platform/cpu_info.h
 * \brief The number of processor cores that this process may use.
 */
#ifndef AIOMLC_PLATFORM_CPU_INFO_H_
#define AIOMLC_PLATFORM_CPU_INFO_H_

#include <string>

namespace aiomlc {

/*!
 * \return The physical cores this process may use, at least 1: those of its affinity mask, SMT
 * siblings counted once, limited by the CPU quota of its control groups.
 */
int PhysicalCores();

/*! \brief The system paths that `PhysicalCores` reads; tests use other directories. */
struct CpuSources {
  std::string sys_cpu = "/sys/devices/system/cpu";
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string proc_self_cgroup = "/proc/self/cgroup";
};

/*! \return The number of CPUs that the control group quotas allow, rounded up; 0 if unlimited. */
int QuotaCpus(const CpuSources& sources);

/*! \return The number of physical cores of the given logical CPUs. */
int DistinctCores(const CpuSources& sources, const int* cpus, int num_cpus);

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_CPU_INFO_H_
