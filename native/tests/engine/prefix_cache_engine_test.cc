// The tokens that the prefix cache saves, and the outputs that it must not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;

SequenceOptions Seeded(uint64_t seed, int64_t max_tokens) {
  SequenceOptions options;
  options.seed = seed;
  options.max_tokens = max_tokens;
  return options;
}

class PrefixCacheEngineTest : public ::testing::Test {
 protected:
  void Open(FakeModel::Sizes sizes, int64_t max_recycling) {
    model_ = std::make_unique<FakeModel>(sizes);
    engine_ = std::make_unique<Engine>(model_.get(), Vocabulary(),
                                       EngineOptions{.max_recycling_sequences = max_recycling});
    output_.clear();
  }
  void SetUp() override { Open({}, 8); }

  void TearDown() override {
    engine_->CheckInvariants();
    engine_->Close();
    engine_->CheckInvariants();
    EXPECT_EQ(engine_->GetStatistics().free_pages, model_->num_pages());
    EXPECT_EQ(engine_->GetStatistics().num_recycling, 0);
    EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
    EXPECT_EQ(model_->num_sequences(), 0u);
    EXPECT_EQ(model_->pages_in_use(), 0);
  }

  /*! \brief Run one step, and check the invariants. */
  bool Step() {
    const bool has_work = engine_->Step();
    engine_->CheckInvariants();
    const Statistics statistics = engine_->GetStatistics();
    EXPECT_GE(statistics.free_pages, 0);
    EXPECT_EQ(static_cast<int64_t>(model_->num_sequences()),
              statistics.num_running + statistics.num_recycling + statistics.num_pinned);
    return has_work;
  }

  void Collect() {
    for (Record& record : engine_->Drain()) {
      Record& output = output_[record.sequence_id];
      output.token_ids.insert(output.token_ids.end(), record.token_ids.begin(),
                              record.token_ids.end());
      output.finish_reason = record.finish_reason;
      output.prompt_tokens = record.prompt_tokens;
      output.cached_tokens = record.cached_tokens;
    }
  }

  void StepUntilIdle() {
    while (Step()) {
    }
    Collect();
  }

  Record Generate(const Tokens& prompt, const SequenceOptions& options) {
    const int64_t id = engine_->Submit(prompt, options);
    StepUntilIdle();
    return output_.at(id);
  }

  /*! \return The tokens of the sequence in a separate engine without a prefix cache. */
  static Tokens GenerateAlone(const Tokens& prompt, SequenceOptions options) {
    options.is_pinned = false;
    FakeModel model({.num_pages = 1000, .prefill_chunk_size = 64});
    Engine engine(&model, {}, {});
    engine.Submit(prompt, options);
    while (engine.Step()) {
    }
    return engine.Drain().at(0).token_ids;
  }

  static Tokens Range(int32_t begin, int32_t end) {
    Tokens tokens;
    for (int32_t token = begin; token < end; ++token) tokens.push_back(token);
    return tokens;
  }

  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
  std::map<int64_t, Record> output_;
};

TEST_F(PrefixCacheEngineTest, ARepeatedPromptComputesOneToken) {
  const Tokens prompt = Range(0, 10);
  const Record first = Generate(prompt, Seeded(1, 5));
  const Record second = Generate(prompt, Seeded(1, 5));

  EXPECT_EQ(first.cached_tokens, 0);
  EXPECT_EQ(second.cached_tokens, 9);
  EXPECT_EQ(second.token_ids, first.token_ids);
  const Statistics statistics = engine_->GetStatistics();
  EXPECT_EQ(statistics.prefill_tokens, 11);
  EXPECT_EQ(statistics.cached_tokens, 9);
  EXPECT_EQ(statistics.prefix_cache_hits, 1);
}

TEST_F(PrefixCacheEngineTest, TheNextTurnOfAConversationComputesOnlyNewTokens) {
  Tokens conversation = Range(0, 10);
  const Record first = Generate(conversation, Seeded(1, 5));
  conversation.insert(conversation.end(), first.token_ids.begin(), first.token_ids.end());
  conversation.push_back(31);

  const Record second = Generate(conversation, Seeded(2, 5));

  EXPECT_EQ(second.cached_tokens, 14);  // All but the last completion token and the new token.
  EXPECT_EQ(second.token_ids, GenerateAlone(conversation, Seeded(2, 5)));
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 1) << "the previous turn is a prefix of this";
}

TEST_F(PrefixCacheEngineTest, RunningSequencesCanBeForked) {
  const int64_t first = engine_->Submit(Range(0, 12), Seeded(1, 30));
  Step();
  const int64_t second = engine_->Submit(Range(0, 14), Seeded(2, 10));
  StepUntilIdle();

  EXPECT_EQ(output_[second].cached_tokens, 12);
  EXPECT_EQ(output_[first].token_ids, GenerateAlone(Range(0, 12), Seeded(1, 30)));
  EXPECT_EQ(output_[second].token_ids, GenerateAlone(Range(0, 14), Seeded(2, 10)));
}

TEST_F(PrefixCacheEngineTest, SimultaneousEqualPromptsArePrefilledOnce) {
  const Tokens prompt = Range(0, 30);
  std::vector<int64_t> ids;
  for (uint64_t seed = 0; seed < 4; ++seed) ids.push_back(engine_->Submit(prompt, Seeded(seed, 8)));
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().prefill_tokens, 30 + 3);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(output_[ids[seed]].token_ids, GenerateAlone(prompt, Seeded(seed, 8)));
  }
}

TEST_F(PrefixCacheEngineTest, PromptsWithAShortCommonPrefixDoNotWaitForEachOther) {
  Tokens other = Range(0, 3);
  other.insert(other.end(), 6, 31);
  engine_->Submit(Range(0, 7), Seeded(1, 2));
  engine_->Submit(other, Seeded(2, 2));

  Step();

  EXPECT_EQ(engine_->GetStatistics().num_running, 2);
}

TEST_F(PrefixCacheEngineTest, ASequenceThatWaitsForACancelledPrefillStarts) {
  const Tokens prompt = Range(0, 30);
  const int64_t first = engine_->Submit(prompt, Seeded(1, 8));
  const int64_t second = engine_->Submit(prompt, Seeded(2, 8));
  Step();
  EXPECT_EQ(engine_->GetStatistics().num_waiting, 1);
  engine_->Cancel(first);
  StepUntilIdle();

  EXPECT_EQ(output_[second].cached_tokens, 16) << "the computed chunk";
  EXPECT_EQ(output_[second].token_ids, GenerateAlone(prompt, Seeded(2, 8)));
}

TEST_F(PrefixCacheEngineTest, AFailedSequenceIsNotCached) {
  model_->PoisonToken(13);
  Generate({13, 1, 2}, Seeded(1, 5));

  EXPECT_EQ(engine_->GetStatistics().num_recycling, 0);
}

TEST_F(PrefixCacheEngineTest, EntriesAreEvictedForSequences) {
  Open({.page_size = 4, .num_pages = 16}, -1);
  for (int32_t i = 0; i < 20; ++i) Generate({i, 1, 2, 3, 4}, Seeded(1, 4));
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 8);
  EXPECT_EQ(engine_->GetStatistics().free_pages, 16);

  const Record big = Generate(Tokens(50, 30), Seeded(1, 13));

  EXPECT_EQ(big.token_ids.size(), 13u);
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 1);
}

TEST_F(PrefixCacheEngineTest, AnEntryThatIsEvictedInTheSameStepIsForkedAtAPageBoundary) {
  Open({.page_size = 4, .num_pages = 16}, -1);
  const Tokens prompt = Range(0, 30);
  Generate(prompt, Seeded(1, 10));
  Tokens longer = prompt;
  longer.insert(longer.end(), 20, 31);

  const Record record = Generate(longer, Seeded(2, 10));

  EXPECT_EQ(record.cached_tokens, 28);
  EXPECT_EQ(record.token_ids, GenerateAlone(longer, Seeded(2, 10)));
}

TEST_F(PrefixCacheEngineTest, TheNumberOfRecyclingSequencesIsLimited) {
  Open({}, 2);
  for (int32_t i = 0; i < 5; ++i) Generate({i, 1, 2}, Seeded(1, 4));

  EXPECT_EQ(engine_->GetStatistics().num_recycling, 2);
}

SequenceOptions Pinned() {
  SequenceOptions options = Seeded(1, 1);
  options.is_pinned = true;
  return options;
}

TEST_F(PrefixCacheEngineTest, APinnedPromptIsNotEvictedByOtherPrompts) {
  Open({.page_size = 4, .num_pages = 16}, 2);
  const Tokens prompt = Range(0, 10);
  Generate(prompt, Pinned());
  EXPECT_EQ(engine_->GetStatistics().num_pinned, 1);
  EXPECT_EQ(engine_->GetStatistics().free_pages, 13);

  for (int32_t i = 0; i < 20; ++i) Generate({20 + i % 10, 1, 2, 3, 4, 5, 6, 7}, Seeded(1, 30));
  Tokens longer = prompt;
  longer.push_back(31);
  const Record record = Generate(longer, Seeded(2, 5));

  EXPECT_EQ(record.cached_tokens, 10);
  EXPECT_EQ(record.token_ids, GenerateAlone(longer, Seeded(2, 5)));
  EXPECT_EQ(engine_->GetStatistics().num_pinned, 1);
}

TEST_F(PrefixCacheEngineTest, AnUnpinnedPromptIsEvictedLikeAnyOther) {
  Open({.page_size = 4, .num_pages = 16}, 2);
  const int64_t id = Generate(Range(0, 10), Pinned()).sequence_id;

  engine_->Unpin(id);
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 1);
  EXPECT_EQ(engine_->GetStatistics().free_pages, 16);
  engine_->Unpin(id);
  engine_->Unpin(id + 100);
  for (int32_t i = 20; i < 23; ++i) Generate({i, 1, 2}, Seeded(1, 4));
  EXPECT_EQ(Generate(Range(0, 10), Seeded(1, 1)).cached_tokens, 0);
}

TEST_F(PrefixCacheEngineTest, APromptCanBePinnedTwice) {
  const Tokens prompt = Range(0, 10);
  const int64_t first = Generate(prompt, Pinned()).sequence_id;
  Generate(prompt, Pinned());

  engine_->Unpin(first);
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().num_pinned, 1);
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 0) << "the other entry has the same tokens";
}

TEST_F(PrefixCacheEngineTest, APinnedSequenceThatWasPausedIsUnpinnedByItsId) {
  SequenceOptions options = Pinned();
  options.max_tokens = 3;
  const int64_t id = engine_->Submit(Range(0, 10), options);
  Step();
  engine_->Pause(id);
  Step();
  engine_->Resume(id);
  StepUntilIdle();
  EXPECT_EQ(engine_->GetStatistics().num_pinned, 1);

  engine_->Unpin(id);
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
  EXPECT_EQ(engine_->GetStatistics().free_pages, model_->num_pages());
}

TEST_F(PrefixCacheEngineTest, ACancelledSequenceIsNotPinned) {
  const int64_t id = engine_->Submit(Range(0, 30), Pinned());
  Step();
  engine_->Cancel(id);
  engine_->Unpin(id);
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 1) << "the computed tokens are cached";
}

TEST_F(PrefixCacheEngineTest, APinnedEntryIsEvictedIfASequenceCannotRunOtherwise) {
  Open({.page_size = 4, .num_pages = 16}, 2);
  Generate(Range(0, 20), Pinned());

  const Record waiting = Generate(Tokens(50, 30), Seeded(1, 5));
  EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
  EXPECT_EQ(waiting.token_ids, GenerateAlone(Tokens(50, 30), Seeded(1, 5)));

  Generate(Range(0, 20), Pinned());
  const Record growing = Generate(Tokens(4, 29), Seeded(1, 55));
  EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
  EXPECT_EQ(growing.token_ids, GenerateAlone(Tokens(4, 29), Seeded(1, 55)));
}

TEST_F(PrefixCacheEngineTest, APinnedEntryIsNotEvictedIfSequencesCanBePreempted) {
  Open({.page_size = 4, .num_pages = 16, .max_batch_size = 4}, 2);
  Generate(Range(0, 20), Pinned());
  std::vector<int64_t> ids;
  for (int32_t i = 0; i < 3; ++i) ids.push_back(engine_->Submit({25 + i}, Seeded(1, 40)));
  StepUntilIdle();

  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(output_[ids[i]].token_ids, GenerateAlone({25 + i}, Seeded(1, 40)));
  }
  EXPECT_GT(engine_->GetStatistics().preemptions, 0);
  EXPECT_EQ(engine_->GetStatistics().num_pinned, 1);
}

TEST_F(PrefixCacheEngineTest, ResetEvictsPinnedEntries) {
  const int64_t id = Generate(Range(0, 10), Pinned()).sequence_id;
  engine_->Reset();
  StepUntilIdle();

  EXPECT_EQ(engine_->GetStatistics().num_pinned, 0);
  EXPECT_EQ(engine_->GetStatistics().free_pages, model_->num_pages());
  engine_->Unpin(id);
  StepUntilIdle();
}

TEST_F(PrefixCacheEngineTest, SubmitRejectsAPinIfTheCacheIsDisabled) {
  Open({}, 0);

  EXPECT_THROW(engine_->Submit(Range(0, 10), Pinned()), EngineError);
}

TEST_F(PrefixCacheEngineTest, AnExceptionOfTheModelRemovesAllSequencesAndEntries) {
  Generate(Range(0, 10), Seeded(1, 5));
  model_->ThrowAt(6);
  engine_->Submit(Range(0, 10), Seeded(1, 5));

  EXPECT_THROW(while (engine_->Step()){}, EngineError);

  EXPECT_EQ(model_->num_sequences(), 0u);
}

/*! \brief Generates prompts that continue earlier prompts and completions, like conversations. */
class Conversations {
 public:
  explicit Conversations(uint32_t seed) : random_(seed), histories_(1) {}

  Tokens NextPrompt() {
    Tokens prompt = histories_[random_() % histories_.size()];
    if (prompt.size() > 45 || random_() % 4 == 0) prompt.resize(prompt.size() / 2);
    for (size_t count = 1 + random_() % 12; count > 0; --count) {
      prompt.push_back(static_cast<int32_t>(random_() % 4));
    }
    return prompt;
  }
  void Add(Tokens history) {
    if (histories_.size() > 12) histories_.erase(histories_.begin() + 1);
    histories_.push_back(std::move(history));
  }

 private:
  std::mt19937 random_;
  std::vector<Tokens> histories_;
};

TEST_F(PrefixCacheEngineTest, UnderRandomLoadNothingLeaksAndOutputsDoNotDependOnTheCache) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    const int64_t max_recycling = static_cast<int64_t>((seed + 2) % 5) - 1;
    Open({.page_size = 4,
          .num_pages = static_cast<int64_t>(17 + random() % 40),
          .max_batch_size = static_cast<int64_t>(1 + random() % 8),
          .prefill_chunk_size = static_cast<int64_t>(1 + random() % 20)},
         max_recycling);
    Conversations conversations(seed);
    std::map<int64_t, std::pair<Tokens, SequenceOptions>> requests;
    for (int step = 0; step < 1500; ++step) {
      if (random() % 4 == 0) {
        const Tokens prompt = conversations.NextPrompt();
        SequenceOptions options = Seeded(random(), 1 + random() % 30);
        options.is_pinned = max_recycling != 0 && random() % 8 == 0;
        requests[engine_->Submit(prompt, options)] = {prompt, options};
      }
      if (random() % 12 == 0 && !requests.empty()) {
        engine_->Cancel(std::next(requests.begin(), random() % requests.size())->first);
      }
      if (random() % 16 == 0 && !requests.empty()) {
        engine_->Unpin(std::next(requests.begin(), random() % requests.size())->first);
      }
      if (random() % 5 != 0) Step();
      Collect();
      const auto any = requests.empty() ? 0 : random() % requests.size();
      if (requests.empty()) continue;
      const auto& [id, request] = *std::next(requests.begin(), any);
      Tokens history = request.first;
      history.insert(history.end(), output_[id].token_ids.begin(), output_[id].token_ids.end());
      conversations.Add(std::move(history));
    }
    StepUntilIdle();

    for (const auto& [id, request] : requests) {
      const Tokens alone = GenerateAlone(request.first, request.second);
      const Record& record = output_[id];
      ASSERT_NE(record.finish_reason, FinishReason::kNone);
      ASSERT_LE(record.token_ids.size(), alone.size());
      ASSERT_TRUE(std::equal(record.token_ids.begin(), record.token_ids.end(), alone.begin()));
      if (record.finish_reason == FinishReason::kLength) {
        ASSERT_EQ(record.token_ids.size(), alone.size());
      }
    }
    for (const auto& [id, request] : requests) engine_->Unpin(id);
    StepUntilIdle();
    const Statistics statistics = engine_->GetStatistics();
    EXPECT_EQ(statistics.free_pages, model_->num_pages());
    EXPECT_EQ(statistics.prefix_cache_hits > 100, max_recycling != 0) << seed;
    engine_->Close();
    ASSERT_EQ(model_->pages_in_use(), 0);
  }
}

}  // namespace
}  // namespace aiomlc
