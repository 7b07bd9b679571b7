// Collectives, with threads in the place of processes.
#include "collectives/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <thread>
#include <vector>

namespace aiomlc {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

std::shared_ptr<void> SharedMemory(int size) {
  const size_t bytes = (Communicator::MemoryBytes(size) + 63) / 64 * 64;
  void* const memory = std::aligned_alloc(64, bytes);
  std::memset(memory, 0, bytes);
  return {memory, std::free};
}

Communicator::Options OptionsOf(int rank, int size) {
  Communicator::Options options;
  options.rank = rank;
  options.size = size;
  return options;
}

/*! \brief Call `member` once for each rank, each in a thread of its own. */
void RunGroup(int size, const std::function<void(Communicator&)>& member,
              std::chrono::microseconds spin = 0us) {
  const std::shared_ptr<void> memory = SharedMemory(size);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator::Options options = OptionsOf(rank, size);
      options.spin = spin;
      Communicator communicator(memory, options);
      member(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <typename Error>
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Communicator, AddsInTheOrderOfTheRanks) {
  // Floats, whose sum depends on the order; more than two slots.
  const std::vector<float> parts = {1e8f, 1.0f, -1e8f};
  constexpr int64_t kCount = 150'000;
  RunGroup(3, [&](Communicator& group) {
    const float part = parts[static_cast<size_t>(group.rank())];
    std::vector<float> values(kCount, part), sums(kCount);
    values[77'777] += 2.0f * static_cast<float>(group.rank());
    group.AllReduce(values.data(), sums.data(), kCount);
    const float sum = (parts[0] + parts[1]) + parts[2];
    const float other = (parts[0] + (parts[1] + 2.0f)) + (parts[2] + 4.0f);
    for (size_t i = 0; i < kCount; ++i) ASSERT_EQ(sums[i], i == 77'777 ? other : sum) << i;
    group.AllReduce(values.data(), values.data(), kCount);
    EXPECT_EQ(values, sums) << "in place";
  });
}

TEST(Communicator, GathersColumnsInTheFirstMember) {
  constexpr int64_t kRows = 5, kCols = 40'000;
  RunGroup(2, [&](Communicator& group) {
    std::vector<float> part(kRows * kCols), whole(2 * part.size(), -1.0f);
    for (size_t i = 0; i < part.size(); ++i) {
      part[i] = static_cast<float>(group.rank()) * 1e6f + static_cast<float>(i);
    }
    group.Gather(part.data(), whole.data(), kRows, kCols);
    if (group.rank() != 0) return;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < 2 * kCols; ++col) {
        const float value = static_cast<float>(row * kCols + col % kCols);
        ASSERT_EQ(whole[static_cast<size_t>(row * 2 * kCols + col)],
                  col < kCols ? value : 1e6f + value);
      }
    }
  });
}

TEST(Communicator, MessagesOfAnySizeArriveBetweenOtherCollectives) {
  for (const auto spin : {0us, 100us}) {
    RunGroup(
        3,
        [&](Communicator& group) {
          std::vector<std::byte> received;
          float one = 1.0f, sum = 0.0f;
          for (const size_t size : {0u, 1u, 65'528u, 65'529u, 65'536u, 131'064u, 300'000u, 7u}) {
            std::vector<std::byte> sent(size);
            for (size_t i = 0; i < size; ++i) sent[i] = static_cast<std::byte>(i * 7 + size);
            if (group.rank() == 0) {
              group.Send(sent);
            } else {
              group.Receive(&received);
              ASSERT_EQ(received, sent);
            }
            for (int i = 0; i < 3; ++i) group.AllReduce(&one, &sum, 1);
            ASSERT_EQ(sum, 3.0f);
          }
        },
        spin);
  }
}

TEST(Communicator, NoRoundIsLostWhileMembersSleep) {
  RunGroup(4, [](Communicator& group) {
    for (int round = 0; round < 3000; ++round) {
      float value = static_cast<float>(round + group.rank());
      if (round % 97 == group.rank()) std::this_thread::sleep_for(100us);
      group.AllReduce(&value, &value, 1);
      ASSERT_EQ(value, static_cast<float>(4 * round + 6));
    }
  });
}

TEST(Communicator, AFailureEndsTheWaitOfTheOthersWithItsReason) {
  RunGroup(3, [](Communicator& group) {
    if (group.rank() == 1) {
      std::this_thread::sleep_for(5ms);
      group.Fail("shard 1: out of paper");
      group.Fail("another reason");
    }
    float value = 0.0f;
    EXPECT_EQ(ErrorOf<ShardError>([&] { group.AllReduce(&value, &value, 1); }),
              "shard 1: out of paper");
  });
}

TEST(Communicator, ClosingEndsTheWaitForAMessage) {
  RunGroup(2, [](Communicator& group) {
    std::vector<std::byte> message;
    if (group.rank() == 0) {
      std::this_thread::sleep_for(5ms);
      group.Close();
      group.Fail("too late");
    } else {
      EXPECT_THROW(group.Receive(&message), ShardsClosed);
    }
    EXPECT_THROW(group.Send({}), ShardsClosed);
  });
}

TEST(Communicator, AMemberThatDoesNotAnswerIsNamed) {
  Communicator::Options options = OptionsOf(0, 3);
  options.patience = 30ms;
  const std::shared_ptr<void> memory = SharedMemory(3);
  std::thread second([&] {
    Communicator group(memory, OptionsOf(1, 3));
    EXPECT_THROW(
        {
          float value = 0.0f;
          group.AllReduce(&value, &value, 1);
        },
        ShardError);
  });
  Communicator group(memory, options);
  float value = 0.0f;
  const std::string error = ErrorOf<ShardError>([&] { group.AllReduce(&value, &value, 1); });
  EXPECT_THAT(error, HasSubstr("has not answered for 0 s"));
  group.Fail(error);
  second.join();
}

TEST(Communicator, AnInterruptedWaitIsShort) {
  Communicator group(SharedMemory(2), OptionsOf(0, 2));  // With a patience of a minute.
  std::thread other([&] {
    std::this_thread::sleep_for(30ms);
    group.Interrupt(10ms);
  });
  EXPECT_THAT(ErrorOf<ShardError>([&] { group.Send({}); }), HasSubstr("shard 1 has not answered"));
  other.join();
}

TEST(Communicator, AWaitingMemberLooksAfterTheOthers) {
  Communicator::Options options = OptionsOf(0, 2);
  int looks = 0;
  options.watch = [&] {
    if (++looks == 3) throw ShardError("shard 1 has ended");
  };
  Communicator group(SharedMemory(2), options);
  EXPECT_EQ(ErrorOf<ShardError>([&] { group.Send({}); }), "shard 1 has ended");
}

TEST(Communicator, ThereIsNoneOutsideOfAScope) {
  EXPECT_THROW(Communicator::Current(), std::logic_error);
  Communicator group(SharedMemory(1), {});
  const Communicator::Scope scope(group);
  EXPECT_EQ(&Communicator::Current(), &group);
  EXPECT_THROW(Communicator(SharedMemory(1), OptionsOf(1, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace aiomlc
