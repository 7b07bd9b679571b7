#include "platform/cpu_info.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "kernels/linear/amx_support.h"
#include "kernels/linear/linear_kernels.h"

namespace aiomlc {

namespace {

constexpr int kUndecided = -1;
std::atomic<int> active_isa{kUndecided};

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/*! \return Whole CPUs of `quota` microseconds per `period`; 0 if there is no limit. */
int CpusOf(const std::string& quota, const std::string& period) {
  const double quota_us = std::strtod(quota.c_str(), nullptr);  // "max" and "-1" mean no limit.
  const double period_us = std::strtod(period.c_str(), nullptr);
  if (quota_us <= 0 || period_us <= 0) return 0;
  return std::max(1, static_cast<int>((quota_us + period_us - 1) / period_us));
}

int QuotaV2(const std::string& folder) {
  std::istringstream line(FirstLine(folder + "/cpu.max"));
  std::string quota, period;
  line >> quota >> period;
  return CpusOf(quota, period);
}

int QuotaV1(const std::string& folder) {
  return CpusOf(FirstLine(folder + "/cpu.cfs_quota_us"), FirstLine(folder + "/cpu.cfs_period_us"));
}

/*! \brief The smallest limit of the group at `path` and of every group around it. */
int SmallestQuota(const std::string& root, std::string path, int (*quota_of)(const std::string&)) {
  int smallest = 0;
  while (true) {
    const int quota = quota_of(root + path);
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return smallest;
    path.resize(slash);
  }
}

bool HasController(const std::string& controllers, std::string_view wanted) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

std::vector<int> AllowedCpus() {
#ifdef __linux__
  // The kernel refuses a mask shorter than its own, so try longer ones.
  for (int size = 1024; size <= (1 << 20); size *= 2) {
    cpu_set_t* mask = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    std::vector<int> cpus;
    const bool known = mask != nullptr && sched_getaffinity(0, bytes, mask) == 0;
    for (int cpu = 0; known && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask)) cpus.push_back(cpu);
    }
    CPU_FREE(mask);
    if (!cpus.empty()) return cpus;
  }
#endif
  std::vector<int> all(std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return all;
}

constexpr Isa kTiersFromHighest[] = {Isa::kAmx,  Isa::kAvx512, Isa::kAvxVnni, Isa::kAvx2,
                                     Isa::kI8mm, Isa::kNeon,   Isa::kPortable};

#if defined(__x86_64__)
// These also ask whether the operating system saves the wide registers.
bool HasAvx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool HasAvxVnni() {
  // Asked by number: not every compiler that can do the rest knows the name.
  constexpr unsigned kLeaf = 7, kSubleaf = 1, kAvxVnniBit = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return HasAvx2() && kQ4AvxVnni != nullptr &&
         __get_cpuid_count(kLeaf, kSubleaf, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnniBit) != 0;
}
#elif defined(__aarch64__) && defined(__linux__)
bool HasNeon() { return kLinearNeon != nullptr && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

bool HasI8mm() {
  constexpr unsigned long kI8mmBit = 1ul << 13;  // Headers of older systems do not have the name.
  return HasNeon() && kQ4I8mm != nullptr && (getauxval(AT_HWCAP2) & kI8mmBit) != 0;
}
#endif

/*! \brief Who asks for less than AMX does not want it tried. */
Isa HighestUpTo(Isa most) {
  for (const Isa isa : kTiersFromHighest) {
    if (isa <= most && IsSupported(isa)) return isa;
  }
  return Isa::kPortable;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kI8mm:
      return "i8mm";
    case Isa::kNeon:
      return "neon";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

bool IsSupported(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAmx:
      return HasAvx512() && (UsableAmx().q4 || UsableAmx().bf16);
    case Isa::kAvx512:
      return HasAvx512();
    case Isa::kAvxVnni:
      return HasAvxVnni();
    case Isa::kAvx2:
      return HasAvx2();
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__) && defined(__linux__)
  if (isa == Isa::kI8mm) return HasI8mm();
  if (isa == Isa::kNeon) return HasNeon();
#endif
  return isa == Isa::kPortable;
}

Isa SupportedIsa() { return HighestUpTo(Isa::kAmx); }

Isa ParseIsa(std::string_view name) {
  if (name.empty()) return SupportedIsa();
  for (const Isa isa : kTiersFromHighest) {
    if (name == IsaName(isa)) return HighestUpTo(isa);
  }
  throw std::invalid_argument("AIOMLC_ISA is '" + std::string(name) +
                              "', expected portable, neon, i8mm, avx2, avxvnni, avx512 or amx");
}

Isa ActiveIsa() {
  const int active = active_isa.load(std::memory_order_relaxed);
  if (active != kUndecided) return static_cast<Isa>(active);
  const char* name = std::getenv("AIOMLC_ISA");
  const Isa isa = ParseIsa(name == nullptr ? "" : name);
  active_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
  return isa;
}

void SetIsa(Isa isa) {
  if (!IsSupported(isa)) {
    throw std::invalid_argument("this processor does not support " + std::string(IsaName(isa)));
  }
  active_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
}

int QuotaCpus(const CpuSources& sources) {
  std::ifstream groups(sources.proc_self_cgroup);
  int smallest = 0;
  // Each line is "id:controllers:path"; version 2 has id 0 and no controllers.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    int quota = 0;
    if (controllers.empty()) {
      quota = SmallestQuota(sources.cgroup_root, path, QuotaV2);
    } else if (HasController(controllers, "cpu")) {
      quota = SmallestQuota(sources.cgroup_root + "/cpu", path, QuotaV1);
    }
    if (quota > 0 && (smallest == 0 || quota < smallest)) smallest = quota;
  }
  return smallest;
}

int DistinctCores(const CpuSources& sources, const int* cpus, int num_cpus) {
  std::set<std::string> cores;
  for (int i = 0; i < num_cpus; ++i) {
    const std::string name = std::to_string(cpus[i]);
    std::string siblings =
        FirstLine(sources.sys_cpu + "/cpu" + name + "/topology/thread_siblings_list");
    if (siblings.empty()) siblings = "cpu " + name;  // Unknown topology: a core of its own.
    cores.insert(std::move(siblings));
  }
  return static_cast<int>(cores.size());
}

int PhysicalCores() {
  const CpuSources sources;
  const std::vector<int> cpus = AllowedCpus();
  const int cores = DistinctCores(sources, cpus.data(), static_cast<int>(cpus.size()));
  const int quota = QuotaCpus(sources);
  return std::max(1, quota > 0 ? std::min(cores, quota) : cores);
}

}  // namespace aiomlc
