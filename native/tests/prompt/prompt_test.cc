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

void ExpectRefused(std::vector<PromptPiece> pieces, const char* message,
                   PieceTraits traits = {.row_size = 2}) {
  try {
    ValidatePrompt(Prompt({1, 2, 3, 4}, std::move(pieces)), 32, traits, 3);
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
  ExpectRefused({Piece(0, 1)}, "prompt.pieces: the model takes no embedded pieces, got 1", {});
  EXPECT_NO_THROW(ValidatePrompt(Prompt({1, 2}), 32, {}, 3));
}

TEST(Prompt, AdjacentPiecesMayFillThePrompt) {
  EXPECT_NO_THROW(
      ValidatePrompt(Prompt({0, 0, 0}, {Piece(0, 1), Piece(1, 2)}), 32, {.row_size = 2}, 1));
}

TEST(Prompt, AGridHasTheRowsOfItsPieceAndAModelThatTakesIt) {
  const auto with_grid = [](PieceGrid grid) {
    PromptPiece piece = Piece(0, 4);
    piece.key.grid = grid;
    return std::vector{piece};
  };
  const PieceTraits traits{.row_size = 2, .takes_grids = true};
  EXPECT_NO_THROW(ValidatePrompt(Prompt({0, 0, 0, 0}, with_grid({1, 2, 2})), 32, traits, 3));
  ExpectRefused(with_grid({1, 2, 2}), "prompt.pieces[0].grid must be absent");
  for (const PieceGrid grid : {PieceGrid{1, 2, 3}, PieceGrid{0, 2, 2}, PieceGrid{-1, -2, 2},
                               PieceGrid{int64_t{1} << 62, 2, 2}, PieceGrid{2, 3, 1}}) {
    ExpectRefused(with_grid(grid), "prompt.pieces[0].grid must have 4 rows, as the piece, got",
                  traits);
  }
}

TEST(Prompt, APieceThatOnePassMustHaveFitsInIt) {
  const PieceTraits traits{.row_size = 2, .needs_whole_pieces = true};
  ExpectRefused({Piece(0, 4)}, "prompt.pieces[0].rows must have at most 3 rows, got 4", traits);
  EXPECT_NO_THROW(ValidatePrompt(Prompt({0, 0, 0}, {Piece(0, 3)}), 32, traits, 3));
}

}  // namespace
}  // namespace aiomlc
