// Draft tokens change the number of steps, but not the outputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/letter_vocabulary.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;

/*! \return Letters, the halves of a two-byte character, and two tokens of two letters. */
Vocabulary Letters() { return LetterVocabulary(24, {"\xc3", "\xa9", "ab", "ba"}); }

/*! \brief Compute logits that depend mostly on the last two tokens, so that the output repeats. */
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
  int64_t step;  //!< The step before which the job is submitted.
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

/*! \return A grammar that repeats a few sets of allowed tokens; some sets have only one token. */
std::shared_ptr<const GrammarMatcher> RandomGrammar(std::mt19937* random) {
  FakeGrammar::Positions sets(1 + (*random)() % 4);
  for (std::set<int32_t>& set : sets) {
    const size_t count = 1 + (*random)() % 3;
    while (set.size() < count) set.insert(static_cast<int32_t>((*random)() % 28));
  }
  FakeGrammar::Positions positions(1 + (*random)() % 40);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = sets[i % sets.size()];
  FakeGrammar grammar(std::move(positions));
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
    const size_t num_new = 1 + (*random)() % 12;
    for (size_t j = 0; j < num_new && job.prompt.size() < 30; ++j) {
      job.prompt.push_back(static_cast<int32_t>((*random)() % 28));
    }
    step += static_cast<int64_t>((*random)() % 6);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

struct Outcome {
  /*! \brief The records by job index, because ids depend on pauses. */
  std::map<int64_t, Record> records;
  Statistics statistics;
};

/*! \brief Run all jobs, and pause and resume some of them; check the invariants in each step. */
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
    // Pause one sequence after the other for some steps.
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

/*! \brief Compute the logits of the draft model, which often agree with RepetitiveLogits. */
void CoarseLogits(const Tokens& tokens, std::vector<float>* logits) {
  const auto last = tokens.end() - std::min<int64_t>(2, static_cast<int64_t>(tokens.size()));
  FakeModel::HashedLogits(Tokens(last, tokens.end()), logits);
}

TEST(SpeculationFaults, OutputsDoNotDependOnDraftFailures) {
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
        draft_model.ThrowOnRewind();
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

class SpeculationModes : public ::testing::TestWithParam<SpeculativeMode> {};

TEST_P(SpeculationModes, OutputsDoNotDependOnDraftTokens) {
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
  EXPECT_GT(draft_tokens - accepted_tokens, 500) << "too few draft tokens were rejected";
}

INSTANTIATE_TEST_SUITE_P(Modes, SpeculationModes,
                         ::testing::Values(SpeculativeMode::kPromptLookup,
                                           SpeculativeMode::kSmallDraft));

}  // namespace
}  // namespace aiomlc
