// Drafters that read the hidden states of the target model, such as EAGLE's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/recurrent_model.h"
#include "tests/engine/random_jobs.h"

namespace aiomlc {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;
using Tokens = std::vector<int32_t>;

constexpr HiddenLayer kLayers[] = {2, kFinalNorm};

/*! \brief Counts that outlive a drafter. */
struct Counts {
  int64_t hidden_states = 0;
  int64_t proposals = 0;
  int64_t drafts = 0;
};

/*!
 * \brief Proposes what FakeModel would choose greedily, from the hidden state of the last computed
 * token, and checks every hidden state that it is given.
 */
class HeadDrafter final : public Drafter {
 public:
  HeadDrafter(Counts* counts, int64_t throws_at)
      : counts_(*counts), throws_at_(throws_at), logits_(FakeModel::Sizes().vocab_size) {}

  std::vector<HiddenLayer> hidden_layers() const final {
    return {std::begin(kLayers), std::end(kLayers)};
  }

  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests,
                               const TargetPass& pass) final {
    if (counts_.proposals++ == throws_at_) throw std::runtime_error("the head failed");
    for (const TargetRow& row : pass.rows) Read(row, pass.output);
    for (const auto& [sequence, max_tokens] : requests) {
      const auto entry = states_.find(sequence->id);
      // The pass may have been before the last one: its tokens awaited a mask.
      if (entry == states_.end() || entry->second.end != sequence->num_computed) continue;
      uint64_t state = FakeModel::NextHash(entry->second.hash, sequence->token_ids.back());
      for (int64_t i = 0; i < max_tokens; ++i) {
        FakeModel::Head(state, &logits_);
        const auto best = std::max_element(logits_.begin(), logits_.end());
        sequence->draft_ids.push_back(static_cast<int32_t>(best - logits_.begin()));
        state = FakeModel::NextHash(state, sequence->draft_ids.back());
        ++counts_.drafts;
      }
    }
    return {};
  }
  DraftPolicy policy() const final { return {.max_depth = 4, .first_pause = 0}; }
  void Remove(int64_t sequence_id) final { states_.erase(sequence_id); }
  void Clear() noexcept final { states_.clear(); }

 private:
  struct State {
    int64_t end;
    uint64_t hash;
  };

  void Read(const TargetRow& row, const ForwardOutput& output) {
    ASSERT_EQ(row.sequence->id, row.sequence_id);
    ASSERT_EQ(output.hidden.size(), std::size(kLayers));
    const int64_t end = std::min(row.begin + row.num_tokens, row.sequence->num_computed);
    for (int64_t position = row.begin; position < end; ++position) {
      const auto first = row.sequence->token_ids.begin();
      const uint64_t hash = FakeModel::HashOf(Tokens(first, first + position + 1));
      const int64_t index = (row.offset + position - row.begin) * HiddenBits::kSize;
      for (size_t i = 0; i < output.hidden.size(); ++i) {
        ASSERT_EQ(HiddenBits::HashOf(output.hidden[i] + index, kLayers[i]), hash);
      }
      states_[row.sequence_id] = {position + 1, hash};
      ++counts_.hidden_states;
    }
  }

  Counts& counts_;
  const int64_t throws_at_;
  std::vector<float> logits_;
  std::unordered_map<int64_t, State> states_;
};

EngineOptions WithHead(Counts* counts, int64_t throws_at = -1) {
  return {.speculative_mode = SpeculativeMode::kCustom, .create_drafter = [=](const Model&) {
            return std::make_unique<HeadDrafter>(counts, throws_at);
          }};
}

std::vector<HiddenLayer> AllLayers() { return {0, 2, 4, kFinalNorm}; }

SequenceOptions Greedy(int64_t max_tokens) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

TEST(HiddenDrafter, AHeadThatAgreesWithTheModelIsAlwaysAccepted) {
  FakeModel model({.hidden_layers = AllLayers()});
  Counts counts;
  Engine engine(&model, Letters(), WithHead(&counts));
  for (int32_t first : {1, 2, 3}) engine.Submit({first, 4, 5, 6, 7, 8, 9}, Greedy(20));
  while (engine.Step()) engine.CheckInvariants();

  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(statistics.speculation_failure, "");
  EXPECT_GT(statistics.draft_tokens, 30);
  EXPECT_EQ(statistics.accepted_tokens, statistics.draft_tokens);
  // All but those of the last pass, which has up to 5 tokens, and after which the sequence ends.
  EXPECT_GE(counts.hidden_states, 3 * (7 + 20 - 1 - 5)) << "a pass was not shown to the drafter";
}

template <typename AnyModel>
class HiddenDrafterTest : public ::testing::Test {};

using Models = ::testing::Types<FakeModel, RecurrentModel>;
TYPED_TEST_SUITE(HiddenDrafterTest, Models);

TYPED_TEST(HiddenDrafterTest, OutputsDoNotDependOnItsDrafts) {
  Counts counts;
  int64_t accepted_tokens = 0;
  int64_t draft_tokens = 0;
  for (unsigned round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    std::mt19937 random(round);
    const std::vector<Job> jobs = RandomJobs(&random);
    const int64_t num_pages = 18 + static_cast<int64_t>(random() % 30);
    EngineOptions options = WithHead(&counts);
    options.step_token_budget = 4 + static_cast<int64_t>(random() % 13);
    options.max_recycling_sequences = static_cast<int64_t>(random() % 4);
    TypeParam model({.num_pages = num_pages, .hidden_layers = AllLayers()});
    const Outcome with = Serve(jobs, &model, options);
    options.speculative_mode = SpeculativeMode::kDisable;
    TypeParam plain({.num_pages = num_pages});
    ExpectSame(with, Serve(jobs, &plain, options));
    EXPECT_EQ(with.statistics.speculation_failure, "");
    accepted_tokens += with.statistics.accepted_tokens;
    draft_tokens += with.statistics.draft_tokens;
    if (this->HasFailure()) return;
  }
  EXPECT_GT(counts.hidden_states, 10000);
  EXPECT_GT(draft_tokens - accepted_tokens, 500) << "too few draft tokens were rejected";
}

TEST(HiddenDrafter, ACustomDrafterWithoutAFactoryIsRejected) {
  FakeModel model({});
  EXPECT_THROW(Engine(&model, Letters(), {.speculative_mode = SpeculativeMode::kCustom}),
               EngineError);
}

TEST(HiddenDrafter, AModelWithoutItsLayersIsRejected) {
  FakeModel model({.hidden_layers = {0, kFinalNorm}});
  Counts counts;
  EXPECT_THROW(Engine(&model, Letters(), WithHead(&counts)), HiddenLayerError);
}

TEST(HiddenDrafter, HiddenStatesAreOnlyRequestedForADrafterThatReadsThem) {
  const auto has_none =
      Each(Field(&ForwardInput::hidden, Field(&HiddenRequest::positions, IsEmpty())));
  for (const SpeculativeMode mode : {SpeculativeMode::kDisable, SpeculativeMode::kPromptLookup}) {
    FakeModel model({.hidden_layers = AllLayers()});
    Engine engine(&model, Letters(), {.speculative_mode = mode});
    engine.Submit({1, 2, 1, 2, 1}, Greedy(8));
    while (engine.Step()) engine.CheckInvariants();
    EXPECT_THAT(model.forwards(), has_none);
  }
  FakeModel model({.hidden_layers = AllLayers()});
  Counts counts;
  Engine engine(&model, Letters(), WithHead(&counts, 1));
  engine.Submit({1, 2, 3}, Greedy(20));
  while (engine.Step()) engine.CheckInvariants();
  EXPECT_EQ(engine.GetStatistics().speculation_failure, "the head failed");
  // The second proposal failed, after the second pass.
  const auto third = model.forwards().begin() + 2;
  EXPECT_THAT(std::vector<ForwardInput>(model.forwards().begin(), third),
              Each(Field(&ForwardInput::hidden, Field(&HiddenRequest::positions, Not(IsEmpty())))));
  const std::vector<ForwardInput> after(third, model.forwards().end());
  EXPECT_THAT(after, has_none) << "after the drafter failed";
}

}  // namespace
}  // namespace aiomlc
