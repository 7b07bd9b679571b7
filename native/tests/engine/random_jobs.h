/*!
 * \file tests/engine/random_jobs.h
 * \brief Random requests, and their outputs under different ways to serve them.
 */
#ifndef AIOMLC_TESTS_ENGINE_RANDOM_JOBS_H_
#define AIOMLC_TESTS_ENGINE_RANDOM_JOBS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_grammar.h"
#include "tests/doubles/letter_vocabulary.h"

namespace aiomlc {

/*! \return Letters, the halves of a two-byte character, and two tokens of two letters. */
inline Vocabulary Letters() { return LetterVocabulary(24, {"\xc3", "\xa9", "ab", "ba"}); }

struct Job {
  std::vector<int32_t> prompt;
  SequenceOptions options;
  int64_t step;  //!< The step before which the job is submitted.
};

inline SequenceOptions RandomOptions(std::mt19937* random) {
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
inline std::shared_ptr<const GrammarMatcher> RandomGrammar(std::mt19937* random) {
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

inline std::vector<Job> RandomJobs(std::mt19937* random) {
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

/*!
 * \brief Run all jobs, and pause and resume some of them; check the invariants in each step.
 * \param model A double that counts what is in use.
 */
template <typename CountingModel>
Outcome Serve(const std::vector<Job>& jobs, CountingModel* model, const EngineOptions& options) {
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
    const Resources in_use = model->in_use();
    EXPECT_TRUE(in_use.FitsIn(model->total()));
    EXPECT_EQ(static_cast<int64_t>(model->num_sequences()), now.num_running + now.num_recycling);
    if (options.max_recycling_sequences == 0) {
      EXPECT_TRUE(in_use.FitsIn(
          {.pages = now.total_pages - now.free_pages, .slots = now.total_slots - now.free_slots}));
    }
  }
  for (Record& record : engine.Drain()) {
    const auto id = std::find(ids.begin(), ids.end(), record.sequence_id);
    outcome.records[id - ids.begin()] = record;
  }
  outcome.statistics = engine.GetStatistics();
  engine.Close();
  EXPECT_TRUE(model->in_use().is_zero());
  return outcome;
}

inline void ExpectSame(const Outcome& with, const Outcome& without) {
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

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_ENGINE_RANDOM_JOBS_H_
