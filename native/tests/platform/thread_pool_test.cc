#include "platform/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/doubles/no_new_threads.h"

namespace aiomlc {
namespace {

class ThreadPoolOfSize : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolOfSize, EveryTaskRunsOnce) {
  ThreadPool pool(GetParam());
  for (const int num_tasks : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<int> runs(num_tasks, 0);  // Plain ints, so that TSan detects races.

    pool.Run(num_tasks, [&](int task) { ++runs[task]; });

    EXPECT_EQ(runs, std::vector<int>(num_tasks, 1));
  }
}

TEST_P(ThreadPoolOfSize, ResultsAreVisibleToTheCallerAndToTheNextBatch) {
  ThreadPool pool(GetParam());
  std::vector<int> values(37, 0);

  for (int round = 0; round < 2000; ++round) {
    pool.Run(37, [&](int task) { values[task] += values[task] == round ? 1 : 1000; });
  }

  EXPECT_EQ(values, std::vector<int>(37, 2000));
}

TEST_P(ThreadPoolOfSize, AnErrorIsRethrownAfterAllTasksEnded) {
  ThreadPool pool(GetParam());
  std::atomic<int> ended{0};

  try {
    pool.Run(50, [&](int task) {
      ++ended;
      if (task == 3) throw std::runtime_error("task 3");
    });
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()), "task 3");
  }
  EXPECT_EQ(ended, 50);

  ended = 0;
  pool.Run(50, [&](int) { ++ended; });
  EXPECT_EQ(ended, 50);
}

TEST_P(ThreadPoolOfSize, ANestedBatchRunsOnTheSameThread) {
  ThreadPool pool(GetParam());
  std::atomic<int> inner{0};
  std::atomic<int> elsewhere{0};

  pool.Run(8, [&](int) {
    const std::thread::id outer_thread = std::this_thread::get_id();
    pool.Run(4, [&](int) {
      ++inner;
      if (std::this_thread::get_id() != outer_thread) ++elsewhere;
    });
  });

  EXPECT_EQ(inner, 32);
  EXPECT_EQ(elsewhere, 0);
}

TEST_P(ThreadPoolOfSize, ConcurrentCallersAreSerialized) {
  ThreadPool pool(GetParam());
  std::vector<int> sums(4, 0);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      std::vector<int> values(16, 0);
      for (int round = 0; round < 200; ++round) pool.Run(16, [&](int task) { ++values[task]; });
      for (const int value : values) sums[caller] += value;
    });
  }
  for (std::thread& caller : callers) caller.join();

  EXPECT_EQ(sums, std::vector<int>(4, 16 * 200));
}

// 5 exceeds the number of cores of a small machine.
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolOfSize, ::testing::Values(1, 2, 3, 5));

TEST(ThreadPool, UsesAllThreads) {
  ThreadPool pool(3);
  std::atomic<int> inside{0};

  // Each task waits until three threads run tasks, so this deadlocks unless all threads are used.
  pool.Run(3, [&](int) {
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });

  EXPECT_EQ(inside, 3);
}

#if defined(__linux__)
TEST(ThreadPool, WorkersHaveALowerPriorityThanTheirCaller) {
  const int before = getpriority(PRIO_PROCESS, 0);
  ThreadPool pool(2);
  std::atomic<bool> worker_ran{false};
  std::atomic<int> of_worker{before};
  const auto caller = std::this_thread::get_id();
  while (!worker_ran) {
    pool.Run(2, [&](int) {
      if (std::this_thread::get_id() == caller) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else {
        of_worker = getpriority(PRIO_PROCESS, 0);
        worker_ran = true;
      }
    });
  }

  EXPECT_EQ(of_worker, std::min(before + 10, 19));
  EXPECT_EQ(getpriority(PRIO_PROCESS, 0), before);
}
#endif

TEST(ThreadPool, SleepingWorkersWakeUp) {
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(2);
  const auto worker_joins = [&] {
    std::atomic<int> inside{0};
    std::this_thread::sleep_for(
        std::chrono::milliseconds(2));  // Much longer than the workers spin.
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
    pool.Run(2, [&](int) {
      ++inside;
      while (inside < 2 && Clock::now() < deadline) std::this_thread::yield();
    });
    return Clock::now() < deadline;
  };
  for (int round = 0; round < 5; ++round) {
    // After a stall, which another process may cause, a few batches run without the worker.
    int tries = 1;
    while (!worker_joins() && tries < 10) ++tries;
    EXPECT_LT(tries, 10);
  }
}

TEST(ThreadPool, AnUnusedPoolIsDestroyedImmediately) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
}

TEST(ThreadPool, ThreadsThatCannotBeStartedAreAnError) {
  {
    const NoNewThreads no_new_threads;

    EXPECT_THROW(ThreadPool(2), std::system_error);
  }
  EXPECT_EQ(ThreadPool(2).num_threads(), 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/*! \brief Limit the address space to that in use and `num_bytes`. */
void LimitAddressSpace(uint64_t num_bytes) {
  uint64_t num_pages = 0;
  std::ifstream("/proc/self/statm") >> num_pages;
  const rlim_t limit = num_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + num_bytes;
  const rlimit limits = {limit, limit};
  setrlimit(RLIMIT_AS, &limits);
}

/*! \brief Whether a limit of the address space takes effect: qemu's user mode ignores it. */
bool CanLimitAddressSpace() {
  rlimit before{};
  rlimit after{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit limits = {before.rlim_cur - 1, before.rlim_max};
  setrlimit(RLIMIT_AS, &limits);
  getrlimit(RLIMIT_AS, &after);
  setrlimit(RLIMIT_AS, &before);
  return after.rlim_cur == limits.rlim_cur;
}

TEST(ThreadPoolDeathTest, ThreadsThatWereStartedBeforeTheFailureEnd) {
  if (!CanLimitAddressSpace()) GTEST_SKIP() << "an emulator ignores limits of the address space";

  const auto exit_with_error = [] {
    LimitAddressSpace(64 << 20);
    try {
      ThreadPool pool(500);
    } catch (const std::system_error& error) {
      std::fputs(error.what(), stderr);
      std::exit(7);
    }
    std::exit(0);
  };

  EXPECT_EXIT(exit_with_error(), ::testing::ExitedWithCode(7), "only .* of 500 threads");
}
#endif

TEST(ThreadPool, FewerThanOneThreadCountsAsOne) {
  ThreadPool pool(0);
  int runs = 0;

  pool.Run(3, [&](int) { ++runs; });

  EXPECT_EQ(pool.num_threads(), 1);
  EXPECT_EQ(runs, 3);
}

TEST(ThreadPool, TheInnermostScopeOfAThreadIsCurrent) {
  ThreadPool outer(1);
  ThreadPool inner(1);
  ThreadPool& shared = ThreadPool::Current();
  {
    ThreadPool::Scope outer_scope(outer);
    EXPECT_EQ(&ThreadPool::Current(), &outer);
    {
      ThreadPool::Scope inner_scope(inner);
      EXPECT_EQ(&ThreadPool::Current(), &inner);
      ThreadPool* elsewhere = nullptr;
      std::thread([&] { elsewhere = &ThreadPool::Current(); }).join();
      EXPECT_EQ(elsewhere, &shared);
    }
    EXPECT_EQ(&ThreadPool::Current(), &outer);
  }
  EXPECT_EQ(&ThreadPool::Current(), &shared);
}

TEST(ThreadPool, TheCurrentPoolOfATaskIsItsPool) {
  ThreadPool pool(3);
  ThreadPool::Scope scope(pool);
  std::atomic<int> inside{0};
  std::atomic<int> elsewhere{0};

  pool.Run(3, [&](int) {
    if (&ThreadPool::Current() != &pool) ++elsewhere;
    ++inside;
    while (inside < 3) std::this_thread::yield();
  });

  EXPECT_EQ(elsewhere, 0);
}

TEST(FunctionRef, CallsItsTarget) {
  int calls = 0;
  auto add = [&calls](int amount) { calls += amount; };
  FunctionRef<void(int)> function(add);
  const FunctionRef<void(int)> copy = function;

  function(2);
  copy(3);

  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace aiomlc
