#include "collectives/communicator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace aiomlc {

namespace {

using Clock = Communicator::Clock;

// The floats of a member that are exchanged at once; those of two members fit into the L2 cache.
constexpr int64_t kSlotFloats = 64 * 1024;
constexpr size_t kLetterBytes = size_t{64} * 1024;
constexpr size_t kReasonBytes = 1024;
// How often a waiting member looks after the others, while they compute and while all are idle.
constexpr std::chrono::milliseconds kBusyWatch{20};
constexpr std::chrono::milliseconds kIdleWatch{1000};

constexpr uint32_t kRunning = 0;
constexpr uint32_t kFailing = 1;  // The reason is being written.
constexpr uint32_t kFailed = 2;
constexpr uint32_t kClosed = 3;

thread_local Communicator* current_communicator = nullptr;

void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/*! \brief Sleep while `word` has a value, at most for `limit`; any signal ends the sleep. */
void SleepWhile(std::atomic<uint32_t>* word, uint32_t value, std::chrono::milliseconds limit) {
#if defined(__linux__)
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  timespec time{.tv_sec = limit.count() / 1000, .tv_nsec = limit.count() % 1000 * 1'000'000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &time, nullptr, 0);
#else
  if (word->load() == value) std::this_thread::sleep_for(std::min(limit, decltype(limit){1}));
#endif
}

void WakeAll(std::atomic<uint32_t>* word) {
#if defined(__linux__)
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
#else
  static_cast<void>(word);
#endif
}

int64_t Nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

/*! \brief The beginning of the shared memory; two slots per member and two letters follow. */
struct Communicator::Shared {
  /*! \brief The calls of `Barrier`, of all members together. */
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> num_sleeping;
  alignas(64) std::atomic<uint32_t> state;
  char reason[kReasonBytes];
  /*! \brief The calls of `Barrier` of each member, to name one that does not answer. */
  struct alignas(64) Count {
    std::atomic<uint32_t> barriers;
  } counts[kMaxSize];
};

std::shared_ptr<void> MapShared(int descriptor, size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "cannot map the memory of the shards");
  }
  return {memory, [bytes](void* address) { munmap(address, bytes); }};
}

size_t Communicator::MemoryBytes(int size) {
  const size_t slots = 2 * static_cast<size_t>(size) * kSlotFloats * sizeof(float);
  return sizeof(Shared) + slots + 2 * kLetterBytes;
}

Communicator::Communicator(std::shared_ptr<void> memory, Options options)
    : memory_(std::move(memory)),
      shared_(static_cast<Shared*>(memory_.get())),
      options_(std::move(options)) {
  if (options_.size < 1 || options_.size > kMaxSize || options_.rank < 0 ||
      options_.rank >= options_.size) {
    throw std::invalid_argument("rank " + std::to_string(options_.rank) + " of " +
                                std::to_string(options_.size) + " shards does not exist");
  }
}

// ---- Collectives ----

float* Communicator::Slot(int rank) const {
  const size_t index =
      (num_exchanges_ % 2) * static_cast<size_t>(size()) + static_cast<size_t>(rank);
  auto* const slots = reinterpret_cast<float*>(shared_ + 1);
  return slots + index * static_cast<size_t>(kSlotFloats);
}

std::byte* Communicator::Letter() const {
  auto* const end = static_cast<std::byte*>(memory_.get()) + MemoryBytes(size());
  return end - (1 + num_letters_ % 2) * kLetterBytes;
}

// Exchanges alternate between two buffers. A member that writes to one has passed the barrier of
// the exchange in between, which every other member enters after it has read the first buffer.

void Communicator::AllReduce(const float* in, float* out, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kSlotFloats) {
    const int64_t floats = std::min(kSlotFloats, count - begin);
    std::copy_n(in + begin, floats, Slot(rank()));
    Barrier();
    float* const sum = out + begin;
    std::copy_n(Slot(0), floats, sum);
    for (int other = 1; other < size(); ++other) {
      const float* const part = Slot(other);
      for (int64_t i = 0; i < floats; ++i) sum[i] += part[i];
    }
    ++num_exchanges_;
  }
}

void Communicator::Gather(const float* in, float* out, int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  for (int64_t begin = 0; begin < count; begin += kSlotFloats) {
    const int64_t end = std::min(count, begin + kSlotFloats);
    std::copy(in + begin, in + end, Slot(rank()));
    Barrier();
    for (int other = 0; rank() == 0 && other < size(); ++other) {
      const float* part = Slot(other);
      for (int64_t at = begin; at < end;) {
        const int64_t row = at / cols, column = at % cols;
        const int64_t floats = std::min(end - at, cols - column);
        std::copy_n(part, floats, out + (row * size() + other) * cols + column);
        part += floats;
        at += floats;
      }
    }
    ++num_exchanges_;
  }
}

void Communicator::Send(std::span<const std::byte> message) {
  ThrowIfOver();
  interrupt_.store(INT64_MAX, std::memory_order_relaxed);
  const uint64_t bytes = message.size();
  std::memcpy(Letter(), &bytes, sizeof(bytes));
  size_t offset = sizeof(bytes);
  do {
    const size_t part = std::min(message.size(), kLetterBytes - offset);
    std::copy_n(message.data(), part, Letter() + offset);
    Barrier();
    ++num_letters_;
    message = message.subspan(part);
    offset = 0;
  } while (!message.empty());
}

void Communicator::Receive(std::vector<std::byte>* message) {
  Barrier(/*is_idle=*/true);
  uint64_t bytes;
  std::memcpy(&bytes, Letter(), sizeof(bytes));
  message->resize(bytes);
  size_t done = 0, offset = sizeof(bytes);
  while (true) {
    const size_t part = std::min(bytes - done, kLetterBytes - offset);
    std::copy_n(Letter() + offset, part, message->data() + done);
    ++num_letters_;
    done += part;
    offset = 0;
    if (done == bytes) return;
    Barrier();
  }
}

// ---- Waiting ----

void Communicator::Barrier(bool is_idle) {
  ThrowIfOver();
  const uint32_t target = ++num_barriers_ * static_cast<uint32_t>(size());
  shared_->counts[rank()].barriers.store(num_barriers_, std::memory_order_relaxed);
  if (shared_->arrived.fetch_add(1, std::memory_order_seq_cst) + 1 == target) {
    if (shared_->num_sleeping.load(std::memory_order_seq_cst) > 0) Wake();
    return;
  }
  const auto deadline = Clock::now() + options_.spin;
  do {
    for (int i = 0; i < 32; ++i) {
      const uint32_t arrived = shared_->arrived.load(std::memory_order_acquire);
      if (static_cast<int32_t>(arrived - target) >= 0) return;
      CpuRelax();
    }
  } while (Clock::now() < deadline);
  Sleep(target, is_idle);
}

void Communicator::Sleep(uint32_t target, bool is_idle) {
  const auto interval = is_idle ? kIdleWatch : kBusyWatch;
  const Clock::time_point begin = Clock::now();
  while (true) {
    const uint32_t arrived = shared_->arrived.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(arrived - target) >= 0) return;
    ThrowIfOver();
    // Count first: the last member to arrive does so before it reads the count.
    shared_->num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    SleepWhile(&shared_->arrived, arrived, interval);
    shared_->num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
    if (shared_->arrived.load(std::memory_order_acquire) != arrived) continue;
    if (options_.watch) options_.watch();
    if (is_idle) continue;
    const Clock::time_point now = Clock::now();
    if (now - begin > options_.patience ||
        Nanoseconds(now) > interrupt_.load(std::memory_order_relaxed)) {
      const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - begin).count();
      throw ShardError(Missing() + " has not answered for " + std::to_string(waited) + " s");
    }
  }
}

std::string Communicator::Missing() const {
  for (int other = 0; other < size(); ++other) {
    const uint32_t barriers = shared_->counts[other].barriers.load(std::memory_order_relaxed);
    if (static_cast<int32_t>(barriers - num_barriers_) < 0) return "shard " + std::to_string(other);
  }
  return "a shard";
}

void Communicator::ThrowIfOver() const {
  switch (shared_->state.load(std::memory_order_acquire)) {
    case kClosed:
      throw ShardsClosed();
    case kFailing:
      throw ShardError("a shard has failed");
    case kFailed:
      throw ShardError(shared_->reason);
    default:
      return;
  }
}

void Communicator::Fail(const std::string& reason) noexcept {
  uint32_t expected = kRunning;
  if (!shared_->state.compare_exchange_strong(expected, kFailing)) return;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::copy_n(reason.data(), length, shared_->reason);  // The rest is zero.
  shared_->state.store(kFailed, std::memory_order_release);
  Wake();
}

void Communicator::Close() noexcept {
  uint32_t expected = kRunning;
  shared_->state.compare_exchange_strong(expected, kClosed);
  Wake();
}

void Communicator::Interrupt(std::chrono::milliseconds grace) noexcept {
  interrupt_.store(Nanoseconds(Clock::now() + grace), std::memory_order_relaxed);
}

void Communicator::Wake() noexcept { WakeAll(&shared_->arrived); }

// ---- The member of a thread ----

Communicator& Communicator::Current() {
  if (current_communicator == nullptr) {
    throw std::logic_error("the library is for several shards, and this model is not one of them");
  }
  return *current_communicator;
}

Communicator::Scope::Scope(Communicator& communicator)
    : previous_(std::exchange(current_communicator, &communicator)) {}

Communicator::Scope::~Scope() { current_communicator = previous_; }

}  // namespace aiomlc
