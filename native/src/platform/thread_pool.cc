#include "platform/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "platform/cpu_info.h"

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace aiomlc {

namespace {

using Clock = std::chrono::steady_clock;

// The caller waited this much longer than two tasks take: a worker was preempted in a task.
constexpr Clock::duration kStall = std::chrono::microseconds(500);
// How long one worker fewer is used after the first stall, and at most after consecutive stalls.
constexpr Clock::duration kFirstPause = std::chrono::milliseconds(4);
constexpr Clock::duration kMaxPause = std::chrono::milliseconds(200);
// After this time without a stall, the next stall counts as the first again.
constexpr Clock::duration kStallFreeTime = std::chrono::milliseconds(50);

#if defined(__linux__)
// Added to a worker's nice value: while threads compete for the processors, it has a tenth of the
// weight of one that was not changed.
constexpr int kWorkerNiceness = 10;
#endif

thread_local ThreadPool* current_pool = nullptr;
thread_local bool in_task = false;

/*! \brief Hint to the processor that this thread spins. */
void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/*!
 * \brief Let other threads run before this one: the caller can do a worker's tasks, but nobody else
 * can do the work of the event loop. Elsewhere than on Linux, priorities are of processes.
 */
void LowerPriority() {
#if defined(__linux__)
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kWorkerNiceness);
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
      CpuRelax();
      if (ready()) return true;
    }
  } while (Clock::now() < deadline);
  return false;
}

}  // namespace

/*!
 * The atomic `gate` holds the batch number, whether the batch is open, and the number of workers
 * that entered it. Workers enter only an open batch, and the caller waits only for workers that
 * entered, so a worker that is scheduled too late causes no delay.
 *
 * A worker that is preempted in a task delays the caller by a time slice of the system. After such
 * a stall one worker fewer may enter for a while, which leaves a core to other processes. This
 * pause is short for occasional stalls, and doubles with consecutive ones.
 */
struct ThreadPool::State {
  static constexpr uint64_t kOpen = 1u << 16;
  static constexpr uint64_t kNumEntered = kOpen - 1;
  static constexpr uint64_t kBatch = kOpen << 1;

  std::mutex caller_mutex;  // Serializes batches.
  Clock::duration spin_time{};

  // Written by the caller while the gate is closed and no worker has entered.
  FunctionRef<void(int)>* function = nullptr;
  int num_tasks = 0;

  // Used only by the caller.
  Clock::time_point opened;
  Clock::time_point last_retry;
  Clock::time_point next_retry;
  Clock::duration pause = kFirstPause;

  alignas(64) std::atomic<uint64_t> gate{0};
  std::atomic<int> max_entered{0};
  alignas(64) std::atomic<int> next_task{0};
  alignas(64) std::atomic<int> num_sleeping{0};
  std::atomic<bool> caller_sleeps{false};
  std::atomic<bool> stop{false};

  std::mutex mutex;  // Guards `error` and the condition variables.
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
  void HandleStall();
  void RetryAfterStall();
  void Stop();
};

int ThreadPool::State::DoTasks() {
  in_task = true;
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
  in_task = false;
  return done;
}

bool ThreadPool::State::Enter(uint64_t* last_batch) {
  uint64_t gate_value = gate.load(std::memory_order_acquire);
  const auto limit = static_cast<uint64_t>(max_entered.load(std::memory_order_relaxed));
  while ((gate_value & kOpen) != 0 && gate_value / kBatch != *last_batch &&
         (gate_value & kNumEntered) < limit) {
    if (gate.compare_exchange_weak(gate_value, gate_value + 1, std::memory_order_acq_rel)) {
      *last_batch = gate_value / kBatch;
      return true;
    }
  }
  return false;
}

void ThreadPool::State::Leave() {
  const uint64_t before = gate.fetch_sub(1, std::memory_order_seq_cst);
  const bool last = (before & kNumEntered) == 1 && (before & kOpen) == 0;
  if (!last || !caller_sleeps.load(std::memory_order_seq_cst)) return;
  std::lock_guard lock(mutex);
  workers_left.notify_one();
}

void ThreadPool::State::Work() {
  uint64_t last_batch = 0;
  const auto ready = [&] {
    const uint64_t gate_value = gate.load(std::memory_order_seq_cst);
    const bool new_batch = (gate_value & kOpen) != 0 && gate_value / kBatch != last_batch;
    const auto limit = static_cast<uint64_t>(max_entered.load(std::memory_order_relaxed));
    return (new_batch && (gate_value & kNumEntered) < limit) ||
           stop.load(std::memory_order_relaxed);
  };
  while (!stop.load(std::memory_order_relaxed)) {
    if (Enter(&last_batch)) {
      DoTasks();
      Leave();
    }
    if (SpinUntil(spin_time, ready)) continue;
    std::unique_lock lock(mutex);
    // Count first, then check the gate again; the caller opens the gate before it reads the count.
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
  const int num_to_wake = std::min(count - 1, max_entered.load(std::memory_order_relaxed));
  if (num_to_wake >= static_cast<int>(workers.size())) {
    work_ready.notify_all();
  } else {
    for (int i = 0; i < num_to_wake; ++i) work_ready.notify_one();
  }
}

void ThreadPool::State::CloseAndWait(int tasks_done) {
  const Clock::time_point closed = Clock::now();
  gate.fetch_and(~kOpen, std::memory_order_acq_rel);
  const auto empty = [&] { return (gate.load(std::memory_order_seq_cst) & kNumEntered) == 0; };
  if (SpinUntil(spin_time, empty)) return;
  {
    std::unique_lock lock(mutex);
    caller_sleeps.store(true, std::memory_order_seq_cst);
    workers_left.wait(lock, empty);
    caller_sleeps.store(false, std::memory_order_relaxed);
  }
  const Clock::duration task_time = (closed - opened) / std::max(1, tasks_done);
  if (Clock::now() - closed > 2 * task_time + kStall) HandleStall();
}

void ThreadPool::State::HandleStall() {
  const int limit = max_entered.load(std::memory_order_relaxed);
  if (limit > 0) max_entered.store(limit - 1, std::memory_order_relaxed);
  const Clock::time_point now = Clock::now();
  const bool is_first = now - last_retry > kStallFreeTime;
  pause = is_first ? kFirstPause : std::min(2 * pause, kMaxPause);
  next_retry = now + pause;
}

void ThreadPool::State::RetryAfterStall() {
  const int limit = max_entered.load(std::memory_order_relaxed);
  if (limit == static_cast<int>(workers.size()) || opened < next_retry) return;
  max_entered.store(limit + 1, std::memory_order_relaxed);
  last_retry = opened;
  next_retry = opened + pause;
}

void ThreadPool::State::Stop() {
  {
    std::lock_guard lock(mutex);
    stop.store(true, std::memory_order_relaxed);
  }
  work_ready.notify_all();
  for (std::thread& worker : workers) worker.join();
}

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(std::max(1, num_threads)), state_(std::make_unique<State>()) {
  // With more threads than cores, spinning would keep a thread with work from running.
  const bool may_spin = num_threads_ <= static_cast<int>(std::thread::hardware_concurrency());
  state_->spin_time = may_spin ? std::chrono::microseconds(50) : Clock::duration::zero();
  state_->max_entered.store(num_threads_ - 1, std::memory_order_relaxed);
  state_->workers.reserve(num_threads_ - 1);
  try {
    while (static_cast<int>(state_->workers.size()) < num_threads_ - 1) {
      state_->workers.emplace_back([this] {
        current_pool = this;
        LowerPriority();
        state_->Work();
      });
    }
  } catch (const std::system_error& error) {
    const size_t num_started = state_->workers.size() + 1;
    state_->Stop();
    throw std::system_error(error.code(), "only " + std::to_string(num_started) + " of " +
                                              std::to_string(num_threads_) +
                                              " threads can be started");
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

void ThreadPool::Run(int num_tasks, FunctionRef<void(int)> function) {
  if (num_tasks <= 0) return;
  if (num_threads_ == 1 || num_tasks == 1 || in_task) {
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
  std::lock_guard lock(state_->caller_mutex);
  state_->Open(&function, num_tasks);
  const int tasks_done = state_->DoTasks();
  state_->CloseAndWait(tasks_done);
  if (state_->error != nullptr) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

ThreadPool& ThreadPool::Current() {
  if (current_pool != nullptr) return *current_pool;
  // Never destroyed: joining threads at process exit or in a forked child can hang.
  static ThreadPool* shared = new ThreadPool(PhysicalCores());
  return *shared;
}

ThreadPool::Scope::Scope(ThreadPool& pool) : previous_(std::exchange(current_pool, &pool)) {}

ThreadPool::Scope::~Scope() { current_pool = previous_; }

}  // namespace aiomlc
