#include "platform/cpu_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace aiomlc {
namespace {

namespace fs = std::filesystem;

class CpuSourcesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = fs::path(::testing::TempDir()) / (std::string("aiomlc_cpu_") + info->name());
    fs::remove_all(root_);
    sources_.sys_cpu = (root_ / "cpu").string();
    sources_.cgroup_root = (root_ / "cgroup").string();
    sources_.proc_self_cgroup = (root_ / "self_cgroup").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_;
  CpuSources sources_;
};

TEST_F(CpuSourcesTest, SiblingsCountAsOneCore) {
  for (int cpu = 0; cpu < 4; ++cpu) {
    Write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          cpu % 2 == 0 ? "0,2\n" : "1,3\n");
  }

  const std::vector<int> all = {0, 1, 2, 3};
  const std::vector<int> one_core = {0, 2};
  EXPECT_EQ(DistinctCores(sources_, all.data(), 4), 2);
  EXPECT_EQ(DistinctCores(sources_, one_core.data(), 2), 1);
}

TEST_F(CpuSourcesTest, WithoutTopologyEachCpuIsACore) {
  const std::vector<int> cpus = {0, 1, 5};
  EXPECT_EQ(DistinctCores(sources_, cpus.data(), 3), 3);
}

TEST_F(CpuSourcesTest, UsesTheSmallestQuotaOfTheEnclosingGroups) {
  Write("self_cgroup", "0::/outer/inner\n");
  Write("cgroup/outer/cpu.max", "250000 100000\n");
  Write("cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(QuotaCpus(sources_), 3);

  Write("cgroup/outer/inner/cpu.max", "50000 100000\n");
  EXPECT_EQ(QuotaCpus(sources_), 1);
}

TEST_F(CpuSourcesTest, UsesTheQuotaAtTheRootOfANamespace) {
  Write("self_cgroup", "0::/\n");
  Write("cgroup/cpu.max", "400000 100000\n");

  EXPECT_EQ(QuotaCpus(sources_), 4);
}

TEST_F(CpuSourcesTest, ReadsCgroupV1Quotas) {
  Write("self_cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/group\n");
  Write("cgroup/cpu/group/cpu.cfs_quota_us", "200000\n");
  Write("cgroup/cpu/group/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(QuotaCpus(sources_), 2);

  Write("cgroup/cpu/group/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(QuotaCpus(sources_), 0);
}

TEST_F(CpuSourcesTest, IsUnlimitedWithoutControlGroups) { EXPECT_EQ(QuotaCpus(sources_), 0); }

TEST(CpuInfo, AtLeastOneCoreIsUsable) {
  EXPECT_GE(PhysicalCores(), 1);
  EXPECT_LE(PhysicalCores(), 1 << 20);
}

}  // namespace
}  // namespace aiomlc
