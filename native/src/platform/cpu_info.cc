#include "platform/cpu_info.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sched.h>
#endif

namespace aiomlc {

namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/*! \return The number of CPUs for `quota` microseconds per `period`, rounded up; 0 if unlimited. */
int CpusOf(const std::string& quota, const std::string& period) {
  const double quota_us = std::strtod(quota.c_str(), nullptr);  // "max" and "-1" mean no limit.
  const double period_us = std::strtod(period.c_str(), nullptr);
  if (quota_us <= 0 || period_us <= 0) return 0;
  return std::max(1, static_cast<int>((quota_us + period_us - 1) / period_us));
}

int QuotaV2(const std::string& directory) {
  std::istringstream line(FirstLine(directory + "/cpu.max"));
  std::string quota, period;
  line >> quota >> period;
  return CpusOf(quota, period);
}

int QuotaV1(const std::string& directory) {
  return CpusOf(FirstLine(directory + "/cpu.cfs_quota_us"),
                FirstLine(directory + "/cpu.cfs_period_us"));
}

/*! \return The smallest quota of the control group at `path` and its parents; 0 if unlimited. */
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

/*! \return Whether a comma-separated list contains `controller`. */
bool HasController(const std::string& controllers, std::string_view controller) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');) {
    if (name == controller) return true;
  }
  return false;
}

/*! \return The logical CPUs of the affinity mask. */
std::vector<int> AllowedCpus() {
#ifdef __linux__
  // The kernel rejects a mask that is shorter than its own, so try longer ones.
  for (int size = 1024; size <= (1 << 20); size *= 2) {
    cpu_set_t* mask = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    std::vector<int> cpus;
    const bool is_valid = mask != nullptr && sched_getaffinity(0, bytes, mask) == 0;
    for (int cpu = 0; is_valid && cpu < size; ++cpu) {
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

}  // namespace

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
    if (siblings.empty()) siblings = "cpu " + name;  // Without topology, each CPU counts as a core.
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
