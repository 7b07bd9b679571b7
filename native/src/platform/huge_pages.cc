#include "platform/huge_pages.h"

#include <cstdint>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace aiomlc {
namespace {

// The huge page size of x86-64, and of AArch64 with base pages of 4 KiB.
constexpr uintptr_t kHugePage = uintptr_t{2} << 20;

thread_local HugePages* current = nullptr;

}  // namespace

void HugePages::Request(const void* data, size_t bytes) {
  if (!requested_.insert(data).second) return;
#if defined(__linux__)
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (address + bytes) / kHugePage * kHugePage;
  if (begin >= end) return;
  // Errors are ignored: the system may not support huge pages.
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(bytes);
#endif
}

HugePages* HugePages::Current() { return current; }

HugePages::Scope::Scope(HugePages& pages) : previous_(std::exchange(current, &pages)) {}

HugePages::Scope::~Scope() { current = previous_; }

}  // namespace aiomlc
