#include "platform/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "platform/cpu_info.h"

namespace aiomlc {

namespace {

using Clock = std::chrono::steady_clock;

// Waiting this much longer than two tasks take means that a worker was not given its processor.
constexpr Clock::duration kStall = std::chrono::microseconds(500);
// How long it is then done without: the first time, and at most when it happens again and again.
constexpr Clock::duration kFirstPause = std::chrono::milliseconds(4);
constexpr Clock::duration kLongestPause = std::chrono::milliseconds(200);
// When so much time has passed without one, a stall counts as the first.
constexpr Clock::duration kGoodTime = std::chrono::milliseconds(50);

thread_local ThreadPool* current_pool = nullptr;
thread_local bool inside_task = false;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/*! \return Whether `ready()` became true within `limit`. */
template <typename Ready>
bool SpinUntil(Clock::duration limit, Ready ready) {
  if (ready()) return true;
  if (limit == Clock::duration::zero()) return false;
  const Clock::time_point deadline = Clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      Pause();
      if (ready()) return true;
    }
  } while (Clock::now() < deadline);
  return false;
}

}  // namespace

/*!
 * One word, the gate, holds the number of the batch of tasks, whether it is open, and how many
 * workers are inside. A worker enters only an open batch, and the caller waits only for those that
 * entered: a worker that the system does not schedule in time delays nobody.
 *
 * A worker that loses its processor inside a task does delay its caller, by a time slice of the
 * system. So after such a stall one worker less is let in for a while, which leaves a processor to
 * whoever wants it. The while is short for a stall now and then, and grows where one follows the
 * other.
 */
struct ThreadPool::State {
  static constexpr uint64_t kOpen = 1u << 16;
  static constexpr uint64_t kInside = kOpen - 1;
  static constexpr uint64_t kBatch = kOpen << 1;

  std::mutex caller_mutex;  // One batch at a time.
  Clock::duration spin_time{};

  // Written by the caller while the gate is closed and nobody is inside.
  FunctionRef<void(int)>* function = nullptr;
  int num_tasks = 0;

  // Used by the caller alone.
  Clock::time_point opened;
  Clock::time_point retried_at;
  Clock::time_point retry_at;
  Clock::duration pause = kFirstPause;

  alignas(64) std::atomic<uint64_t> gate{0};
  std::atomic<int> most_inside{0};
  alignas(64) std::atomic<int> next_task{0};
  alignas(64) std::atomic<int> num_sleeping{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  std::mutex mutex;  // Guards `error` and every sleep.
  std::condition_variable work_ready;
  std::condition_variable workers_left;
  std::exception_ptr error;
  std::vector<std::thread> workers;

  void Work();
  bool Enter(uint64_t* last_batch);
  void Leave();
  int DoTasks();
  void Open(FunctionRef<void(int)>* tasks, int count);
  void CloseAndWait(int tasks_done);
  void NoteStall();
  void RetryAfterStall();
};

int ThreadPool::State::DoTasks() {
  inside_task = true;
  int done = 0;
  for (int task; (task = next_task.fetch_add(1, std::memory_order_relaxed)) < num_tasks;) {
    try {
      ++done;
      (*function)(task);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
    }
  }
  inside_task = false;
  return done;
}

bool ThreadPool::State::Enter(uint64_t* last_batch) {
  uint64_t seen = gate.load(std::memory_order_acquire);
  const auto most = static_cast<uint64_t>(most_inside.load(std::memory_order_relaxed));
  while ((seen & kOpen) != 0 && seen / kBatch != *last_batch && (seen & kInside) < most) {
    if (gate.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) {
      *last_batch = seen / kBatch;
      return true;
    }
  }
  return false;
}

void ThreadPool::State::Leave() {
  const uint64_t before = gate.fetch_sub(1, std::memory_order_seq_cst);
  const bool last = (before & kInside) == 1 && (before & kOpen) == 0;
  if (!last || !caller_sleeps.load(std::memory_order_seq_cst)) return;
  std::lock_guard lock(mutex);
  workers_left.notify_one();
}

void ThreadPool::State::Work() {
  uint64_t last_batch = 0;
  const auto ready = [&] {
    const uint64_t seen = gate.load(std::memory_order_seq_cst);
    const bool new_batch = (seen & kOpen) != 0 && seen / kBatch != last_batch;
    const auto most = static_cast<uint64_t>(most_inside.load(std::memory_order_relaxed));
    return (new_batch && (seen & kInside) < most) || stop.load(std::memory_order_relaxed);
  };
  while (!stop.load(std::memory_order_relaxed)) {
    if (Enter(&last_batch)) {
      DoTasks();
      Leave();
    }
    if (SpinUntil(spin_time, ready)) continue;
    std::unique_lock lock(mutex);
    // Counted before looking at the gate once more; the caller opens it before it counts sleepers.
    num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    work_ready.wait(lock, ready);
    num_sleeping.fetch_sub(1, std::memory_order_relaxed);
  }
}

void ThreadPool::State::Open(FunctionRef<void(int)>* tasks, int count) {
  function = tasks;
  num_tasks = count;
  opened = Clock::now();
  RetryAfterStall();
  next_task.store(0, std::memory_order_relaxed);
  const uint64_t batch = gate.load(std::memory_order_relaxed) / kBatch + 1;
  gate.store(batch * kBatch | kOpen, std::memory_order_seq_cst);
  if (num_sleeping.load(std::memory_order_seq_cst) == 0) return;
  std::lock_guard lock(mutex);
  const int wanted = std::min(count - 1, most_inside.load(std::memory_order_relaxed));
  if (wanted >= static_cast<int>(workers.size())) {
    work_ready.notify_all();
  } else {
    for (int i = 0; i < wanted; ++i) work_ready.notify_one();
  }
}

void ThreadPool::State::CloseAndWait(int tasks_done) {
  const Clock::time_point closed = Clock::now();
  gate.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto empty = [&] { return (gate.load(std::memory_order_seq_cst) & kInside) == 0; };
  if (SpinUntil(spin_time, empty)) return;
  {
    std::unique_lock lock(mutex);
    caller_sleeps.store(true, std::memory_order_seq_cst);
    workers_left.wait(lock, empty);
    caller_sleeps.store(false, std::memory_order_relaxed);
  }
  const Clock::duration task_time = (closed - opened) / std::max(1, tasks_done);
  if (Clock::now() - closed > 2 * task_time + kStall) NoteStall();
}

void ThreadPool::State::NoteStall() {
  const int most = most_inside.load(std::memory_order_relaxed);
  if (most > 0) most_inside.store(most - 1, std::memory_order_relaxed);
  const Clock::time_point now = Clock::now();
  const bool is_first = now - retried_at > kGoodTime;
  pause = is_first ? kFirstPause : std::min(2 * pause, kLongestPause);
  retry_at = now + pause;
}

void ThreadPool::State::RetryAfterStall() {
  const int most = most_inside.load(std::memory_order_relaxed);
  if (most == static_cast<int>(workers.size()) || opened < retry_at) return;
  most_inside.store(most + 1, std::memory_order_relaxed);
  retried_at = opened;
  retry_at = opened + pause;
}

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(std::max(1, num_threads)), state_(std::make_unique<State>()) {
  // With more threads than processors, spinning would keep a thread with work from running.
  const bool may_spin = num_threads_ <= static_cast<int>(std::thread::hardware_concurrency());
  state_->spin_time = may_spin ? std::chrono::microseconds(50) : Clock::duration::zero();
  state_->most_inside.store(num_threads_ - 1, std::memory_order_relaxed);
  state_->workers.reserve(num_threads_ - 1);
  for (int i = 1; i < num_threads_; ++i) {
    state_->workers.emplace_back([this] {
      current_pool = this;
      state_->Work();
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop.store(true, std::memory_order_relaxed);
  }
  state_->work_ready.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

void ThreadPool::Run(int num_tasks, FunctionRef<void(int)> function) {
  if (num_tasks <= 0) return;
  if (num_threads_ == 1 || num_tasks == 1 || inside_task) {
    std::exception_ptr error;
    for (int task = 0; task < num_tasks; ++task) {
      try {
        function(task);
      } catch (...) {
        if (error == nullptr) error = std::current_exception();
      }
    }
    if (error != nullptr) std::rethrow_exception(error);
    return;
  }
  std::lock_guard turn(state_->caller_mutex);
  state_->Open(&function, num_tasks);
  const int tasks_done = state_->DoTasks();
  state_->CloseAndWait(tasks_done);
  if (state_->error != nullptr) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

ThreadPool& ThreadPool::Current() {
  if (current_pool != nullptr) return *current_pool;
  // Never destroyed: joining threads while a process exits, or in a forked child, can hang.
  static ThreadPool* shared = new ThreadPool(PhysicalCores());
  return *shared;
}

ThreadPool::Scope::Scope(ThreadPool& pool) : previous_(std::exchange(current_pool, &pool)) {}

ThreadPool::Scope::~Scope() { current_pool = previous_; }

}  // namespace aiomlc
