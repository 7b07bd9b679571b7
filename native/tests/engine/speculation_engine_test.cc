// Guessed tokens change how long an answer takes, and nothing of the answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/fake_model.h"

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

Vocabulary Letters() {
  Vocabulary vocabulary;
  for (int i = 0; i < 24; ++i) vocabulary.push_back(std::string(1, static_cast<char>('a' + i)));
  // Halves of a character, and a text of two.
  for (const char* text : {"\xc3", "\xa9", "ab", "ba"}) vocabulary.emplace_back(text);
  return vocabulary;
}

/*! \brief The next token depends on the last two, so that runs come back, and a bit on all. */
void RepetitiveLogits(const Tokens& tokens, std::vector<float>* logits) {
  FakeModel::HashedLogits(tokens, logits);
  std::vector<float> all = *logits;
  const auto last = tokens.end() - std::min<int64_t>(2, static_cast<int64_t>(tokens.size()));
  FakeModel::HashedLogits(Tokens(last, tokens.end()), logits);
  for (size_t i = 0; i < all.size(); ++i) (*logits)[i] += 0.1f * all[i];
}

struct Job {
  Tokens prompt;
  SequenceOptions options;
  int64_t step;
};

SequenceOptions RandomOptions(std::mt19937* random) {
  const auto below = [&](uint32_t end) { return static_cast<int64_t>((*random)() % end); };
  SequenceOptions options;
  options.seed = (*random)();
  options.sampling.temperature = below(2) == 0 ? 0 : 0.3 * static_cast<double>(below(4));
  if (below(3) == 0) options.sampling.top_p = 0.8;
  if (below(3) == 0) options.sampling.top_k = 3;
  options.max_tokens = 1 + below(40);
  if (below(3) == 0) options.min_tokens = below(static_cast<uint32_t>(*options.max_tokens));
  if (below(3) == 0) options.stop = {"ab", "ca"};
  if (below(3) == 0) options.stop_token_ids = {static_cast<int32_t>(below(28))};
  options.priority = below(3);
  if (below(3) == 0) options.top_logprobs = below(4);
  if (below(4) == 0) options.logits.repetition_penalty = 1.1;
  if (below(4) == 0) options.logits.frequency_penalty = 0.2;
  if (below(4) == 0) options.logits.logit_bias = {{below(28), 3}};
  return options;
}

/*! \brief A few kinds of places that come again and again, some of them without a choice. */
std::shared_ptr<const GrammarMatcher> RandomGrammar(std::mt19937* random) {
  FakeGrammar::Positions kinds(1 + (*random)() % 4);
  for (std::set<int32_t>& kind : kinds) {
    const size_t count = 1 + (*random)() % 3;
    while (kind.size() < count) kind.insert(static_cast<int32_t>((*random)() % 28));
  }
  FakeGrammar::Positions places(1 + (*random)() % 40);
  for (size_t i = 0; i < places.size(); ++i) places[i] = kinds[i % kinds.size()];
  FakeGrammar grammar(std::move(places));
  grammar.has_forced_tokens = (*random)() % 2 == 0;
  return grammar.Clone();
}

std::vector<Job> RandomJobs(std::mt19937* random) {
  std::vector<Job> jobs;
  int64_t step = 0;
  const size_t count = 1 + (*random)() % 12;
  for (size_t i = 0; i < count; ++i) {
    Job job{{}, RandomOptions(random), step};
    if ((*random)() % 4 == 0) job.options.grammar = RandomGrammar(random);
    if (!jobs.empty() && (*random)() % 3 == 0) job.prompt = jobs[(*random)() % i].prompt;
    const size_t more = 1 + (*random)() % 12;
    for (size_t j = 0; j < more && job.prompt.size() < 30; ++j) {
      job.prompt.push_back(static_cast<int32_t>((*random)() % 28));
    }
    step += static_cast<int64_t>((*random)() % 6);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

struct Outcome {
  /*! \brief By the number of the job: ids depend on who was paused when. */
  std::map<int64_t, Record> records;
  Statistics statistics;
};

Outcome Serve(const std::vector<Job>& jobs, FakeModel* model, const EngineOptions& options) {
  Engine engine(model, Letters(), options);
  size_t next = 0;
  std::vector<int64_t> ids;
  int64_t paused = -1;
  Outcome outcome;
  const auto is_busy = [&] {
    const Statistics now = engine.GetStatistics();
    return now.num_running + now.num_waiting + now.num_paused > 0;
  };
  for (int64_t step = 0; next < jobs.size() || is_busy(); ++step) {
    for (; next < jobs.size() && jobs[next].step <= step; ++next) {
      ids.push_back(engine.Submit(jobs[next].prompt, jobs[next].options));
    }
    // One sequence after the other is paused for some steps, and begins anew; not for ever.
    if (step % 8 == 3 && step < 64 && !ids.empty()) {
      paused = ids[static_cast<size_t>(step / 8) % ids.size()];
      engine.Pause(paused);
    }
    if (step % 8 == 6) engine.Resume(paused);
    engine.Step();
    engine.CheckInvariants();
    const Statistics now = engine.GetStatistics();
    EXPECT_LE(model->pages_in_use(), now.total_pages);
    EXPECT_EQ(static_cast<int64_t>(model->num_sequences()), now.num_running + now.num_recycling);
    if (options.max_recycling_sequences == 0) {
      EXPECT_LE(model->pages_in_use(), now.total_pages - now.free_pages);
    }
  }
  for (Record& record : engine.Drain()) {
    const auto id = std::find(ids.begin(), ids.end(), record.sequence_id);
    outcome.records[id - ids.begin()] = record;
  }
  outcome.statistics = engine.GetStatistics();
  engine.Close();
  EXPECT_EQ(model->pages_in_use(), 0);
  return outcome;
}

void ExpectSame(const Outcome& with, const Outcome& without) {
  ASSERT_EQ(with.records.size(), without.records.size());
  for (const auto& [id, expected] : without.records) {
    const Record& record = with.records.at(id);
    EXPECT_EQ(record.token_ids, expected.token_ids);
    EXPECT_EQ(record.text, expected.text);
    EXPECT_EQ(record.finish_reason, expected.finish_reason);
    EXPECT_EQ(record.completion_tokens, expected.completion_tokens);
    ASSERT_EQ(record.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < record.logprobs.size(); ++i) {
      EXPECT_EQ(record.logprobs[i].logprob, expected.logprobs[i].logprob);
      EXPECT_EQ(record.logprobs[i].top.size(), expected.logprobs[i].top.size());
    }
  }
}

/*! \brief What a smaller model makes of it: often the same, and sometimes not. */
void CoarseLogits(const Tokens& tokens, std::vector<float>* logits) {
  const auto last = tokens.end() - std::min<int64_t>(2, static_cast<int64_t>(tokens.size()));
  FakeModel::HashedLogits(Tokens(last, tokens.end()), logits);
}

TEST(SpeculationFaults, AnswersAreTheSameWhateverFails) {
  int64_t num_failed = 0;
  for (unsigned round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    std::mt19937 random(round);
    const std::vector<Job> jobs = RandomJobs(&random);
    EngineOptions options;
    options.step_token_budget = 4 + static_cast<int64_t>(random() % 13);
    options.max_recycling_sequences = static_cast<int64_t>(random() % 4);
    FakeModel plain({.num_pages = 24});
    plain.SetLogits(RepetitiveLogits);
    const Outcome without = Serve(jobs, &plain, options);
    FakeModel model({.num_pages = 24});
    model.SetLogits(RepetitiveLogits);
    FakeModel draft_model({.num_pages = 24});
    draft_model.SetLogits(CoarseLogits);
    switch (random() % 4) {
      case 0:
        draft_model.ThrowOnRemove();
        break;
      case 1:
        draft_model.ThrowOnPop();
        break;
      case 2:
        draft_model.PoisonToken(jobs[0].prompt[0]);
        break;
      default:
        draft_model.ThrowAt(static_cast<int64_t>(random() % 40));
    }
    options.speculative_mode = SpeculativeMode::kSmallDraft;
    options.draft_model = &draft_model;
    const Outcome with = Serve(jobs, &model, options);
    EXPECT_EQ(draft_model.num_sequences(), 0u);
    EXPECT_EQ(draft_model.pages_in_use(), 0);
    ExpectSame(with, without);
    num_failed += with.statistics.draft_failures > 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(num_failed, 100);
}

class SpeculationEngine : public ::testing::TestWithParam<SpeculativeMode> {};

TEST_P(SpeculationEngine, AnswersAreTheSameWhateverIsGuessed) {
  int64_t draft_tokens = 0;
  int64_t accepted_tokens = 0;
  for (unsigned round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    std::mt19937 random(round);
    const std::vector<Job> jobs = RandomJobs(&random);
    FakeModel::Sizes sizes;
    sizes.num_pages = 18 + static_cast<int64_t>(random() % 30);
    EngineOptions options;
    options.step_token_budget = 4 + static_cast<int64_t>(random() % 13);
    options.max_recycling_sequences = static_cast<int64_t>(random() % 4);
    FakeModel plain(sizes);
    plain.SetLogits(RepetitiveLogits);
    const Outcome without = Serve(jobs, &plain, options);
    FakeModel model(sizes);
    model.SetLogits(RepetitiveLogits);
    FakeModel::Sizes draft_sizes = sizes;
    draft_sizes.num_pages = 16 + static_cast<int64_t>(random() % 30);
    draft_sizes.context_window = 24 + static_cast<int64_t>(random() % 80);
    draft_sizes.max_batch_size = 1 + static_cast<int64_t>(random() % 8);
    draft_sizes.page_size = 1 + static_cast<int64_t>(random() % 5);
    FakeModel draft_model(draft_sizes);
    draft_model.SetLogits(CoarseLogits);
    options.speculative_mode = GetParam();
    options.draft_model = &draft_model;
    options.draft_length = random() % 2 == 0 ? 0 : static_cast<int64_t>(random() % 6);
    const Outcome with = Serve(jobs, &model, options);
    EXPECT_EQ(draft_model.num_sequences(), 0u);
    EXPECT_EQ(draft_model.pages_in_use(), 0);
    ExpectSame(with, without);
    draft_tokens += with.statistics.draft_tokens;
    accepted_tokens += with.statistics.accepted_tokens;
    EXPECT_EQ(without.statistics.draft_tokens, 0);
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted_tokens, 1000);
  EXPECT_GT(draft_tokens - accepted_tokens, 500) << "both outcomes must have been met";
}

/*! \brief Guesses zeros, as many as it may. */
class Zeros final : public Drafter {
 public:
  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests) final {
    for (const auto& [sequence, max_tokens] : requests) {
      sequence->draft_ids.assign(static_cast<size_t>(max_tokens), 0);
    }
    return {};
  }
  DraftPolicy policy() const final { return {}; }
  void Remove(int64_t) final {}
  void Clear() noexcept final {}
};

std::vector<size_t> Drafted(int64_t draft_length, size_t num_decoding, int64_t room) {
  Vocabulary vocabulary;
  SequenceOptions options;
  options.seed = 0;
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> running;
  for (size_t i = 0; i < num_decoding; ++i) {
    owned.push_back(std::make_unique<Sequence>(Tokens{1}, options, 100, &vocabulary));
    running.push_back(owned.back().get());
    running.back()->id = static_cast<int64_t>(i);
    running.back()->token_ids.push_back(2);
    running.back()->num_computed = 1;
  }
  Speculation(std::make_unique<Zeros>(), draft_length).Propose(running, room);
  std::vector<size_t> lengths;
  for (const Sequence* sequence : running) lengths.push_back(sequence->draft_ids.size());
  return lengths;
}

TEST(Speculation, SequencesShareTheRoomOfAStep) {
  EXPECT_THAT(Drafted(6, 3, 100), ElementsAre(6, 6, 6));
  EXPECT_THAT(Drafted(6, 3, 8), ElementsAre(3, 3, 2));
  EXPECT_THAT(Drafted(6, 3, 2), ElementsAre(1, 1, 0));
  EXPECT_THAT(Drafted(6, 3, 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(Drafted(6, 3, -5), ElementsAre(0, 0, 0));
}

TEST(Speculation, AdaptiveDraftsAreForSmallBatches) {
  EXPECT_THAT(Drafted(0, 2, 100), ElementsAre(DraftDepth::kFirstDepth, DraftDepth::kFirstDepth));
  const std::vector<size_t> few = Drafted(0, Speculation::kMaxVerifiedTokens - 2, 100);
  EXPECT_EQ(std::accumulate(few.begin(), few.end(), size_t{0}), 2u);
  const std::vector<size_t> none = Drafted(0, Speculation::kMaxVerifiedTokens, 100);
  EXPECT_EQ(std::accumulate(none.begin(), none.end(), size_t{0}), 0u);
}

INSTANTIATE_TEST_SUITE_P(Modes, SpeculationEngine,
                         ::testing::Values(kLookup, SpeculativeMode::kSmallDraft));

class SpeculationTest : public ::testing::Test {
 protected:
  static SequenceOptions Greedy(int64_t max_tokens) {
    SequenceOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = max_tokens;
    return options;
  }

  /*! \brief For which sequences guessing failed, in order. */
  static Tokens FailedDrafts(Engine* engine) {
    Tokens ids;
    for (const Event& event : engine->trace().Read(0).events) {
      if (event.kind == EventKind::kDraftFailed) {
        ids.push_back(static_cast<int32_t>(event.sequence_id));
      }
    }
    return ids;
  }

  /*! \brief A model that counts 0, 1, 2, 3, 0, 1 and so on. */
  void SetUp() override {
    model_.Script([](const Tokens& tokens) { return (tokens.back() + 1) % 4; });
  }

  FakeModel model_{{}};
};

TEST_F(SpeculationTest, ARepetitionTakesFewerSteps) {
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup});
  engine.Submit({0, 1, 2, 3, 0, 1}, Greedy(24));
  while (engine.Step()) engine.CheckInvariants();

  const Record record = engine.Drain().at(0);
  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(record.token_ids.size(), 24u);
  EXPECT_LT(statistics.steps, 8);
  EXPECT_EQ(statistics.draft_tokens, statistics.accepted_tokens);
  EXPECT_EQ(statistics.steps + statistics.accepted_tokens, 24);
  EXPECT_EQ(statistics.decode_tokens, 23) << "all but the one that the prompt gave";
}

TEST_F(SpeculationTest, ADraftTakesWhatIsLeftOfTheStepAndOfThePages) {
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
  EXPECT_THAT(tokens, ElementsAre(5, 5, 1)) << "then the sequence has all its tokens but one";
  EXPECT_EQ(engine.Drain().at(0).finish_reason, FinishReason::kLength);
}

TEST_F(SpeculationTest, AStopInsideOfADraftLeavesOnlyWhatWasComputedBeforeIt) {
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
  EXPECT_EQ(model_.pages_in_use(), 3) << "12 tokens, the last of 13 was not computed";
  EXPECT_GE(statistics.free_pages, statistics.total_pages);
}

TEST_F(SpeculationTest, AModelThatFailsToPopEndsEverySequenceOnce) {
  model_.Script(
      [](const Tokens& tokens) { return tokens.size() < 12 ? (tokens.back() + 1) % 4 : 5; });
  model_.ThrowOnPop();
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 8});
  engine.Submit({0, 1, 2, 3, 0, 1}, Greedy(30));
  EXPECT_THROW(while (engine.Step()), EngineError);

  const std::vector<Record> records = engine.Drain();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].finish_reason, FinishReason::kError);
  engine.CheckInvariants();
}

TEST_F(SpeculationTest, AModelThatIsTheSameIsAlwaysRight) {
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
  EXPECT_EQ(statistics.draft_tokens, statistics.accepted_tokens) << "sampled ones too";
  EXPECT_GT(statistics.accepted_tokens, 40);
  EXPECT_EQ(draft_model.num_sequences(), 0u);
}

TEST_F(SpeculationTest, ADraftModelReadsALongPromptInPieces) {
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

TEST_F(SpeculationTest, ADraftModelThatFailsEndsTheGuessingAndNothingElse) {
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
  EXPECT_EQ(engine.GetStatistics().speculation_failure, "forward failed") << "it stays so";
  EXPECT_EQ(engine.GetStatistics().draft_failures, 0);
}

TEST_F(SpeculationTest, ADraftThatIsNaNEndsTheGuessesForItsSequence) {
  FakeModel draft_model({});
  draft_model.Script([](const Tokens& tokens) { return (tokens.back() + 1) % 4; });
  draft_model.PoisonToken(3);
  Engine engine(&model_, Letters(),
                {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = &draft_model});
  engine.trace().Enable();
  engine.Submit({1, 2, 3}, Greedy(20));
  const int64_t spoiled = engine.Submit({3, 2, 1}, Greedy(25));
  const int64_t spoiled_too = engine.Submit({3, 2, 1, 0}, Greedy(25));
  while (engine.Step()) engine.CheckInvariants();

  std::map<int64_t, size_t> lengths;
  for (const Record& record : engine.Drain()) {
    lengths[record.sequence_id] = record.token_ids.size();
  }
  EXPECT_THAT(lengths, ElementsAre(Pair(_, 20), Pair(spoiled, 25), Pair(spoiled_too, 25)));
  EXPECT_THAT(engine.TakeNotices(), ElementsAre(HasSubstr("not finite")));
  EXPECT_EQ(FailedDrafts(&engine),
            (Tokens{static_cast<int32_t>(spoiled), static_cast<int32_t>(spoiled_too)}));
  const Statistics statistics = engine.GetStatistics();
  EXPECT_EQ(statistics.draft_failures, 2);
  EXPECT_EQ(statistics.speculation_failure, "");
  EXPECT_GT(statistics.accepted_tokens, 10) << "the first sequence is guessed for as ever";
  EXPECT_EQ(draft_model.num_sequences(), 0u);
}

TEST_F(SpeculationTest, GuessesAreCountedByTheirPlaces) {
  model_.Script([](const Tokens& tokens) { return tokens.size() % 10 == 9 ? 5 : 1; });
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 3});
  engine.Submit({1, 1, 1, 1}, Greedy(40));
  while (engine.Step()) engine.CheckInvariants();

  const Statistics statistics = engine.GetStatistics();
  int64_t guessed = 0;
  int64_t right = 0;
  for (size_t i = 0; i < statistics.draft_positions.size(); ++i) {
    const DraftPositionCounts& place = statistics.draft_positions[i];
    guessed += place.proposed;
    right += place.accepted;
    EXPECT_LE(place.accepted, place.proposed);
    if (i > 0) {
      EXPECT_LE(place.accepted, statistics.draft_positions[i - 1].accepted);
    }
  }
  EXPECT_EQ(statistics.draft_positions[0].proposed, statistics.verified_drafts);
  EXPECT_EQ(guessed, statistics.draft_tokens);
  EXPECT_EQ(right, statistics.accepted_tokens);
  EXPECT_LT(0, right);
  EXPECT_LT(right, guessed);
}

TEST_F(SpeculationTest, StepsWithGuessesAreTimedBesideThoseWithout) {
  Engine engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = 3});
  engine.Submit({0, 1, 2, 3, 0, 1}, Greedy(24));
  while (engine.Step()) engine.CheckInvariants();

  const Statistics statistics = engine.GetStatistics();
  int64_t verified = 0;
  int64_t decoded = 0;
  for (const DecodeSteps& of_size : statistics.verify_steps) verified += of_size.count;
  for (const DecodeSteps& of_size : statistics.decode_steps) decoded += of_size.count;
  EXPECT_EQ(verified, statistics.verified_drafts);
  EXPECT_EQ(verified + decoded + 1, statistics.steps) << "and the prompt's";
  EXPECT_GT(statistics.verify_steps[3].count, 0) << "a token and three guesses";
  EXPECT_GE(statistics.draft_steps[0].count, verified);
  EXPECT_GE(statistics.verify_steps[3].seconds, 0);
}

TEST_F(SpeculationTest, ADraftModelWithAnotherVocabularyIsRefused) {
  FakeModel draft_model({.vocab_size = 31});
  const auto open = [&](Model* model) {
    Engine(&model_, Letters(),
           {.speculative_mode = SpeculativeMode::kSmallDraft, .draft_model = model});
  };
  EXPECT_THROW(open(&draft_model), EngineError);
  EXPECT_THROW(open(nullptr), EngineError);
}

TEST_F(SpeculationTest, ANegativeLengthIsRefused) {
  EXPECT_THROW(Engine(&model_, Letters(), {.speculative_mode = kLookup, .draft_length = -1}),
               EngineError);
  EXPECT_NO_THROW(Engine(&model_, Letters(), {.speculative_mode = kOff}));
}

}  // namespace
}  // namespace aiomlc
