#include "grammar/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/no_new_threads.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kStop = 31;

class ConstrainedEngine : public ::testing::Test {
 protected:
  void TearDown() override {
    engine_.CheckInvariants();
    engine_.Close();
    EXPECT_EQ(model_.num_sequences(), 0u);
  }

  static SequenceOptions Constrained(const FakeGrammar& grammar) {
    SequenceOptions options;
    options.seed = 1;
    options.max_tokens = 20;
    options.stop_token_ids = {kStop};
    options.grammar = grammar.Clone();
    return options;
  }

  void StepUntilIdle() {
    while (engine_.Step()) engine_.CheckInvariants();
    for (const Record& record : engine_.Drain()) outputs_[record.sequence_id] = record;
  }

  const Record& Complete(const SequenceOptions& options) {
    const int64_t id = engine_.Submit({1, 2, 3}, options);
    StepUntilIdle();
    return outputs_.at(id);
  }

  FakeModel model_{FakeModel::Sizes()};
  Engine engine_{&model_, {}, {.max_recycling_sequences = 4}};
  std::map<int64_t, Record> outputs_;
};

TEST_F(ConstrainedEngine, GeneratesOnlyAllowedTokens) {
  const FakeGrammar grammar({{4, 5}, {6}, {7, 8, 9}, {10, 11}});

  for (uint64_t seed = 0; seed < 50; ++seed) {
    SequenceOptions options = Constrained(grammar);
    options.seed = seed;
    const Record& output = Complete(options);

    EXPECT_EQ(output.finish_reason, FinishReason::kStop);
    ASSERT_EQ(output.token_ids.size(), 4u);
    EXPECT_TRUE(output.token_ids[0] == 4 || output.token_ids[0] == 5);
    EXPECT_EQ(output.token_ids[1], 6);
    EXPECT_EQ(output.completion_tokens, 4);
  }
}

TEST_F(ConstrainedEngine, AnAllowedStopTokenEndsTheSequence) {
  model_.ScriptTokens(3, {4, kStop});

  const Record& output = Complete(Constrained(FakeGrammar({{4}, {5, kStop}, {6}})));

  EXPECT_THAT(output.token_ids, ElementsAre(4, kStop));
  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
}

TEST_F(ConstrainedEngine, ATokenForcedBeforeTheFirstPassHasATimestamp) {
  FakeGrammar grammar({{4}, {5, 6}});
  grammar.has_forced_tokens = true;

  const RequestTiming timing = Complete(Constrained(grammar)).timing;

  EXPECT_GE(timing.first_token_seconds, 0);
  EXPECT_LE(timing.first_token_seconds, timing.total_seconds);
  EXPECT_GE(engine_.GetStatistics().inter_token_seconds.sum(), 0);
}

TEST_F(ConstrainedEngine, ATokenForcedBeforeTheFirstPassIsNotTheFirstToken) {
  FakeGrammar grammar({{4}, {5, 6}});
  grammar.has_forced_tokens = true;
  Complete(Constrained(grammar));

  const auto count = [](const Histogram& histogram) {
    return std::accumulate(histogram.counts().begin(), histogram.counts().end(), int64_t{0});
  };
  const Statistics statistics = engine_.GetStatistics();
  EXPECT_EQ(statistics.completion_tokens, 2);
  EXPECT_EQ(count(statistics.first_token_seconds), 1);
  EXPECT_EQ(count(statistics.inter_token_seconds), 0);
}

TEST_F(ConstrainedEngine, PromptLogprobsComeWithTheFirstTokenAlthoughItCouldBeForced) {
  for (const FakeGrammar::Positions& positions :
       {FakeGrammar::Positions{{4}, {5, 6}}, FakeGrammar::Positions{{4}, {5}}}) {
    FakeGrammar grammar(positions);
    grammar.has_forced_tokens = true;
    SequenceOptions options = Constrained(grammar);
    options.prompt_logprobs = 0;

    const Record& output = Complete(options);

    EXPECT_EQ(output.token_ids.size(), 2u);
    EXPECT_EQ(output.prompt_logprobs.size(), 2u);
  }
}

TEST_F(ConstrainedEngine, ForcedTokensNeedNoForwardPass) {
  FakeGrammar grammar({{4}, {5}, {6, 7}, {8}, {9}, {10, 11}, {12}});
  grammar.has_forced_tokens = true;
  SequenceOptions options = Constrained(grammar);
  const Record forced = Complete(options);
  const size_t num_forwards = model_.forwards().size();
  grammar.has_forced_tokens = false;
  options = Constrained(grammar);
  const Record plain = Complete(options);

  EXPECT_EQ(forced.token_ids, plain.token_ids);
  EXPECT_EQ(forced.finish_reason, FinishReason::kStop);
  EXPECT_EQ(num_forwards, 2u);
  EXPECT_EQ(model_.forwards()[0].token_ids.size(), 5u)
      << "the prompt and the forced tokens after it";
  EXPECT_EQ(model_.forwards()[1].token_ids.size(), 3u)
      << "the sampled token and the forced tokens after it";
}

TEST_F(ConstrainedEngine, ForcedTokensRespectMaxTokens) {
  FakeGrammar grammar(FakeGrammar::Positions(30, {4}));
  grammar.has_forced_tokens = true;
  SequenceOptions options = Constrained(grammar);
  options.max_tokens = 7;

  const Record& output = Complete(options);

  EXPECT_EQ(output.token_ids.size(), 7u);
  EXPECT_EQ(output.finish_reason, FinishReason::kLength);
}

TEST_F(ConstrainedEngine, EveryTokenHasLogprobs) {
  FakeGrammar grammar({{4}, {5}, {6, 7}});
  grammar.has_forced_tokens = true;
  SequenceOptions options = Constrained(grammar);
  options.top_logprobs = 1;

  const Record& output = Complete(options);

  EXPECT_EQ(output.token_ids.size(), 3u);
  EXPECT_EQ(output.logprobs.size(), 3u);
}

TEST_F(ConstrainedEngine, AFailingGrammarEndsOnlyItsSequence) {
  FakeGrammar grammar({{4}, {5}, {6}});
  grammar.fails_at = 1;
  const int64_t failing = engine_.Submit({1}, Constrained(grammar));
  const int64_t empty = engine_.Submit({2}, Constrained(FakeGrammar({{4}, {}})));
  const int64_t healthy = engine_.Submit({3}, Constrained(FakeGrammar({{4}, {5}})));
  StepUntilIdle();

  EXPECT_EQ(outputs_.at(failing).finish_reason, FinishReason::kError);
  EXPECT_THAT(outputs_.at(failing).error, HasSubstr("out of fuel"));
  EXPECT_THAT(outputs_.at(failing).token_ids, ElementsAre(4));
  EXPECT_EQ(outputs_.at(empty).finish_reason, FinishReason::kError);
  EXPECT_THAT(outputs_.at(empty).error, HasSubstr("allows no token"));
  EXPECT_THAT(outputs_.at(healthy).token_ids, ElementsAre(4, 5));
}

TEST_F(ConstrainedEngine, MasksThatTakeTooLongInAllEndTheirSequence) {
  FakeGrammar grammar(FakeGrammar::Positions(30, {4, 5}));
  grammar.mask_time = std::chrono::milliseconds(300);

  const Record output = Complete(Constrained(grammar));

  EXPECT_EQ(output.finish_reason, FinishReason::kError);
  EXPECT_THAT(output.error, HasSubstr("too complex"));
  EXPECT_GE(output.token_ids.size() + 1, 6u) << "2 s of masks are allowed";
  EXPECT_EQ(Complete(Constrained(FakeGrammar({{4}, {5}}))).finish_reason, FinishReason::kStop);
}

TEST_F(ConstrainedEngine, WithoutAnotherThreadTheMasksAreComputedInTheStep) {
  const NoNewThreads no_new_threads;

  const Record& output = Complete(Constrained(FakeGrammar({{4, 5}, {6}})));

  EXPECT_EQ(output.finish_reason, FinishReason::kStop);
  EXPECT_EQ(output.token_ids.size(), 2u);
}

TEST_F(ConstrainedEngine, ASlowMaskDelaysOnlyItsSequence) {
  std::promise<void> gate;
  FakeGrammar grammar({{4, 5}, {6}});
  grammar.gate = gate.get_future().share();
  const int64_t slow = engine_.Submit({1, 2}, Constrained(grammar));
  SequenceOptions options = Constrained(grammar);
  options.grammar = nullptr;
  options.stop_token_ids = {};
  const int64_t unconstrained = engine_.Submit({3}, options);

  for (int step = 0; step < 20; ++step) {
    engine_.Step();
    engine_.CheckInvariants();
  }
  const std::vector<Record> records = engine_.Drain();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].sequence_id, unconstrained);
  EXPECT_EQ(records[0].finish_reason, FinishReason::kLength);
  gate.set_value();
  StepUntilIdle();

  EXPECT_EQ(outputs_.at(slow).finish_reason, FinishReason::kStop);
  EXPECT_EQ(outputs_.at(slow).token_ids.size(), 2u);
}

TEST_F(ConstrainedEngine, ASequenceThatAwaitsItsMaskCanBeCancelled) {
  std::promise<void> gate;
  FakeGrammar grammar({{4, 5}, {6}});
  grammar.gate = gate.get_future().share();
  const int64_t slow = engine_.Submit({1, 2}, Constrained(grammar));
  engine_.Step();
  engine_.Cancel(slow);

  EXPECT_FALSE(engine_.Step());
  gate.set_value();
  StepUntilIdle();

  EXPECT_EQ(outputs_.at(slow).finish_reason, FinishReason::kAbort);
}

TEST_F(ConstrainedEngine, CloseWaitsForAMask) {
  std::promise<void> gate;
  FakeGrammar grammar({{4}, {5}});
  grammar.gate = gate.get_future().share();
  const std::weak_ptr<void> mask = grammar.alive = std::make_shared<int>();
  engine_.Submit({1, 2, 3}, Constrained(grammar));
  engine_.Step();
  grammar.alive.reset();
  grammar.has_begun->wait(false);  // A mask that no thread has begun is dropped.

  std::future<void> closing = std::async(std::launch::async, [this] { engine_.Close(); });

  EXPECT_EQ(closing.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  gate.set_value();
  closing.get();
  EXPECT_TRUE(mask.expired()) << "no thread may be using the grammar";
}

TEST_F(ConstrainedEngine, TokensForcedBetweenTwoStepsAreNotMeasured) {
  FakeGrammar grammar({{4}, {5}});
  grammar.has_forced_tokens = true;
  const int64_t sequence = engine_.Submit({1, 2, 3}, Constrained(grammar));

  engine_.CountCached(std::vector<int32_t>{1, 2});

  const Statistics statistics = engine_.GetStatistics();
  const auto& counts = statistics.first_token_seconds.counts();
  EXPECT_EQ(statistics.completion_tokens, 2);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 0);
  StepUntilIdle();
  EXPECT_EQ(outputs_.at(sequence).timing.first_token_seconds, -1);
}

TEST_F(ConstrainedEngine, TheMaskIsAppliedAfterTheLogitsProcessor) {
  SequenceOptions options = Constrained(FakeGrammar({{4, 5}, {6, 7}}));
  options.sampling.temperature = 0;
  options.logits_processor = [](std::span<const int32_t>, std::span<float> logits) {
    logits[5] = logits[7] = 100;
    logits[9] = 1000;
  };
  const int64_t id = engine_.Submit({1, 2}, options);
  StepUntilIdle();

  EXPECT_THAT(outputs_.at(id).token_ids, ElementsAre(5, 7));
}

TEST_F(ConstrainedEngine, TheMaskDoesNotHideNanLogits) {
  model_.PoisonToken(9);
  const int64_t id = engine_.Submit({9}, Constrained(FakeGrammar({{4}, {5}})));
  StepUntilIdle();

  EXPECT_EQ(outputs_.at(id).finish_reason, FinishReason::kError);
  EXPECT_THAT(outputs_.at(id).error, HasSubstr("not finite"));
}

TEST(ConstrainedEngineWithFewPages, PreemptionKeepsTheConstraint) {
  FakeModel model({.num_pages = 6});
  Engine engine(&model, {}, {});
  FakeGrammar::Positions positions;
  for (int32_t i = 0; i < 14; ++i) positions.push_back({i, i + 1});
  FakeGrammar grammar(positions);
  std::map<int64_t, Record> outputs;
  SequenceOptions options;
  options.grammar = grammar.Clone();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    options.seed = seed;
    engine.Submit({1, 2}, options);
  }
  while (engine.Step()) engine.CheckInvariants();

  for (const Record& record : engine.Drain()) {
    ASSERT_EQ(record.token_ids.size(), positions.size()) << record.error;
    for (size_t i = 0; i < positions.size(); ++i) {
      EXPECT_TRUE(positions[i].contains(record.token_ids[i]));
    }
  }
}

TEST(Constraint, ExcludesDisallowedTokensAndKeepsNanAndInfinity) {
  MaskWorker worker;
  const auto constraint = std::make_shared<Constraint>(
      std::make_unique<FakeGrammar>(FakeGrammar::Positions{{1, 33}}), 35);
  worker.Enqueue(constraint);
  while (!constraint->is_ready()) worker.WaitBriefly([&] { return constraint->is_ready(); });
  std::vector<float> logits(35, 0.5f);
  logits[2] = std::numeric_limits<float>::quiet_NaN();
  logits[3] = std::numeric_limits<float>::infinity();

  constraint->Apply(logits.data(), 35);

  for (int64_t i = 0; i < 35; ++i) {
    if (i == 1 || i == 33) {
      EXPECT_EQ(logits[i], 0.5f);
    } else if (i == 2) {
      EXPECT_TRUE(std::isnan(logits[i]));
    } else if (i == 3) {
      EXPECT_EQ(logits[i], std::numeric_limits<float>::infinity());
    } else {
      EXPECT_EQ(logits[i], -std::numeric_limits<float>::infinity());
    }
  }
}

}  // namespace
}  // namespace aiomlc
