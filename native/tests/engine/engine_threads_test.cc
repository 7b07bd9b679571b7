// Tests for the thread sanitizer. Without it, they check that nothing hangs and no record is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <ctime>
#include <map>
#include <stdexcept>
#include <thread>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

SequenceOptions Options(uint64_t seed, int64_t max_tokens) {
  SequenceOptions options;
  options.seed = seed;
  options.max_tokens = max_tokens;
  return options;
}

/*! \brief Drain until `num_sequences` have ended. \return The number of ends by sequence id. */
std::map<int64_t, int> WaitForEnds(Engine* engine, size_t num_sequences) {
  std::map<int64_t, int> ends;
  while (ends.size() < num_sequences) {
    pollfd entry{engine->wake_fd(), POLLIN, 0};
    poll(&entry, 1, -1);
    for (const Record& record : engine->Drain()) {
      if (record.finish_reason != FinishReason::kNone) ++ends[record.sequence_id];
    }
  }
  return ends;
}

TEST(EngineThreads, SeveralThreadsSubmitAndCancelWhileOneRunsAndOneDrains) {
  constexpr int kThreads = 3;
  constexpr int kThreadSequences = 100;
  FakeModel model({.num_pages = 20});
  Engine engine(&model, {}, {.max_recycling_sequences = 4});
  std::jthread runner([&] { engine.Run(); });
  std::vector<std::jthread> clients;
  for (int thread = 0; thread < kThreads; ++thread) {
    clients.emplace_back([&engine, thread] {
      for (int i = 0; i < kThreadSequences; ++i) {
        const int64_t id =
            engine.Submit({thread, i % 32}, Options(static_cast<uint64_t>(i), 1 + i % 20));
        if (i % 3 == 0) engine.Cancel(id);
        if (i % 10 == 0) engine.GetStatistics();
      }
    });
  }

  const std::map<int64_t, int> ends = WaitForEnds(&engine, kThreads * kThreadSequences);
  engine.Stop();
  runner.join();

  for (const auto& [id, count] : ends) EXPECT_EQ(count, 1) << id;
  engine.CheckInvariants();
  EXPECT_EQ(engine.GetStatistics().free_pages, 20);
  engine.Close();
  EXPECT_EQ(model.num_sequences(), 0u);
}

TEST(EngineThreads, CloseEndsAnActiveRunAndEverySequence) {
  FakeModel model({.context_window = 1000000, .num_pages = 1000000});
  Engine engine(&model, {}, {});
  std::jthread runner([&] { engine.Run(); });
  for (uint64_t i = 0; i < 12; ++i) engine.Submit({1}, Options(i, 900000));
  pollfd entry{engine.wake_fd(), POLLIN, 0};
  poll(&entry, 1, -1);

  engine.Close();
  runner.join();

  EXPECT_EQ(WaitForEnds(&engine, 12).size(), 12u);
  EXPECT_EQ(model.num_sequences(), 0u);
}

TEST(EngineThreads, EverySubmittedSequenceEndsIfTheModelFailsMeanwhile) {
  FakeModel model({.context_window = 1000});
  model.ThrowAt(20);
  Engine engine(&model, {}, {});
  std::atomic<bool> run_threw = false;
  std::jthread runner([&] {
    try {
      engine.Run();
    } catch (const EngineError& error) {
      run_threw = error.kind() == ErrorKind::kEngineDead;
    }
  });
  size_t accepted = 0;
  try {
    while (true) {
      engine.Submit({1}, Options(accepted, 900));
      ++accepted;
    }
  } catch (const EngineError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEngineDead);
  }
  runner.join();

  EXPECT_TRUE(run_threw);
  EXPECT_EQ(WaitForEnds(&engine, accepted).size(), accepted);
}

TEST(EngineThreads, RunCanBeCalledAgainAfterStop) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  for (int round = 0; round < 3; ++round) {
    std::jthread runner([&] { engine.Run(); });
    engine.Submit({1}, Options(1, 3));
    EXPECT_EQ(WaitForEnds(&engine, 1).size(), 1u);
    engine.Stop();
  }
}

TEST(EngineThreads, RunThrowsIfAnotherThreadRuns) {
  FakeModel model({});
  Engine engine(&model, {}, {});
  std::jthread runner([&] { engine.Run(); });
  engine.Submit({1}, Options(1, 3));
  WaitForEnds(&engine, 1);

  EXPECT_THROW(engine.Run(), std::logic_error);

  engine.Stop();
}

}  // namespace
}  // namespace aiomlc
