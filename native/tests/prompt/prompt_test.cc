#include "prompt/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "options/engine_error.h"

namespace aiomlc {
namespace {

using ::testing::HasSubstr;

PromptPiece Piece(int64_t begin, int64_t num_positions, int64_t hidden_size = 2) {
  const auto size = static_cast<size_t>(std::min<int64_t>(16, std::max<int64_t>(0, num_positions)));
  const auto rows = std::make_shared<std::vector<float>>(size * 2);
  return {{begin, num_positions, {}}, {rows, rows->data()}, hidden_size};
}

void ExpectRefused(std::vector<PromptPiece> pieces, const char* message, int64_t hidden_size = 2) {
  try {
    ValidatePrompt(Prompt({1, 2, 3, 4}, std::move(pieces)), 32, hidden_size);
    ADD_FAILURE() << "nothing was thrown; expected: " << message;
  } catch (const EngineError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(Prompt, PiecesAreValidatedByField) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  ExpectRefused({Piece(-1, 1)}, "prompt.pieces[0].begin must be in [0, 4), got -1");
  ExpectRefused({Piece(4, 1)}, "prompt.pieces[0].begin must be in [0, 4), got 4");
  ExpectRefused({Piece(1, 0)}, "prompt.pieces[0].num_positions must be in [1, 3], got 0");
  ExpectRefused({Piece(1, 4)}, "prompt.pieces[0].num_positions must be in [1, 3], got 4");
  ExpectRefused({Piece(1, kMax)}, "prompt.pieces[0].num_positions must be in [1, 3]");
  ExpectRefused({Piece(0, 2), Piece(1, 1)}, "prompt.pieces[1].begin must be in [2, 4), got 1");
  ExpectRefused({Piece(0, 2), Piece(2, 2, 3)},
                "prompt.pieces[1].rows must have 2 floats per position, got 3");
  ExpectRefused({{{0, 1, {}}, nullptr, 2}},
                "prompt.pieces[0].rows must have 2 floats per position, got 0");
}

TEST(Prompt, AModelWithoutEmbeddedRowsTakesNoPieces) {
  ExpectRefused({Piece(0, 1)}, "prompt.pieces: the model takes no embedded pieces, got 1", 0);
  EXPECT_NO_THROW(ValidatePrompt(Prompt({1, 2}), 32, 0));
}

TEST(Prompt, AdjacentPiecesMayFillThePrompt) {
  EXPECT_NO_THROW(ValidatePrompt(Prompt({0, 0, 0}, {Piece(0, 1), Piece(1, 2)}), 32, 2));
}

}  // namespace
}  // namespace aiomlc
