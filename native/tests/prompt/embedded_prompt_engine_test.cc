// Prompts with embedded pieces in the engine: what the model gets, and what is shared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/engine/engine_fixture.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;
using ::testing::HasSubstr;

constexpr int64_t kHidden = 3;

/*! \brief An image: rows and a digest that depend on its number. */
PromptPiece Image(int64_t begin, int64_t num_positions, uint8_t number) {
  std::mt19937 random(number);
  const auto rows = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < num_positions * kHidden; ++i) {
    rows->push_back(static_cast<float>(random() % 1000));
  }
  PromptPiece piece{{begin, num_positions, {}}, {rows, rows->data()}, kHidden};
  piece.key.digest.fill(number);
  return piece;
}

class EmbeddedPromptTest : public EngineTest {
 protected:
  static FakeModel::Sizes Sizes(int64_t num_pages = 64, int64_t prefill_chunk_size = 16) {
    return {.num_pages = num_pages,
            .prefill_chunk_size = prefill_chunk_size,
            .pieces = {.row_size = kHidden}};
  }
  void SetUp() override { Open(Sizes(), {.max_recycling_sequences = 16}); }

  int64_t SubmitPrompt(const Prompt& prompt, SequenceOptions options) {
    submitted_.push_back(engine_->Submit(prompt, std::move(options)));
    return submitted_.back();
  }
  Tokens Generate(const Prompt& prompt, int64_t max_tokens) {
    const int64_t id = SubmitPrompt(prompt, Greedy(max_tokens));
    StepUntilIdle();
    return output_[id].token_ids;
  }
  /*! \return The completion of a separate engine that computes the prompt in one pass. */
  static Tokens GenerateAlone(const Prompt& prompt, int64_t max_tokens) {
    FakeModel model(Sizes(1000, 64));
    Engine engine(&model, Letters(), {});
    engine.Submit(prompt, Greedy(max_tokens));
    while (engine.Step()) {
    }
    return engine.Drain().at(0).token_ids;
  }
  int64_t cached_tokens() { return engine_->GetStatistics().cached_tokens; }
};

TEST_F(EmbeddedPromptTest, TheModelGetsTheRowsOfEachPass) {
  Open(Sizes(64, 4));
  const Prompt prompt({1, 0, 0, 0, 0, 2, 0, 3}, {Image(1, 4, 7), Image(6, 1, 8)});
  SubmitPrompt(prompt, Greedy(1));
  engine_->Step();
  engine_->Step();
  Collect();

  ASSERT_EQ(model_->forwards().size(), 2u);
  const ForwardInput& first = model_->forwards()[0];
  ASSERT_EQ(first.embedded.size(), 1u);
  EXPECT_EQ(first.embedded[0].begin, 1);
  EXPECT_EQ(first.embedded[0].count, 3);
  EXPECT_EQ(first.embedded[0].data, prompt.pieces[0].rows.get());
  const ForwardInput& second = model_->forwards()[1];
  ASSERT_EQ(second.embedded.size(), 2u);
  EXPECT_EQ(second.embedded[0].begin, 0);
  EXPECT_EQ(second.embedded[0].count, 1);
  EXPECT_EQ(second.embedded[0].data, prompt.pieces[0].rows.get() + 3 * kHidden);
  EXPECT_EQ(second.embedded[1].begin, 2);
  EXPECT_EQ(second.embedded[1].data, prompt.pieces[1].rows.get());
}

TEST_F(EmbeddedPromptTest, ImagesWithTheSamePlaceholdersAreNotShared) {
  const Tokens tokens = {1, 2, 0, 0, 0, 0, 3, 4};
  const Prompt cat(tokens, {Image(2, 4, 7)}), dog(tokens, {Image(2, 4, 8)}), text(tokens);
  Generate(cat, 4);
  EXPECT_EQ(Generate(dog, 4), GenerateAlone(dog, 4));
  EXPECT_EQ(cached_tokens(), 2);
  EXPECT_EQ(Generate(text, 4), GenerateAlone(text, 4));
  EXPECT_EQ(cached_tokens(), 4);
  EXPECT_NE(output_[submitted_[0]].token_ids, output_[submitted_[1]].token_ids);

  EXPECT_EQ(Generate(cat, 4), GenerateAlone(cat, 4));
  EXPECT_EQ(cached_tokens(), 4 + 7);
}

TEST_F(EmbeddedPromptTest, SimilarPromptsInOneStepDoNotWaitForEachOther) {
  const Tokens tokens = {0, 0, 0, 0, 0, 0, 0, 1};
  const Prompt cat(tokens, {Image(0, 7, 7)}), dog(tokens, {Image(0, 7, 8)});
  SubmitPrompt(cat, Greedy(3));
  SubmitPrompt(dog, Greedy(3));
  engine_->Step();
  EXPECT_EQ(engine_->GetStatistics().num_running, 2);
  StepUntilIdle();
  EXPECT_EQ(output_[submitted_[0]].token_ids, GenerateAlone(cat, 3));
  EXPECT_EQ(output_[submitted_[1]].token_ids, GenerateAlone(dog, 3));
}

/*! \brief Prompts with random pieces, by the pieces that the model takes. */
class RandomEmbeddedPrompts : public EmbeddedPromptTest,
                              public ::testing::WithParamInterface<PieceTraits> {
 protected:
  static constexpr int64_t kMaxPositions = 6;

  static FakeModel::Sizes Sizes(int64_t num_pages, int64_t prefill_chunk_size) {
    FakeModel::Sizes sizes = EmbeddedPromptTest::Sizes(num_pages, prefill_chunk_size);
    sizes.pieces = GetParam();
    return sizes;
  }

  static Prompt RandomPrompt(std::mt19937* random) {
    Prompt prompt(Tokens{});
    while (prompt.token_ids.size() < 3 + (*random)() % 12) {
      if ((*random)() % 3 > 0) {
        prompt.token_ids.push_back(static_cast<int32_t>((*random)() % 3));
        continue;
      }
      const auto begin = static_cast<int64_t>(prompt.token_ids.size());
      int64_t num_positions = 1 + (*random)() % kMaxPositions;
      PieceGrid grid;
      if (GetParam().takes_grids && (*random)() % 4 > 0) {
        grid = {1, 1 + static_cast<int64_t>((*random)() % 2), 1 + num_positions / 2};
        num_positions = grid.height * grid.width;
      }
      prompt.pieces.push_back(Image(begin, num_positions, static_cast<uint8_t>((*random)() % 2)));
      prompt.pieces.back().key.grid = grid;
      prompt.token_ids.resize(prompt.token_ids.size() + static_cast<size_t>(num_positions), 0);
    }
    return prompt;
  }

  static Tokens GenerateAlone(const Prompt& prompt, int64_t max_tokens) {
    FakeModel model(Sizes(1000, 64));
    Engine engine(&model, Letters(), {});
    engine.Submit(prompt, Greedy(max_tokens));
    while (engine.Step()) {
    }
    return engine.Drain().at(0).token_ids;
  }

  /*! \brief Expect that every pass had whole pieces. */
  void ExpectWholePieces(const std::vector<std::pair<int64_t, Prompt>>& prompts) {
    std::map<const float*, int32_t> counts;
    for (const auto& [id, prompt] : prompts) {
      for (const PromptPiece& piece : prompt.pieces) {
        counts[piece.rows.get()] = static_cast<int32_t>(piece.key.num_positions);
      }
    }
    for (const ForwardInput& input : model_->forwards()) {
      for (const EmbeddedRows& rows : input.embedded) {
        ASSERT_TRUE(counts.contains(rows.data)) << "a pass begins within a piece";
        ASSERT_EQ(rows.count, counts[rows.data]) << "a pass ends within a piece";
      }
    }
  }
};

TEST_P(RandomEmbeddedPrompts, GenerateWhatTheyGenerateAlone) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    // Few pages preempt sequences; small chunks end within pieces.
    EngineOptions options{.max_recycling_sequences = 16};
    if (seed % 2 == 0) options.speculative_mode = SpeculativeMode::kPromptLookup;
    Open(Sizes(12 + seed, (GetParam().needs_whole_pieces ? kMaxPositions + 2 : 5) + seed), options);
    std::vector<std::pair<int64_t, Prompt>> prompts;
    submitted_.clear();
    output_.clear();
    num_finals_.clear();
    for (int i = 0; i < 12; ++i) {
      Prompt prompt = RandomPrompt(&random);
      const int64_t id = SubmitPrompt(prompt, Greedy(6));
      prompts.emplace_back(id, std::move(prompt));
      for (uint32_t steps = random() % 4; steps > 0; --steps) {
        engine_->Step();
        Collect();
      }
    }
    StepUntilIdle();
    if (GetParam().needs_whole_pieces) ExpectWholePieces(prompts);
    for (const auto& [id, prompt] : prompts) {
      ASSERT_EQ(output_[id].token_ids, GenerateAlone(prompt, 6))
          << "seed " << seed << ", id " << id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Traits, RandomEmbeddedPrompts,
                         ::testing::Values(PieceTraits{kHidden, false, false},
                                           PieceTraits{kHidden, true, false},
                                           PieceTraits{kHidden, false, true},
                                           PieceTraits{kHidden, true, true}));

TEST_F(EmbeddedPromptTest, TheModelGetsRopePositionsIfASequenceHasAGrid) {
  FakeModel::Sizes sizes = Sizes();
  sizes.pieces.takes_grids = true;
  Open(sizes);
  Prompt prompt({1, 0, 0, 0, 0, 2}, {Image(1, 4, 7)});
  SubmitPrompt({4, 5}, Greedy(2));
  engine_->Step();
  EXPECT_TRUE(model_->forwards().back().rope_positions.empty());
  prompt.pieces[0].key.grid = {1, 2, 2};
  SubmitPrompt(prompt, Greedy(1));
  engine_->Step();
  // The decode of the first sequence, then the prompt.
  EXPECT_EQ(model_->forwards().back().rope_positions,
            (Tokens{2, 0, 1, 1, 1, 1, 3, 2, 0, 1, 1, 2, 2, 3, 2, 0, 1, 2, 1, 2, 3}));
}

TEST_F(EmbeddedPromptTest, AnotherGridOfTheSameRowsIsNotShared) {
  FakeModel::Sizes sizes = Sizes();
  sizes.pieces.takes_grids = true;
  Open(sizes, {.max_recycling_sequences = 16});
  Prompt wide({1, 0, 0, 0, 0, 2}, {Image(1, 4, 7)}), tall = wide;
  wide.pieces[0].key.grid = {1, 1, 4};
  tall.pieces[0].key.grid = {1, 4, 1};
  Generate(wide, 2);
  Generate(tall, 2);
  EXPECT_EQ(cached_tokens(), 1);
}

TEST_F(EmbeddedPromptTest, APieceThatDecodesLeaveNoRoomForGetsAStep) {
  FakeModel::Sizes sizes = Sizes(64, 8);
  sizes.pieces.needs_whole_pieces = true;
  Open(sizes);
  for (int32_t first = 1; first <= 4; ++first) SubmitPrompt({first, 2}, Greedy(8));
  engine_->Step();
  const Prompt prompt({0, 0, 0, 0, 0, 0, 1}, {Image(0, 6, 7)});
  SubmitPrompt(prompt, Greedy(1));
  engine_->Step();
  const ForwardInput& pass = model_->forwards().back();
  ASSERT_EQ(pass.embedded.size(), 1u);
  EXPECT_EQ(pass.embedded[0].count, 6);
  EXPECT_EQ(pass.sequence_ids.size(), 1u);
  StepUntilIdle();
  for (const int64_t id : submitted_) EXPECT_TRUE(output_.contains(id));
}

TEST_F(EmbeddedPromptTest, APieceThatNoStepHoldsIsRefused) {
  FakeModel::Sizes sizes = Sizes(64, 8);
  sizes.pieces.needs_whole_pieces = true;
  Open(sizes, {.step_token_budget = 5});
  EXPECT_THROW(engine_->Submit(Prompt({0, 0, 0, 0, 0, 0}, {Image(0, 6, 7)}), Greedy(1)),
               EngineError);
  SubmitPrompt(Prompt({0, 0, 0, 0, 0, 1}, {Image(0, 5, 7)}), Greedy(1));
  StepUntilIdle();
}

TEST_F(EmbeddedPromptTest, ATransferredPrefixIsIdentifiedByItsPieces) {
  const Prompt cat({1, 0, 0, 0, 2, 3}, {Image(1, 3, 7)});
  Generate(cat, 1);
  const std::vector<PieceKey> cat_keys = KeysOf(cat.pieces);
  const std::vector<PieceKey> dog_keys = KeysOf(std::vector<PromptPiece>{Image(1, 3, 8)});
  const PrefixKey cat_key({}, cat.token_ids, cat_keys), dog_key({}, cat.token_ids, dog_keys);
  EXPECT_EQ(engine_->CountCached(cat_key), 6);
  EXPECT_EQ(engine_->CountCached(dog_key), 1);
  EXPECT_EQ(engine_->CountCached(cat.token_ids), 1);
  EXPECT_EQ(engine_->CountCached(PrefixKey("adapter", cat.token_ids, cat_keys)), 0);

  std::vector<std::byte> rows(model_->ExportBytes(0, 6));
  engine_->ExportPrefix(cat_key, 0, rows);
  EXPECT_THROW(engine_->ExportPrefix(dog_key, 0, rows), EngineError);
  engine_->Reset();
  engine_->ImportPrefix(cat_key, 0, rows);
  EXPECT_EQ(engine_->CountCached(cat_key), 6);
  EXPECT_EQ(engine_->CountCached(dog_key), 1);
  EXPECT_EQ(Generate(cat, 4), GenerateAlone(cat, 4));
  EXPECT_EQ(cached_tokens(), 5);
}

TEST_F(EmbeddedPromptTest, PromptLogprobsAndOtherModelsAreRefused) {
  const Prompt cat({1, 0, 2}, {Image(1, 1, 7)});
  SequenceOptions options = Greedy(1);
  options.prompt_logprobs = 0;
  const auto expect_refused = [&](const char* message) {
    try {
      engine_->Submit(cat, options);
      ADD_FAILURE() << "nothing was thrown; expected: " << message;
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  expect_refused("prompt_logprobs: a prompt with embedded pieces has none");
  Open({});
  expect_refused("prompt.pieces: the model takes no embedded pieces, got 1");
}

}  // namespace
}  // namespace aiomlc
