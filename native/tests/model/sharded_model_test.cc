// A model in several shards: what the first one does, the others do as well.
#include "model/sharded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "engine/engine.h"
#include "model/faulty_model.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using ::testing::HasSubstr;

/*! \brief Fake models, of which the first leads those in other threads. */
class Shards {
 public:
  explicit Shards(int size, Faults faults_of_last = {}) {
    const size_t bytes = (Communicator::MemoryBytes(size) + 63) / 64 * 64;
    std::shared_ptr<void> memory(std::aligned_alloc(64, bytes), std::free);
    std::memset(memory.get(), 0, bytes);
    for (int rank = 0; rank < size; ++rank) {
      models_.push_back(std::make_unique<FakeModel>(FakeModel::Sizes()));
      Communicator::Options options;
      options.rank = rank;
      options.size = size;
      auto communicator = std::make_unique<Communicator>(memory, options);
      if (rank == 0) {
        leader_.emplace(models_[0].get(), std::move(communicator), std::vector<int>());
        continue;
      }
      const Faults faults = rank + 1 == size ? faults_of_last : Faults();
      threads_.emplace_back(
          [model = models_.back().get(), faults, communicator = std::move(communicator)] {
            FaultyModel faulty(model, faults);
            try {
              RunShard(&faulty, communicator.get());
            } catch (const std::exception&) {  // The leader gets the reason.
            }
          });
    }
  }
  ~Shards() { Join(); }

  /*! \brief End the leader, and wait until all others have ended. */
  void Join() {
    leader_.reset();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  ShardedModel& leader() { return *leader_; }
  const FakeModel& model(int rank) const { return *models_[static_cast<size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<FakeModel>> models_;
  std::optional<ShardedModel> leader_;
  std::vector<std::thread> threads_;
};

/*! \return The tokens of prompts with a common prefix, and drafts, by sequence; or the failure. */
std::string Generate(Model* model) {
  EngineOptions options;
  options.speculative_mode = SpeculativeMode::kPromptLookup;
  Engine engine(model, Vocabulary(), options);
  std::string text;
  for (int32_t round = 0; round < 3; ++round) {
    for (int32_t last = 1; last <= 4; ++last) {
      SequenceOptions sequence;
      sequence.seed = 7;
      sequence.max_tokens = 12;
      engine.Submit({3, 1, 2, 3, 1, 2, 3, 1, 2, last}, sequence);
    }
    try {
      while (engine.Step()) engine.CheckInvariants();
    } catch (const EngineError& error) {
      return error.what();
    }
    for (const Record& record : engine.Drain()) {
      text += std::to_string(record.sequence_id) + ":";
      for (int32_t token : record.token_ids) text += " " + std::to_string(token);
      text += '\n';
    }
  }
  return text;
}

TEST(ShardedModel, GeneratesWhatOneModelDoes) {
  FakeModel alone{FakeModel::Sizes()};
  Shards shards(3);
  EXPECT_EQ(Generate(&shards.leader()), Generate(&alone));
}

TEST(ShardedModel, TheOtherShardsHaveTheSequencesOfTheFirst) {
  Shards shards(3);
  SequenceState& state = shards.leader().state();
  state.Add(1);
  ForwardInput input;
  input.sequence_ids = {1};
  input.append_lengths = {6};
  input.token_ids = {1, 2, 3, 4, 5, 6};
  input.logit_positions = {5};
  shards.leader().Forward(input);
  state.Fork(1, 2, 4);
  state.Add(3);
  state.Rewind(1, 2);
  state.Remove(3);
  input.sequence_ids = {1, 2};
  input.append_lengths = {1, 1};
  input.token_ids = {7, 8};
  input.logit_positions = {0, 1};
  shards.leader().Forward(input);
  shards.Join();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(shards.model(rank).num_sequences(), 2u) << rank;
    EXPECT_EQ(shards.model(rank).tokens(1), (FakeModel::Tokens{1, 2, 3, 4, 7})) << rank;
    EXPECT_EQ(shards.model(rank).tokens(2), (FakeModel::Tokens{1, 2, 3, 4, 8})) << rank;
  }
}

TEST(ShardedModel, AFailureOfAnotherShardEndsTheEngineWithItsReason) {
  Faults faults;
  faults.fail_at_pass = 2;
  Shards shards(2, faults);
  EXPECT_THAT(Generate(&shards.leader()), HasSubstr("shard 1: injected fault"));
}

TEST(ShardedModel, KeysAndValuesOfSeveralShardsAreNotExported) {
  Shards shards(2);
  EXPECT_THROW(shards.leader().state().ExportBytes(0, 1), std::logic_error);
}

TEST(WatchWorkers, NamesTheSignalThatKilledAChild) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto watch = WatchWorkers({child});
  watch();
  kill(child, SIGKILL);
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  for (int i = 0; i < 2; ++i) {  // The first does not reap it.
    try {
      watch();
      ADD_FAILURE() << "no error";
    } catch (const ShardError& error) {
      EXPECT_EQ(std::string(error.what()),
                "shard 1 (process " + std::to_string(child) + ") was killed by SIGKILL");
    }
  }
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THROW(watch(), ShardError) << "somebody has reaped it";
}

TEST(WatchParent, EndsAShardWhoseParentIsAnother) {
  WatchParent(getppid())();
  EXPECT_THROW(WatchParent(getppid() + 1)(), ShardsClosed);
}

}  // namespace
}  // namespace aiomlc
