#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <limits>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>

#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/*! \brief Token i is the letter of its number, but for those that a test needs otherwise. */
Vocabulary Letters() {
  Vocabulary vocabulary;
  for (int i = 0; i < 26; ++i) vocabulary.push_back(std::string(1, static_cast<char>('a' + i)));
  vocabulary.push_back("\xc3");  // 26: the first half of a character ...
  vocabulary.push_back("\xa9");  // 27: ... and its second half.
  vocabulary.push_back("");      // 28: a special token.
  vocabulary.push_back("ST");    // 29
  vocabulary.push_back("OP");    // 30
  return vocabulary;             // 31 is padding of the model.
}

/*! \brief One engine over a fake model; checks after every test that nothing was lost. */
class EngineTest : public ::testing::Test {
 protected:
  void Open(FakeModel::Sizes sizes, EngineOptions options = {}) {
    model_ = std::make_unique<FakeModel>(sizes);
    engine_ = std::make_unique<Engine>(model_.get(), Letters(), options);
  }
  void SetUp() override { Open({}); }

  void TearDown() override {
    engine_->CheckInvariants();
    CloseIgnoringTheModel();
    engine_->CheckInvariants();
    Collect();
    for (int64_t id : submitted_) EXPECT_EQ(num_finals_[id], 1) << "sequence " << id;
    EXPECT_EQ(output_.size(), submitted_.size());
    const Statistics statistics = engine_->GetStatistics();
    EXPECT_EQ(statistics.free_pages, statistics.total_pages);
    EXPECT_EQ(statistics.num_running + statistics.num_waiting, 0);
    EXPECT_EQ(model_->num_sequences(), 0u);
  }

  void CloseIgnoringTheModel() {
    try {
      engine_->Close();
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kEngineDead);
    }
  }

  int64_t Submit(std::vector<int32_t> prompt, SequenceOptions options) {
    submitted_.push_back(engine_->Submit(std::move(prompt), std::move(options)));
    return submitted_.back();
  }

  static SequenceOptions Greedy(std::optional<int64_t> max_tokens = std::nullopt) {
    SequenceOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = max_tokens;
    return options;
  }

  static SequenceOptions Seeded(uint64_t seed, int64_t max_tokens) {
    SequenceOptions options;
    options.seed = seed;
    options.max_tokens = max_tokens;
    return options;
  }

  /*! \brief Add what was drained to each sequence's output. */
  void Collect() {
    for (Record& record : engine_->Drain()) {
      Record& output = output_[record.sequence_id];
      EXPECT_EQ(output.finish_reason, FinishReason::kNone) << "a record after the last one";
      num_finals_[record.sequence_id] += record.finish_reason != FinishReason::kNone;
      output.text += record.text;
      output.token_ids.insert(output.token_ids.end(), record.token_ids.begin(),
                              record.token_ids.end());
      output.finish_reason = record.finish_reason;
      output.error = record.error;
      output.prompt_tokens = record.prompt_tokens;
      output.completion_tokens = record.completion_tokens;
    }
  }

  void StepUntilIdle() {
    for (int step = 0; engine_->Step(); ++step) {
      ASSERT_LT(step, 100000) << "the engine does not come to an end";
      engine_->CheckInvariants();
    }
    Collect();
  }

  /*! \brief The output of one sequence that has an engine to itself. */
  Record Alone(const std::vector<int32_t>& prompt, const SequenceOptions& options) {
    FakeModel model({.num_pages = 1000, .prefill_chunk_size = 64});
    Engine engine(&model, Letters(), {});
    engine.Submit(prompt, options);
    while (engine.Step()) {
    }
    return engine.Drain().at(0);
  }

  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
  std::vector<int64_t> submitted_;
  std::map<int64_t, Record> output_;
  std::map<int64_t, int> num_finals_;
};

// ---- Ends ----

TEST_F(EngineTest, AStopTokenEndsTheSequenceAndIsCountedButNotReported) {
  model_->ScriptTokens(2, {7, 8, 28});
  SequenceOptions options = Greedy();
  options.stop_token_ids = {5, 28};
  const int64_t id = Submit({1, 2}, options);

  StepUntilIdle();

  EXPECT_EQ(output_[id].text, "hi");
  EXPECT_THAT(output_[id].token_ids, ElementsAre(7, 8));
  EXPECT_EQ(output_[id].finish_reason, FinishReason::kStop);
  EXPECT_EQ(output_[id].prompt_tokens, 2);
  EXPECT_EQ(output_[id].completion_tokens, 3);
}

TEST_F(EngineTest, AStopStringAcrossTokensIsCutOffWithWhatFollows) {
  model_->ScriptTokens(1, {0, 29, 30, 1});
  SequenceOptions options = Greedy();
  options.stop = {"TO", "XYZ"};
  const int64_t id = Submit({1}, options);

  StepUntilIdle();

  EXPECT_EQ(output_[id].text, "aS");
  EXPECT_THAT(output_[id].token_ids, ElementsAre(0, 29, 30));
  EXPECT_EQ(output_[id].finish_reason, FinishReason::kStop);
  EXPECT_EQ(output_[id].completion_tokens, 3);
}

TEST_F(EngineTest, NoCharacterOfAPossibleStopStringLeaksBeforeItIsDecided) {
  model_->ScriptTokens(1, {29, 30, 1, 2, 3});
  SequenceOptions options = Greedy(5);
  options.stop = {"STOP!"};
  const int64_t id = Submit({1}, options);

  engine_->Step();
  engine_->Step();
  Collect();
  EXPECT_EQ(output_[id].text, "");
  EXPECT_EQ(output_[id].completion_tokens, 2);
  StepUntilIdle();

  EXPECT_EQ(output_[id].text, "STOPbcd");
}

TEST_F(EngineTest, WhatWasHeldBackComesWithTheEnd) {
  model_->ScriptTokens(1, {0, 29, 26, 28});
  SequenceOptions by_length = Greedy(2);
  by_length.stop = {"STOP"};
  SequenceOptions by_token = Greedy();
  by_token.stop_token_ids = {28};
  const int64_t first = Submit({1}, by_length);
  const int64_t second = Submit({1}, by_token);

  StepUntilIdle();

  EXPECT_EQ(output_[first].text, "aST");
  EXPECT_EQ(output_[first].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[second].text, "aST\xef\xbf\xbd");
  EXPECT_EQ(output_[second].finish_reason, FinishReason::kStop);
}

TEST_F(EngineTest, ACharacterOfTwoTokensIsReportedWhole) {
  model_->ScriptTokens(1, {26, 27, 0});
  const int64_t id = Submit({1}, Greedy(3));

  engine_->Step();
  Collect();
  EXPECT_EQ(output_[id].text, "");
  EXPECT_THAT(output_[id].token_ids, ElementsAre(26));
  StepUntilIdle();

  EXPECT_EQ(output_[id].text,
            "\xc3\xa9"
            "a");
}

TEST_F(EngineTest, MaxTokensEndsTheSequenceWithLength) {
  const int64_t id = Submit({1, 2, 3}, Greedy(4));

  StepUntilIdle();

  EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[id].completion_tokens, 4);
  EXPECT_EQ(output_[id].token_ids.size(), 4u);
}

TEST_F(EngineTest, AFullContextWindowEndsTheSequenceWithLength) {
  Open({.context_window = 10});
  const int64_t without_limit = Submit({1, 2, 3}, Greedy());
  const int64_t with_limit = Submit(std::vector<int32_t>(9, 1), Greedy(100));

  StepUntilIdle();

  EXPECT_EQ(output_[without_limit].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[without_limit].completion_tokens, 7);
  EXPECT_EQ(output_[with_limit].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[with_limit].completion_tokens, 1);
}

TEST_F(EngineTest, ACacheSmallerThanTheContextWindowIsTheLimit) {
  Open({.context_window = 64, .page_size = 4, .num_pages = 3});
  const int64_t id = Submit({1, 2, 3}, Greedy());

  StepUntilIdle();

  EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
  EXPECT_EQ(output_[id].completion_tokens, 9);
}

// ---- Submission ----

TEST_F(EngineTest, WhatCanNeverBeServedIsRefusedAtOnce) {
  const auto kind = [&](std::vector<int32_t> prompt, const SequenceOptions& options) {
    try {
      engine_->Submit(std::move(prompt), options);
    } catch (const EngineError& error) {
      return std::string(ErrorKindName(error.kind()));
    }
    return std::string("none");
  };
  const auto with = [](auto change) {
    SequenceOptions options;
    change(options);
    return options;
  };

  EXPECT_EQ(kind({}, {}), "BadRequestError");
  EXPECT_EQ(kind({32}, {}), "BadRequestError");
  EXPECT_EQ(kind({-1}, {}), "BadRequestError");
  EXPECT_EQ(kind(std::vector<int32_t>(64, 1), {}), "PromptTooLongError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.max_tokens = 0; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.temperature = -0.1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) {
                   o.sampling.temperature = std::numeric_limits<double>::quiet_NaN();
                 })),
            "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.top_p = -0.1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.top_p = 1.1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.top_k = -1; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.sampling.min_p = 1.5; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.stop = {"a", ""}; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.stop = {"\xff"}; })), "BadRequestError");
  EXPECT_EQ(kind({1}, with([](auto& o) { o.stop_token_ids = {-1}; })), "BadRequestError");
}

TEST_F(EngineTest, APromptThatIsTooLongIsRefusedWithBothCounts) {
  Open({.context_window = 64, .page_size = 4, .num_pages = 3});
  try {
    engine_->Submit(std::vector<int32_t>(12, 1), {});
    FAIL() << "the prompt was accepted";
  } catch (const PromptTooLongError& error) {
    EXPECT_EQ(error.prompt_tokens(), 12);
    EXPECT_EQ(error.context_window(), 12);
    EXPECT_STREQ(error.what(), "prompt has 12 tokens, context window is 12");
  }
}

TEST_F(EngineTest, ABadEngineOptionIsRefused) {
  EXPECT_THROW(Engine(model_.get(), Letters(), {.step_token_budget = 0}), EngineError);
}

// ---- Batching ----

TEST_F(EngineTest, ASequenceGivesTheSameTokensInAnyBatchAndInAnyChunks) {
  Open({.num_pages = 200, .max_batch_size = 6, .prefill_chunk_size = 7});
  std::mt19937 random(11);
  std::map<int64_t, std::pair<std::vector<int32_t>, SequenceOptions>> requests;
  for (int i = 0; i < 30; ++i) {
    std::vector<int32_t> prompt(1 + random() % 30);
    for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 32);
    SequenceOptions options = Seeded(random(), 1 + random() % 20);
    if (i % 3 == 0) options.sampling.temperature = 0;
    if (i % 3 == 1) options.sampling.top_p = 0.8;
    requests[Submit(prompt, options)] = {prompt, options};
    for (size_t steps = random() % 4; steps > 0; --steps) engine_->Step();
  }

  StepUntilIdle();

  for (const auto& [id, request] : requests) {
    const Record alone = Alone(request.first, request.second);
    EXPECT_EQ(output_[id].token_ids, alone.token_ids) << id;
    EXPECT_EQ(output_[id].text, alone.text) << id;
  }
}

TEST_F(EngineTest, PreemptionChangesNothingThatASequenceSays) {
  Open({.page_size = 4, .num_pages = 12, .prefill_chunk_size = 5});
  std::map<int64_t, std::pair<std::vector<int32_t>, SequenceOptions>> requests;
  for (int32_t i = 0; i < 4; ++i) {
    const std::vector<int32_t> prompt = {i, 9};
    const SequenceOptions options = Seeded(static_cast<uint64_t>(i), 35);
    requests[Submit(prompt, options)] = {prompt, options};
  }

  StepUntilIdle();

  const Statistics statistics = engine_->GetStatistics();
  EXPECT_GT(statistics.prefill_tokens, statistics.prompt_tokens) << "nothing was preempted";
  for (const auto& [id, request] : requests) {
    const Record alone = Alone(request.first, request.second);
    EXPECT_EQ(output_[id].token_ids, alone.token_ids) << id;
    EXPECT_EQ(output_[id].text, alone.text) << id;
    EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
    EXPECT_EQ(output_[id].completion_tokens, 35);
  }
}

TEST_F(EngineTest, ALongPromptDoesNotStallARunningSequence) {
  Open({.prefill_chunk_size = 4});
  const int64_t running = Submit({1}, Greedy(20));
  engine_->Step();
  Submit(std::vector<int32_t>(30, 2), Greedy(1));

  for (int64_t step = 2; step <= 8; ++step) {
    engine_->Step();
    Collect();
    EXPECT_EQ(output_[running].completion_tokens, step);
  }
}

TEST_F(EngineTest, TheStepTokenBudgetBoundsEveryForwardPass) {
  Open({.prefill_chunk_size = 64}, {.step_token_budget = 3});
  Submit(std::vector<int32_t>(20, 2), Greedy(3));
  Submit(std::vector<int32_t>(20, 3), Greedy(3));

  StepUntilIdle();

  for (const ForwardInput& input : model_->forwards()) EXPECT_LE(input.token_ids.size(), 3u);
}

TEST_F(EngineTest, ARequestThatDoesNotFitIsPassedBySmallerOnesButNotForEver) {
  Open({.page_size = 4, .num_pages = 16});
  Submit({1}, Greedy(50));
  engine_->Step();
  const int64_t big = Submit(std::vector<int32_t>(60, 2), Greedy(1));
  std::vector<int64_t> small;
  for (int i = 0; i < 40; ++i) small.push_back(Submit({3}, Greedy(2)));

  while (output_[big].finish_reason == FinishReason::kNone) {
    ASSERT_TRUE(engine_->Step());
    Collect();
  }

  int finished_before = 0;
  for (int64_t id : small) {
    finished_before += output_.contains(id) && output_[id].finish_reason != FinishReason::kNone;
  }
  EXPECT_EQ(finished_before, 16);
  StepUntilIdle();
}

// ---- Cancelling and failing ----

TEST_F(EngineTest, CancellingFreesThePagesAndDisturbsNobody) {
  const int64_t survivor = Submit({1, 2}, Seeded(1, 12));
  const int64_t running = Submit({3, 4}, Seeded(2, 50));
  engine_->Step();
  const int64_t waiting = Submit({5}, Seeded(3, 50));
  engine_->Cancel(running);
  engine_->Cancel(waiting);
  engine_->Cancel(12345);

  engine_->Step();

  EXPECT_EQ(model_->num_sequences(), 1u);
  StepUntilIdle();
  EXPECT_EQ(output_[running].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(output_[running].completion_tokens, 1);
  EXPECT_EQ(output_[waiting].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(output_[survivor].token_ids, Alone({1, 2}, Seeded(1, 12)).token_ids);
}

TEST_F(EngineTest, CancellingTwiceOrTooLateDoesNothing) {
  const int64_t id = Submit({1}, Greedy(1));
  StepUntilIdle();

  engine_->Cancel(id);
  engine_->Cancel(id);
  StepUntilIdle();

  EXPECT_EQ(output_[id].finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, ARowWithoutNumbersFailsAlone) {
  model_->PoisonToken(13);
  const int64_t good = Submit({1}, Seeded(1, 5));
  const int64_t bad = Submit({13}, Seeded(2, 5));
  const int64_t also_good = Submit({2}, Seeded(3, 5));

  StepUntilIdle();

  EXPECT_EQ(output_[bad].finish_reason, FinishReason::kError);
  EXPECT_THAT(output_[bad].error, HasSubstr("not finite"));
  EXPECT_EQ(output_[bad].completion_tokens, 0);
  EXPECT_EQ(output_[good].token_ids, Alone({1}, Seeded(1, 5)).token_ids);
  EXPECT_EQ(output_[also_good].token_ids, Alone({2}, Seeded(3, 5)).token_ids);
}

TEST_F(EngineTest, AModelThatThrowsEndsEverySequenceAndTheEngine) {
  model_->ThrowAt(2);
  const int64_t first = Submit({1}, Greedy());
  const int64_t second = Submit({2}, Greedy());
  engine_->Step();
  engine_->Step();
  const int64_t waiting = Submit({3}, Greedy());
  EXPECT_EQ(engine_->Failure(), "");

  EXPECT_THROW(engine_->Step(), EngineError);

  Collect();
  for (int64_t id : {first, second, waiting}) {
    EXPECT_EQ(output_[id].finish_reason, FinishReason::kError);
    EXPECT_EQ(output_[id].error, "the model failed: forward failed");
  }
  EXPECT_EQ(engine_->Failure(), "the model failed: forward failed");
  const auto is_dead = [](const EngineError& error) {
    return error.kind() == ErrorKind::kEngineDead &&
           std::string(error.what()) == "the model failed: forward failed";
  };
  EXPECT_THAT([&] { engine_->Step(); }, ::testing::Throws<EngineError>(::testing::Truly(is_dead)));
  EXPECT_THAT([&] { engine_->Run(); }, ::testing::Throws<EngineError>(::testing::Truly(is_dead)));
  EXPECT_THAT([&] { engine_->Submit({1}, Greedy()); },
              ::testing::Throws<EngineError>(::testing::Truly(is_dead)));
}

TEST_F(EngineTest, WhatIsSubmittedWhileTheModelFailsEndsToo) {
  model_->ThrowAt(0);
  model_->OnForward([&] { Submit({2}, Greedy()); });
  Submit({1}, Greedy());

  EXPECT_THROW(engine_->Step(), EngineError);

  Collect();
  ASSERT_EQ(submitted_.size(), 2u);
  EXPECT_EQ(output_[submitted_[1]].finish_reason, FinishReason::kError);
}

TEST_F(EngineTest, WhatIsCancelledDuringAPrefillEndsAtTheNextChunk) {
  Open({.prefill_chunk_size = 4});
  const int64_t id = Submit(std::vector<int32_t>(40, 1), Greedy());
  model_->OnForward([&] {
    if (model_->forwards().size() == 1) engine_->Cancel(id);
  });

  StepUntilIdle();

  EXPECT_EQ(model_->forwards().size(), 2u);
  EXPECT_EQ(output_[id].finish_reason, FinishReason::kAbort);
}

TEST_F(EngineTest, AModelThatCannotBeTakenDownStillEndsEverySequence) {
  model_->ThrowOnRemove();
  Submit({1}, Greedy());
  Submit({2}, Greedy());
  engine_->Step();

  EXPECT_THAT([&] { engine_->Close(); },
              ::testing::ThrowsMessage<EngineError>(HasSubstr("cache error")));
}

// ---- Life ----

TEST_F(EngineTest, RunReturnsWhenItWasStoppedBefore) {
  engine_->Stop();
  engine_->Run();

  EXPECT_EQ(engine_->GetStatistics().steps, 0);
}

TEST_F(EngineTest, ClosingEndsEverySequenceAndRefusesNewOnes) {
  const int64_t running = Submit({1}, Greedy());
  engine_->Step();
  const int64_t never_seen = Submit({2}, Greedy());

  engine_->Close();
  engine_->Close();
  engine_->Run();

  Collect();
  EXPECT_EQ(output_[running].finish_reason, FinishReason::kAbort);
  EXPECT_EQ(output_[never_seen].finish_reason, FinishReason::kAbort);
  EXPECT_FALSE(engine_->Step());
  EXPECT_THAT([&] { engine_->Submit({1}, Greedy()); },
              ::testing::Throws<EngineError>(
                  ::testing::Property(&EngineError::kind, ErrorKind::kEngineClosed)));
}

TEST_F(EngineTest, StepTellsWhetherThereIsWorkLeft) {
  EXPECT_FALSE(engine_->Step());
  Submit({1}, Greedy(2));

  EXPECT_TRUE(engine_->Step());
  EXPECT_FALSE(engine_->Step());
}

TEST_F(EngineTest, TheWakeDescriptorIsReadableWhileThereAreRecords) {
  const auto is_readable = [&] {
    pollfd entry{engine_->wake_fd(), POLLIN, 0};
    return poll(&entry, 1, 0) == 1;
  };
  Submit({1}, Greedy(3));
  EXPECT_FALSE(is_readable());

  engine_->Step();
  engine_->Step();
  EXPECT_TRUE(is_readable());

  Collect();
  EXPECT_FALSE(is_readable());
}

TEST_F(EngineTest, StatisticsCountTokensStepsAndPages) {
  Open({.page_size = 4, .num_pages = 64, .prefill_chunk_size = 4});
  Submit({1, 2, 3, 4, 5, 6}, Greedy(3));
  Submit({1}, Greedy(1));
  EXPECT_EQ(engine_->GetStatistics().num_waiting, 2);

  engine_->Step();
  const Statistics during = engine_->GetStatistics();
  StepUntilIdle();
  const Statistics after = engine_->GetStatistics();

  EXPECT_EQ(during.num_running, 2);
  EXPECT_EQ(during.num_waiting, 0);
  EXPECT_EQ(during.free_pages, 61);
  EXPECT_EQ(after.total_pages, 64);
  EXPECT_EQ(after.free_pages, 64);
  EXPECT_EQ(after.prompt_tokens, 7);
  EXPECT_EQ(after.completion_tokens, 4);
  EXPECT_EQ(after.prefill_tokens, 7);
  EXPECT_EQ(after.decode_tokens, 2);
  EXPECT_EQ(after.steps, 4);
  EXPECT_GT(after.prefill_seconds, 0);
  EXPECT_GT(after.decode_seconds, 0);
}

TEST_F(EngineTest, WithoutASeedTwoSequencesDiffer) {
  SequenceOptions options;
  options.max_tokens = 40;
  const int64_t first = Submit({1}, options);
  const int64_t second = Submit({1}, options);

  StepUntilIdle();

  EXPECT_NE(output_[first].token_ids, output_[second].token_ids);
}

// ---- Everything at once ----

TEST_F(EngineTest, UnderRandomLoadEverySequenceEndsOnceAndAllPagesComeBack) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    std::mt19937 random(seed);
    Open({.page_size = 4,
          .num_pages = 17,
          .max_batch_size = static_cast<int64_t>(1 + random() % 8),
          .prefill_chunk_size = static_cast<int64_t>(1 + random() % 20)});
    submitted_.clear();
    output_.clear();
    num_finals_.clear();
    for (int step = 0; step < 1500; ++step) {
      if (random() % 4 == 0) {
        std::vector<int32_t> prompt(1 + random() % (random() % 5 == 0 ? 60 : 12));
        for (int32_t& token : prompt) token = static_cast<int32_t>(random() % 32);
        SequenceOptions options = Seeded(random(), 1 + random() % 50);
        options.stop = {"ab", "q"};
        options.stop_token_ids = {28};
        Submit(prompt, options);
      }
      if (random() % 8 == 0 && !submitted_.empty()) {
        engine_->Cancel(submitted_[random() % submitted_.size()]);
      }
      if (random() % 5 != 0) engine_->Step();
      if (random() % 3 == 0) Collect();
      engine_->CheckInvariants();
      ASSERT_LE(model_->pages_in_use(), 17 - engine_->GetStatistics().free_pages);
    }
    StepUntilIdle();
    ASSERT_GT(submitted_.size(), 300u);
    for (int64_t id : submitted_) ASSERT_EQ(num_finals_[id], 1) << "sequence " << id;
    ASSERT_EQ(model_->num_sequences(), 0u);
    ASSERT_EQ(engine_->GetStatistics().free_pages, 17);
  }
}

}  // namespace
}  // namespace aiomlc
