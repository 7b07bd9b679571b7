#include "kernels/linear/format/matrix_format.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>

#include "kernels/linear/linear.h"
#include "tests/doubles/grouped_matrix.h"

namespace aiomlc {
namespace {

TEST(MatrixFormat, NamesAndCodesAreReadBack) {
  std::set<int64_t> codes;
  for (const char* name : kGroupedFormats) {
    const MatrixFormat format = MatrixFormat::Parse(name);
    EXPECT_EQ(format.Name(), name);
    EXPECT_EQ(MatrixFormat::FromPacked(format.Packed()), format);
    codes.insert(format.Packed());
  }
  for (const char* name : {"f32", "f16", "bf16", "q4", "i8channel", "i4progressive", "i8rotated"}) {
    const MatrixFormat format = MatrixFormat::Parse(name);
    EXPECT_EQ(format.Name(), name);
    EXPECT_EQ(MatrixFormat::FromPacked(format.Packed()), format);
    codes.insert(format.Packed());
  }
  EXPECT_EQ(codes.size(), std::size(kGroupedFormats) + 7);
}

TEST(MatrixFormat, OtherNamesAreErrors) {
  for (const char* name : {"",
                           "u4",
                           "u4g32",
                           "u4g32f16",
                           "u7g32f16z8",
                           "u4g33f16z8",
                           "u4g32f15z8",
                           "u4g32f16z16",
                           "u4g32f16z-1",
                           "u4g32f16z08",
                           "u4g32f16z8 ",
                           "u8g32f16z127",
                           "u4g8f16m",
                           "u8g8f16zp",
                           "e2m1g32bf16z0",
                           "iq4nlg32f16m",
                           "q5",
                           "i8channel ",
                           "i8",
                           "u4g99999999999f16z8",
                           "u04g32f16z8",
                           "u4g32k8"}) {
    EXPECT_THROW(MatrixFormat::Parse(name), std::invalid_argument) << name;
  }
}

TEST(MatrixFormat, OtherCodesAreErrors) {
  for (const int64_t code : {int64_t{8}, int64_t{15}, int64_t{3}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_THROW(MatrixFormat::FromPacked(code), std::invalid_argument) << code;
  }
}

TEST(PackedMatrixBytes, OfGroupedFormatsAreScalesZerosAndCodes) {
  const auto bytes = [](const char* name, int64_t rows, int64_t cols) {
    return PackedMatrixBytes(MatrixFormat::Parse(name), rows, cols);
  };
  EXPECT_EQ(bytes("u4g32f16z8", 16, 32), 256u + 32);
  EXPECT_EQ(bytes("u4g32f16m", 17, 33), 4u * (256 + 32 + 32));
  EXPECT_EQ(bytes("u4g32k8m", 16, 256), 8u * (256 + 16 + 16) + 32 + 32);
  EXPECT_EQ(bytes("u6g16k8sz32", 1, 1), 8u * (384 + 2 * 16) + 32);
  EXPECT_EQ(bytes("u4g128f16zp", 16, 200), 2u * (4 * 256 + 32 + 16));
  EXPECT_EQ(bytes("u3g8f16z3", 16, 32), 192u + 4 * 32);
  EXPECT_EQ(bytes("u8g32f32m", 16, 32), 512u + 64 + 64);
}

TEST(PackedMatrixBytes, OfSegmentsAreAdjacentWholeTiles) {
  const MatrixSegment segments[] = {{MatrixFormat::Parse("u4g32f16z8"), 17},
                                    {WeightFormat::kBF16, 3}};
  EXPECT_EQ(RowsOf(segments), 20);
  EXPECT_EQ(PackedMatrixBytes(segments, 64), 2u * 2 * 288 + 16 * 64 * 2);
}

}  // namespace
}  // namespace aiomlc
