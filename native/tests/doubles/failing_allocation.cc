#include "tests/doubles/failing_allocation.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr int64_t kOff = -1;
constexpr int64_t kFailed = -2;

thread_local int64_t allocations_left = kOff;

}  // namespace

// All that a program may mix, since sanitizers check that memory is freed as it was allocated.
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  if (allocations_left >= 0 && allocations_left-- == 0) {
    allocations_left = kFailed;
    return nullptr;
  }
  return std::malloc(size > 0 ? size : 1);
}

void* operator new(std::size_t size) {
  void* const memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace aiomlc {

FailingAllocation::FailingAllocation(int64_t index) { allocations_left = index; }
FailingAllocation::~FailingAllocation() { allocations_left = kOff; }

bool FailingAllocation::has_failed() { return allocations_left == kFailed; }

}  // namespace aiomlc
