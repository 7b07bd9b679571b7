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

/*! \return The flags that the system has for the mapping with `address`, or "". */
std::string FlagsOf(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (words >> std::hex >> begin >> dash >> end && dash == '-') {
      const auto wanted = reinterpret_cast<uintptr_t>(address);
      inside = begin <= wanted && wanted < end;
    }
    if (inside && line.starts_with("VmFlags:")) return line;
  }
  return "";
}

/*! \return Whether advice shows: not where there are no huge pages, nor under some emulators. */
bool AdviceShows() {
#if defined(__linux__)
  constexpr size_t kBytes = size_t{4} << 20;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, kBytes, MADV_HUGEPAGE);
  const bool shows = FlagsOf(memory).find(" hg") != std::string::npos;
  munmap(memory, kBytes);
  return shows;
#else
  return false;
#endif
}

TEST(HugePages, AreAskedForOncePerTensor) {
  constexpr size_t kBytes = size_t{64} << 20;
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::malloc(kBytes)), &std::free);
  const std::byte* middle = memory.get() + kBytes / 2;
  if (!AdviceShows()) GTEST_SKIP() << "the system has none, or does not say";
  ASSERT_EQ(FlagsOf(middle).find(" hg"), std::string::npos);

  HugePages pages;
  pages.Prefer(memory.get(), kBytes);
  pages.Prefer(memory.get(), kBytes);

  EXPECT_NE(FlagsOf(middle).find(" hg"), std::string::npos);
}

TEST(HugePages, ASmallTensorIsLeftAlone) {
  const std::string small(1000, 'x');
  HugePages pages;
  pages.Prefer(small.data(), small.size());
}

TEST(HugePages, AThreadAsksThroughTheModelThatItRuns) {
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
