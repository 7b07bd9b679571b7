#include "model/recurrent_slots.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

namespace aiomlc {
namespace {

/*! \brief Computes runs as a model would: a state is the list of its tokens. */
class SlotModel {
 public:
  SlotModel(int64_t num_slots, int64_t interval) : slots_(num_slots, interval) {}

  RecurrentSlots& slots() { return slots_; }
  bool Contains(int64_t id) const { return tokens_.contains(id); }
  const std::map<int64_t, std::vector<int>>& tokens() const { return tokens_; }

  void Add(int64_t id) {
    slots_.Add(id);
    tokens_[id];
  }

  void Append(int64_t id, const std::vector<int>& tokens, bool records) {
    std::mt19937 random(1);
    AppendAll({{id, tokens, records}}, &random);
  }

  struct Row {
    int64_t id;
    std::vector<int> tokens;
    bool records;
  };

  /*! \brief Append to several sequences, whose runs are computed in a random order. */
  void AppendAll(const std::vector<Row>& rows, std::mt19937* random) {
    std::vector<std::vector<SlotRun>> chains;
    for (const auto& [id, tokens, records] : rows) {
      chains.push_back(slots_.Append(id, static_cast<int64_t>(tokens.size()), records));
    }
    std::vector<size_t> next_run(rows.size());
    std::vector<int64_t> next_token(rows.size());
    for (size_t left = rows.size(); left > 0;) {
      const size_t row = (*random)() % rows.size();
      if (next_run[row] == chains[row].size()) continue;
      const SlotRun& run = chains[row][next_run[row]++];
      const auto first = rows[row].tokens.begin() + next_token[row];
      Compute(run, {first, first + run.count});
      next_token[row] += run.count;
      if (next_run[row] == chains[row].size()) --left;
    }
    slots_.EndPass();
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto& [id, tokens, records] = rows[row];
      ASSERT_EQ(next_token[row], static_cast<int64_t>(tokens.size()));
      recorded_.erase(id);
      if (records) recorded_[id] = tokens;
      tokens_[id].insert(tokens_[id].end(), tokens.begin(), tokens.end());
    }
    for (const auto& [id, tokens] : tokens_) Check(id);
  }

  void Fork(int64_t source, int64_t id, int64_t count) {
    Replay(source, slots_.Fork(source, id, count));
    tokens_[id].assign(tokens_[source].begin(), tokens_[source].begin() + count);
    Check(id);
    Check(source);
  }

  void Rewind(int64_t id, int64_t num_tokens) {
    Replay(id, slots_.Rewind(id, num_tokens));
    tokens_[id].resize(static_cast<size_t>(num_tokens));
    Check(id);
  }

  void Remove(int64_t id) {
    slots_.Remove(id);
    tokens_.erase(id);
    recorded_.erase(id);
  }

  /*! \brief Compare every state that can be reached with the tokens that it stands for. */
  void Check(int64_t id) const {
    const std::vector<int>& tokens = tokens_.at(id);
    ASSERT_EQ(slots_.length(id), static_cast<int64_t>(tokens.size()));
    for (int64_t n = 1; n <= slots_.length(id); ++n) {
      if (slots_.Checkpoint(id, n) != n) continue;
      const SlotRun run = slots_.Find(id, n);
      std::vector<int> state =
          run.source == SlotRun::kEmpty ? std::vector<int>() : states_.at(run.source);
      const auto recorded = recorded_.find(id);
      if (run.count > 0) {
        ASSERT_NE(recorded, recorded_.end());
        state.insert(state.end(), recorded->second.begin(), recorded->second.begin() + run.count);
      }
      ASSERT_EQ(state, std::vector<int>(tokens.begin(), tokens.begin() + n));
    }
  }

  /*! \brief The costs of all sequences, which must cover what they hold together. */
  int64_t Costs() const {
    int64_t sum = 0;
    for (const auto& [id, tokens] : tokens_) {
      sum += RecurrentSlots::Cost(static_cast<int64_t>(tokens.size()), slots_.interval());
    }
    return sum;
  }

 private:
  void Compute(const SlotRun& run, const std::vector<int>& tokens) {
    std::vector<int> state =
        run.source == SlotRun::kEmpty ? std::vector<int>() : states_.at(run.source);
    state.insert(state.end(), tokens.begin(), tokens.end());
    states_[run.target] = state;
  }

  void Replay(int64_t id, const SlotRun& run) {
    if (run.count == 0) return;
    const std::vector<int>& recorded = recorded_.at(id);
    Compute(run, {recorded.begin(), recorded.begin() + run.count});
  }

  RecurrentSlots slots_;
  std::map<int32_t, std::vector<int>> states_;
  std::map<int64_t, std::vector<int>> tokens_, recorded_;
};

std::vector<int> Tokens(int64_t count, std::mt19937* random) {
  std::vector<int> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int>((*random)() % 100));
  return tokens;
}

TEST(RecurrentSlots, ASequenceHasACheckpointForEachPowerOfTwo) {
  std::mt19937 random(1);
  SlotModel model(64, 4);
  model.Add(1);
  model.Append(1, Tokens(103, &random), false);
  std::vector<int64_t> checkpoints;
  for (int64_t n = 1; n <= 103; ++n) {
    if (model.slots().Checkpoint(1, n) == n) checkpoints.push_back(n);
  }
  // The last odd multiples of 4, 8, 16, 32 and 64, and the end.
  EXPECT_EQ(checkpoints, (std::vector<int64_t>{64, 80, 88, 96, 100, 103}));
  EXPECT_EQ(model.slots().Checkpoint(1, 63), 0);
  EXPECT_LE(64 - model.slots().num_free(), RecurrentSlots::Cost(103, 4));
}

TEST(RecurrentSlots, MarksKeepACheckpoint) {
  std::mt19937 random(1);
  SlotModel model(64, 4);
  model.Add(1);
  model.slots().Keep(1, 15, Mark::kBranch);
  model.slots().Keep(1, 31, Mark::kPromptEnd);
  for (int64_t n = 0; n < 200; ++n) model.Append(1, Tokens(1, &random), false);
  EXPECT_EQ(model.slots().Checkpoint(1, 15), 12);
  EXPECT_EQ(model.slots().Checkpoint(1, 31), 28);
  EXPECT_LE(64 - model.slots().num_free(), RecurrentSlots::Cost(200, 4));
  model.slots().Keep(1, 199, Mark::kBranch);
  EXPECT_EQ(model.slots().Checkpoint(1, 15), 0);
}

TEST(RecurrentSlots, RandomHistoriesNeverMixStatesOrExceedTheirCost) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const int64_t interval = 1 + static_cast<int64_t>(random() % 5);
    const int64_t num_slots = 60;
    SlotModel model(num_slots, interval);
    int64_t next_id = 0;
    for (int step = 0; step < 120; ++step) {
      std::vector<int64_t> ids;
      for (const auto& [id, tokens] : model.tokens()) ids.push_back(id);
      const int64_t id = ids.empty() ? -1 : ids[random() % ids.size()];
      const int64_t room = num_slots - model.Costs();
      const int64_t length = id < 0 ? 0 : model.slots().length(id);
      switch (ids.empty() ? 0 : random() % 7) {
        case 0:
          model.Add(next_id++);
          break;
        case 1:
        case 2:
        case 3: {
          std::vector<SlotModel::Row> rows;
          int64_t left = room;
          for (const int64_t row_id : ids) {
            if (random() % 2 == 0) continue;
            const int64_t count = 1 + static_cast<int64_t>(random() % 9);
            const int64_t begin = model.slots().length(row_id);
            const int64_t cost = RecurrentSlots::Cost(begin + count, interval) -
                                 RecurrentSlots::Cost(begin, interval);
            if (cost > left) continue;
            left -= cost;
            rows.push_back({row_id, Tokens(count, &random), random() % 2 == 0});
          }
          if (!rows.empty()) model.AppendAll(rows, &random);
          break;
        }
        case 4: {
          if (length == 0) break;
          const int64_t at =
              model.slots().Checkpoint(id, 1 + static_cast<int64_t>(random() % length));
          if (at > 0 && RecurrentSlots::Cost(at, interval) <= room) model.Fork(id, next_id++, at);
          break;
        }
        case 5: {
          if (length == 0) break;
          const int64_t at = model.slots().Checkpoint(id, static_cast<int64_t>(random() % length));
          model.Rewind(id, at);
          break;
        }
        default:
          if (random() % 2 == 0) {
            model.Remove(id);
          } else {
            model.slots().Keep(id, static_cast<int64_t>(random() % (length + 20)),
                               random() % 2 == 0 ? Mark::kBranch : Mark::kPromptEnd);
          }
      }
      ASSERT_LE(num_slots - model.slots().num_free(), model.Costs());
      if (HasFatalFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
    while (!model.tokens().empty()) model.Remove(model.tokens().begin()->first);
    ASSERT_EQ(model.slots().num_free(), num_slots) << "seed " << seed;
  }
}

TEST(RecurrentSlots, AForkDropsNoCheckpointOfItsSource) {
  std::mt19937 random(1);
  SlotModel model(64, 4);
  model.Add(1);
  model.slots().Keep(1, 15, Mark::kBranch);
  model.Append(1, Tokens(100, &random), false);
  ASSERT_EQ(model.slots().Checkpoint(1, 15), 12);
  // A step plans several forks before the first is made.
  model.Fork(1, 2, 64);
  model.Fork(1, 3, 12);
  model.Fork(1, 4, 80);
  model.slots().Keep(9, 4, Mark::kBranch);  // No such sequence.
}

TEST(RecurrentSlots, CostNeverFalls) {
  for (const int64_t interval : {1, 3, 64}) {
    for (int64_t n = 0; n < 1000; ++n) {
      ASSERT_LE(RecurrentSlots::Cost(n, interval), RecurrentSlots::Cost(n + 1, interval));
      if (n > 0) {
        ASSERT_LE(RecurrentSlots::Cost(n + 1, interval) - RecurrentSlots::Cost(n, interval), 2);
      }
    }
  }
}

TEST(RecurrentSlots, CutsElsewhereThanAtCheckpointsAreRefused) {
  std::mt19937 random(1);
  SlotModel model(16, 4);
  model.Add(1);
  model.Append(1, Tokens(7, &random), false);
  EXPECT_THROW(model.slots().Rewind(1, 5), std::logic_error);
  EXPECT_THROW(model.slots().Fork(1, 2, 3), std::logic_error);
}

}  // namespace
}  // namespace aiomlc
