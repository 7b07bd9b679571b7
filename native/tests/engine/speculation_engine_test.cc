// Limits, failures and statistics of speculative decoding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/letter_vocabulary.h"

namespace aiomlc {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Tokens = std::vector<int32_t>;

constexpr SpeculativeMode kOff = SpeculativeMode::kDisable;
constexpr SpeculativeMode kLookup = SpeculativeMode::kPromptLookup;

Vocabulary Letters() { return LetterVocabulary(26, {}); }

/*! \brief Proposes the maximum number of zeros. */
class ZeroDrafter final : public Drafter {
 public:
  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests,
                               const TargetPass& /*pass*/) final {
    for (const auto& [sequence, max_tokens] : requests) {
      sequence->draft_ids.assign(static_cast<size_t>(max_tokens), 0);
    }
    return {};
  }
  DraftPolicy policy() const final { return {}; }
  void Remove(int64_t) final {}
  void Clear() noexcept final {}
};

/*! \return The draft tokens of each sequence. \param budget The draft tokens of a step. */
std::vector<size_t> DraftLengths(int64_t draft_length, size_t num_decoding, int64_t budget) {
  Vocabulary vocabulary;
  SequenceOptions options;
  options.seed = 0;
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Sequence*> running;
  for (size_t i = 0; i < num_decoding; ++i) {
    sequences.push_back(std::make_unique<Sequence>(Tokens{1}, options, 100, &vocabulary));
    running.push_back(sequences.back().get());
    running.back()->id = static_cast<int64_t>(i);
    running.back()->token_ids.push_back(2);
    running.back()->num_computed = 1;
  }
  Speculation(std::make_unique<ZeroDrafter>(), draft_length).Propose(running, budget);
  std::vector<size_t> lengths;
  for (const Sequence* sequence : running) lengths.push_back(sequence->draft_ids.size());
  return lengths;
}

TEST(Speculation, TheDraftTokensOfAStepAreDividedAmongSequences) {
  EXPECT_THAT(DraftLengths(6, 3, 100), ElementsAre(6, 6, 6));
  EXPECT_THAT(DraftLengths(6, 3, 8), ElementsAre(3, 3, 2));
  EXPECT_THAT(DraftLengths(6, 3, 2), ElementsAre(1, 1, 0));
  EXPECT_THAT(DraftLengths(6, 3, 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(DraftLengths(6, 3, -5), ElementsAre(0, 0, 0));
}

TEST(Speculation, AdaptiveDraftsAreLimitedToSmallBatches) {
  EXPECT_THAT(DraftLengths(0, 2, 100),
              ElementsAre(DraftDepth::kFirstDepth, DraftDepth::kFirstDepth));
  const std::vector<size_t> few = DraftLengths(0, Speculation::kMaxVerifiedTokens - 2, 100);
  EXPECT_EQ(std::accumulate(few.begin(), few.end(), size_t{0}), 2u);
  const std::vector<size_t> none = DraftLengths(0, Speculation::kMaxVerifiedTokens, 100);
  EXPECT_EQ(std::accumulate(none.begin(), none.end(), size_t{0}), 0u);
}

class SpeculationTest : public ::testing::Test {
 protected:
  static SequenceOptions Greedy(int64_t max_tokens) {
    SequenceOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = max_tokens;
    return options;
  }

  /*! \return The ids of the sequences whose drafts failed, in order; -1 for the draft model. */
  static Tokens FailedDrafts(Engine* engine) {
    Tokens ids;
    for (const Event& event : engine->trace().Read(0).events) {
      if (event.kind == EventKind::kDraftFailed) {
        ids.push_back(static_cast<int32_t>(event.sequence_id));
      }
    }
    return ids;
  }

  /*! \brief Make the model generate 0, 1, 2, 3, 0, 1 and so on. */
  void SetUp() override {
    model_.Script([](const Tokens& tokens) { return (tokens.back() + 1) % 4; });
  }

  FakeModel model_{{}};
};

TEST_F(SpeculationTest, ARepetitiveOutputTakesFewerSteps) {
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup});
  engine.Submit({0, 1, 2, 3, 0, 1}, Greedy(24));
  while (engine.Step()) engine.CheckInvariants();

  const Record record = engine.Drain().at(0);
  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(record.token_ids.size(), 24u);
  EXPECT_LT(statistics.steps, 8);
  EXPECT_EQ(statistics.draft_tokens, statistics.accepted_tokens);
  EXPECT_EQ(statistics.steps + statistics.accepted_tokens, 24);
  EXPECT_EQ(statistics.decode_tokens, 23) << "all but the token that the prefill gave";
}

TEST_F(SpeculationTest, ADraftIsLimitedByTheStepTokenBudgetAndTheFreePages) {
  FakeModel::Sizes sizes;
  sizes.num_pages = 3;
  FakeModel model(sizes);
  model.Script([](const Tokens& tokens) { return (tokens.back() + 1) % 4; });
  Engine engine(&model, Letters(),
                {.step_token_budget = 5, .speculative_mode = kLookup, .draft_length = 9});
  engine.Submit({0, 1, 2, 3, 0}, Greedy(7));
  while (engine.Step()) engine.CheckInvariants();

  std::vector<size_t> tokens;
  for (const ForwardInput& input : model.forwards()) tokens.push_back(input.token_ids.size());
  EXPECT_THAT(tokens, ElementsAre(5, 5, 1)) << "the last step needs no draft";
  EXPECT_EQ(engine.Drain().at(0).finish_reason, FinishReason::kLength);
}

TEST_F(SpeculationTest, TokensAfterAStopInsideADraftAreRemovedFromTheCache) {
  Engine engine(&model_, Letters(),
                {.max_recycling_sequences = 4, .speculative_mode = kLookup, .draft_length = 8});
  SequenceOptions options = Greedy(30);
  options.stop = {"dabcda"};
  engine.Submit({0, 1, 2, 3, 0, 1}, options);
  while (engine.Step()) engine.CheckInvariants();
  engine.CheckInvariants();

  const Record record = engine.Drain().at(0);
  EXPECT_EQ(record.text, "c");
  EXPECT_EQ(record.finish_reason, FinishReason::kStop);
  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(model_.pages_in_use(), 3) << "12 tokens are cached; token 13 was not computed";
  EXPECT_GE(statistics.free_pages, statistics.total_pages);
}

TEST_F(SpeculationTest, AFailureToRewindEndsEverySequenceOnce) {
  model_.Script(
      [](const Tokens& tokens) { return tokens.size() < 12 ? (tokens.back() + 1) % 4 : 5; });
  model_.ThrowOnRewind();
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 8});
  engine.Submit({0, 1, 2, 3, 0, 1}, Greedy(30));
  EXPECT_THROW(while (engine.Step()), EngineError);

  const std::vector<Record> records = engine.Drain();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].finish_reason, FinishReason::kError);
  engine.CheckInvariants();
}

TEST_F(SpeculationTest, AllDraftTokensOfAnIdenticalModelAreAccepted) {
  FakeModel model({});
  FakeModel draft_model({});
  Engine engine(&model, Letters(),
                {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = &draft_model});
  SequenceOptions options;
  options.seed = 5;
  options.max_tokens = 30;
  engine.Submit({1, 2, 3}, options);
  options.seed = 6;
  options.logits.frequency_penalty = 1;
  engine.Submit({4, 5}, options);
  while (engine.Step()) engine.CheckInvariants();

  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(statistics.draft_tokens, statistics.accepted_tokens) << "including sampled tokens";
  EXPECT_GT(statistics.accepted_tokens, 40);
  EXPECT_EQ(draft_model.num_sequences(), 0u);
}

TEST_F(SpeculationTest, TheDraftModelPrefillsALongPromptInChunks) {
  FakeModel draft_model({});
  Engine engine(&model_, Letters(),
                {.step_token_budget = 7,
                 .speculative_mode = SpeculativeMode::kSmallDraft,
                 .draft_model = &draft_model});
  engine.Submit(Tokens(40, 1), Greedy(20));
  while (engine.Step()) engine.CheckInvariants();

  EXPECT_EQ(engine.Drain().at(0).token_ids.size(), 20u);
  size_t longest = 0;
  for (const ForwardInput& input : draft_model.forwards()) {
    longest = std::max(longest, input.token_ids.size());
  }
  EXPECT_EQ(longest, 7u);
}

TEST_F(SpeculationTest, AnExceptionOfTheDraftModelOnlyDisablesSpeculation) {
  FakeModel draft_model({});
  draft_model.ThrowAt(3);
  Engine engine(&model_, Letters(),
                {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = &draft_model});
  engine.trace().Enable();
  engine.Submit({1, 2, 3}, Greedy(20));
  engine.Submit({3, 2, 1}, Greedy(25));
  while (engine.Step()) engine.CheckInvariants();
  engine.Submit({1, 2}, Greedy(5));
  while (engine.Step()) engine.CheckInvariants();

  for (const Record& record : engine.Drain()) {
    EXPECT_EQ(record.finish_reason, FinishReason::kLength);
  }
  EXPECT_THAT(engine.TakeNotices(),
              ElementsAre(HasSubstr("speculative decoding is disabled: forward failed")));
  EXPECT_THAT(engine.TakeNotices(), IsEmpty());
  EXPECT_EQ(engine.GetStatistics().draft_failures, 1);
  EXPECT_EQ(FailedDrafts(&engine), Tokens{-1});
  EXPECT_EQ(draft_model.forwards().size(), 3u);
  EXPECT_EQ(draft_model.num_sequences(), 0u);
  EXPECT_EQ(draft_model.pages_in_use(), 0);
  engine.Reset();
  engine.Step();
  EXPECT_EQ(engine.GetStatistics().speculation_failure, "forward failed") << "not reset";
  EXPECT_EQ(engine.GetStatistics().draft_failures, 0);
}

TEST_F(SpeculationTest, NaNLogitsOfTheDraftModelDisableSpeculationForTheirSequence) {
  FakeModel draft_model({});
  draft_model.Script([](const Tokens& tokens) { return (tokens.back() + 1) % 4; });
  draft_model.PoisonToken(3);
  Engine engine(&model_, Letters(),
                {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = &draft_model});
  engine.trace().Enable();
  engine.Submit({1, 2, 3}, Greedy(20));
  const int64_t failed = engine.Submit({3, 2, 1}, Greedy(25));
  const int64_t failed_too = engine.Submit({3, 2, 1, 0}, Greedy(25));
  while (engine.Step()) engine.CheckInvariants();

  std::map<int64_t, size_t> lengths;
  for (const Record& record : engine.Drain()) {
    lengths[record.sequence_id] = record.token_ids.size();
  }
  EXPECT_THAT(lengths, ElementsAre(Pair(_, 20), Pair(failed, 25), Pair(failed_too, 25)));
  EXPECT_THAT(engine.TakeNotices(), ElementsAre(HasSubstr("not finite")));
  EXPECT_EQ(FailedDrafts(&engine),
            (Tokens{static_cast<int32_t>(failed), static_cast<int32_t>(failed_too)}));
  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(statistics.draft_failures, 2);
  EXPECT_EQ(statistics.speculation_failure, "");
  EXPECT_GT(statistics.accepted_tokens, 10) << "speculation continues for the first sequence";
  EXPECT_EQ(draft_model.num_sequences(), 0u);
}

TEST_F(SpeculationTest, AFailedDraftIsNotTriedAgainAfterAPause) {
  FakeModel draft_model({});
  draft_model.PoisonToken(3);
  Engine engine(&model_, Letters(),
                {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = &draft_model});
  const int64_t id = engine.Submit({3, 2, 1}, Greedy(30));
  for (int i = 0; i < 3; ++i) engine.Step();
  engine.Pause(id);
  engine.Step();
  engine.Resume(id);
  while (engine.Step()) engine.CheckInvariants();

  EXPECT_EQ(engine.GetStatistics().draft_failures, 1);
}

TEST_F(SpeculationTest, NothingIsDraftedForASequenceWithSlowMasks) {
  FakeGrammar grammar(FakeGrammar::Positions(30, {0, 1, 2, 3}));
  for (const std::chrono::milliseconds mask_time :
       {std::chrono::milliseconds(0), std::chrono::milliseconds(2)}) {
    grammar.mask_time = mask_time;
    SequenceOptions options = Greedy(20);
    options.grammar = grammar.Clone();
    Engine engine(&model_, Letters(), {.speculative_mode = kLookup});
    engine.Submit({0, 1, 2, 3, 0, 1, 2, 3}, std::move(options));
    while (engine.Step()) engine.CheckInvariants();

    EXPECT_EQ(engine.GetStatistics().draft_tokens > 0, mask_time.count() == 0);
  }
}

TEST_F(SpeculationTest, ASlowMaskEndsADraftAndChangesNothing) {
  FakeGrammar grammar(FakeGrammar::Positions(30, {0, 1, 2, 3}));
  grammar.mask_time = std::chrono::milliseconds(5);
  grammar.slow_from = 6;
  SequenceOptions options = Greedy(20);
  options.grammar = grammar.Clone();
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 8});
  engine.Submit({0, 1, 2, 3, 0, 1, 2, 3}, std::move(options));
  while (engine.Step()) engine.CheckInvariants();

  Tokens tokens;
  for (const Record& record : engine.Drain()) {
    tokens.insert(tokens.end(), record.token_ids.begin(), record.token_ids.end());
  }
  ASSERT_EQ(tokens.size(), 20u);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], static_cast<int32_t>(i % 4));
  const Statistics statistics = engine.GetStatistics();
  EXPECT_LT(statistics.accepted_tokens, statistics.draft_tokens);
}

TEST_F(SpeculationTest, DraftTokensAreCountedByPosition) {
  model_.Script([](const Tokens& tokens) { return tokens.size() % 10 == 9 ? 5 : 1; });
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 3});
  engine.Submit({1, 1, 1, 1}, Greedy(40));
  while (engine.Step()) engine.CheckInvariants();

  const Statistics statistics = engine.GetStatistics();
  int64_t proposed = 0;
  int64_t accepted = 0;
  for (size_t i = 0; i < statistics.draft_positions.size(); ++i) {
    const DraftPositionCounts& counts = statistics.draft_positions[i];
    proposed += counts.proposed;
    accepted += counts.accepted;
    EXPECT_LE(counts.accepted, counts.proposed);
    if (i > 0) {
      EXPECT_LE(counts.accepted, statistics.draft_positions[i - 1].accepted);
    }
  }
  EXPECT_EQ(statistics.draft_positions[0].proposed, statistics.verified_drafts);
  EXPECT_EQ(proposed, statistics.draft_tokens);
  EXPECT_EQ(accepted, statistics.accepted_tokens);
  EXPECT_LT(0, accepted);
  EXPECT_LT(accepted, proposed);
}

TEST_F(SpeculationTest, StepsWithAndWithoutDraftsAreTimedSeparately) {
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 3});
  engine.Submit({0, 1, 2, 3, 0, 1}, Greedy(24));
  while (engine.Step()) engine.CheckInvariants();

  const Statistics statistics = engine.GetStatistics();
  int64_t verified = 0;
  int64_t decoded = 0;
  for (const DecodeSteps& steps : statistics.verify_steps) verified += steps.count;
  for (const DecodeSteps& steps : statistics.decode_steps) decoded += steps.count;
  EXPECT_EQ(verified, statistics.verified_drafts);
  EXPECT_EQ(verified + decoded + 1, statistics.steps) << "plus one prefill step";
  EXPECT_GT(statistics.verify_steps[3].count, 0) << "one token and three draft tokens";
  EXPECT_GE(statistics.draft_steps[0].count, verified);
  EXPECT_GE(statistics.verify_steps[3].seconds, 0);
}

TEST_F(SpeculationTest, TheConstructorRejectsAMissingOrIncompatibleDraftModel) {
  FakeModel draft_model({.vocab_size = 31});
  const auto open = [&](Model* model) {
    Engine(&model_, Letters(),
           {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = model});
  };
  EXPECT_THROW(open(&draft_model), EngineError);
  EXPECT_THROW(open(nullptr), EngineError);
}

TEST_F(SpeculationTest, TheConstructorRejectsANegativeDraftLength) {
  EXPECT_THROW(Engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = -1}),
               EngineError);
  EXPECT_NO_THROW(Engine(&model_, Letters(), {.speculative_mode = kOff}));
}

}  // namespace
}  // namespace aiomlc
