#include "prompt/rope_positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using Positions = std::vector<int32_t>;

PieceKey Piece(int64_t begin, PieceGrid grid) {
  return {begin, grid.time * grid.height * grid.width, {}, grid};
}

/*! \return The positions of tokens [begin, end) on each axis. */
std::vector<Positions> PositionsOf(std::span<const PieceKey> pieces, int64_t begin, int64_t end) {
  const auto count = static_cast<size_t>(end - begin);
  Positions all(kRopeAxes * count);
  WriteRopePositions(pieces, begin, end, end - begin, all.data());
  std::vector<Positions> axes;
  for (size_t axis = 0; axis < kRopeAxes; ++axis) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(axis * count);
    axes.emplace_back(first, first + static_cast<std::ptrdiff_t>(count));
  }
  return axes;
}

TEST(RopePositions, TextGoesOnAfterTheLongerSideOfAnImage) {
  const std::vector<PieceKey> pieces{Piece(2, {1, 2, 3}), Piece(9, {2, 1, 2})};
  const std::vector<Positions> axes = PositionsOf(pieces, 0, 14);
  EXPECT_THAT(axes[0], ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 6, 7, 7, 8));
  EXPECT_THAT(axes[1], ElementsAre(0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 6, 6, 6, 8));
  EXPECT_THAT(axes[2], ElementsAre(0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 6, 7, 8));
}

TEST(RopePositions, TextAndPiecesWithoutAGridHaveTheirIndices) {
  const std::vector<PieceKey> pieces{{1, 3, {}}};
  EXPECT_FALSE(HasGrids(pieces));
  EXPECT_TRUE(HasGrids(std::vector{Piece(0, {1, 1, 1})}));
  for (const Positions& axis : PositionsOf(pieces, 2, 6)) {
    EXPECT_THAT(axis, ElementsAre(2, 3, 4, 5));
  }
}

TEST(RopePositions, TheyDoNotDependOnWhereATokenIsComputed) {
  const std::vector<PieceKey> pieces{Piece(1, {1, 3, 2}), Piece(7, {1, 1, 4}),
                                     Piece(13, {1, 2, 2})};
  const std::vector<Positions> all = PositionsOf(pieces, 0, 20);
  for (int64_t begin = 0; begin < 20; ++begin) {
    for (int64_t end = begin + 1; end <= 20; ++end) {
      const std::vector<Positions> part = PositionsOf(pieces, begin, end);
      for (size_t axis = 0; axis < kRopeAxes; ++axis) {
        ASSERT_EQ(part[axis], Positions(all[axis].begin() + begin, all[axis].begin() + end));
      }
    }
  }
}

TEST(RopePositions, APieceIsCutByAPositionBetweenTwoOfItsOwn) {
  const std::vector<PieceKey> pieces{{2, 3, {}}, {5, 1, {}}, {6, 4, {}}};
  Positions begins;
  for (int64_t position = 0; position < 12; ++position) {
    begins.push_back(static_cast<int32_t>(BeginOfCutPiece(pieces, position)));
  }
  EXPECT_THAT(begins, ElementsAre(0, 1, 2, 2, 2, 5, 6, 6, 6, 6, 10, 11));
}

}  // namespace
}  // namespace aiomlc
