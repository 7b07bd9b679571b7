#include "platform/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace aiomlc {
namespace {

/*! \return The VmFlags line of the mapping that contains `address`, or "". */
std::string FlagsOf(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto target = reinterpret_cast<uintptr_t>(address);
      inside = begin <= target && target < end;
    }
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

/*! \return Whether VmFlags show MADV_HUGEPAGE: not without huge pages, nor in some emulators. */
bool ShowsHugePageAdvice() {
#if defined(__linux__)
  constexpr size_t kBytes = size_t{4} << 20;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, kBytes, MADV_HUGEPAGE);
  const bool is_visible = FlagsOf(memory).find(" hg") != std::string::npos;
  munmap(memory, kBytes);
  return is_visible;
#else
  return false;
#endif
}

TEST(HugePages, AreRequestedForATensor) {
  constexpr size_t kBytes = size_t{64} << 20;
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::malloc(kBytes)), &std::free);
  const std::byte* middle = memory.get() + kBytes / 2;
  if (!ShowsHugePageAdvice()) GTEST_SKIP() << "MADV_HUGEPAGE is not visible on this system";
  ASSERT_EQ(FlagsOf(middle).find(" hg"), std::string::npos);

  HugePages pages;
  pages.Request(memory.get(), kBytes);
  pages.Request(memory.get(), kBytes);

  EXPECT_NE(FlagsOf(middle).find(" hg"), std::string::npos);
}

TEST(HugePages, IgnoresSmallTensors) {
  const std::string small(1000, 'x');
  HugePages pages;
  pages.Request(small.data(), small.size());
}

TEST(HugePages, TheInnermostScopeOfAThreadIsCurrent) {
  EXPECT_EQ(HugePages::Current(), nullptr);
  HugePages outer;
  HugePages inner;
  {
    const HugePages::Scope scope(outer);
    {
      const HugePages::Scope nested(inner);
      EXPECT_EQ(HugePages::Current(), &inner);
    }
    EXPECT_EQ(HugePages::Current(), &outer);
  }
  EXPECT_EQ(HugePages::Current(), nullptr);
}

}  // namespace
}  // namespace aiomlc
