/*!
 * \file tests/engine/engine_fixture.h
 * \brief A test fixture with an engine and a fake model.
 */
#ifndef AIOMLC_TESTS_ENGINE_ENGINE_FIXTURE_H_
#define AIOMLC_TESTS_ENGINE_ENGINE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/letter_vocabulary.h"

namespace aiomlc {

/*!
 * \brief An engine with a fake model. Checks after every test that each sequence ended once and
 * that all pages are free.
 */
class EngineTest : public ::testing::Test {
 protected:
  /*!
   * \brief The letters (0 to 25); the halves of a two-byte character (26, 27); a special token
   * without text (28); "ST" (29) and "OP" (30). Token 31 is padding of the model's vocabulary.
   */
  static Vocabulary Letters() { return LetterVocabulary(26, {"\xc3", "\xa9", "", "ST", "OP"}); }

  void Open(FakeModel::Sizes sizes, EngineOptions options = {}) {
    engine_.reset();  // It uses the model.
    model_ = std::make_unique<FakeModel>(sizes);
    engine_ = std::make_unique<Engine>(model_.get(), Letters(), options);
  }
  void SetUp() override { Open({}); }

  void TearDown() override {
    engine_->CheckInvariants();
    CloseIgnoringModelErrors();
    engine_->CheckInvariants();
    Collect();
    for (int64_t id : submitted_) EXPECT_EQ(num_finals_[id], 1) << "sequence " << id;
    EXPECT_EQ(output_.size(), submitted_.size());
    const Statistics statistics = engine_->GetStatistics();
    EXPECT_EQ(statistics.free_pages, statistics.total_pages);
    EXPECT_EQ(statistics.num_running + statistics.num_waiting, 0);
    EXPECT_EQ(model_->num_sequences(), 0u);
  }

  void CloseIgnoringModelErrors() {
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

  /*! \brief Drain the records, and merge them into the outputs of their sequences. */
  void Collect() {
    for (Record& record : engine_->Drain()) {
      Record& output = output_[record.sequence_id];
      EXPECT_EQ(output.finish_reason, FinishReason::kNone) << "a record after the final record";
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
      ASSERT_LT(step, 100000) << "the engine never becomes idle";
      engine_->CheckInvariants();
    }
    Collect();
  }

  /*! \return The output of the sequence in a separate engine without other sequences. */
  Record GenerateAlone(const std::vector<int32_t>& prompt, const SequenceOptions& options) {
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

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_ENGINE_ENGINE_FIXTURE_H_
