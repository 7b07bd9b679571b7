#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/linear/format/matrix_format.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/thread_pool.h"
#include "tests/doubles/grouped_matrix.h"

namespace aiomlc {
namespace {

constexpr int64_t kShapes[][2] = {{16, 32}, {1, 1}, {17, 31}, {40, 96}, {20, 257}, {33, 520}};

class GroupedFormatTest : public ::testing::TestWithParam<const char*> {
 protected:
  MatrixFormat format() const { return MatrixFormat::Parse(GetParam()); }
};

TEST_P(GroupedFormatTest, AnEmbeddingHasTheWeightsOfTheMatrix) {
  ThreadPool pool(2);
  for (const auto& [rows, cols] : kShapes) {
    const GroupedMatrix matrix(format(), rows, cols, 1);
    const std::vector<uint8_t> packed = matrix.Pack();
    std::vector<int32_t> ids;
    for (int64_t row = rows - 1; row >= 0; --row) ids.push_back(static_cast<int32_t>(row));
    std::vector<float> out(rows * cols);

    EmbedRows(pool, format(), packed.data(), rows, cols, ids.data(), rows, out.data());

    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < cols; ++k) {
        ASSERT_NEAR(out[i * cols + k], matrix.Weight(ids[i], k),
                    0x1p-23 * matrix.Magnitude(ids[i], k))
            << rows << "x" << cols << " row " << ids[i] << " column " << k;
      }
    }
  }
}

TEST_P(GroupedFormatTest, PackingInPartsEqualsPackingAtOnce) {
  constexpr int64_t kRowCount = 75, kCols = 300;
  const GroupedMatrix matrix(format(), kRowCount, kCols, 2);
  std::vector<uint8_t> parts(PackedMatrixBytes(format(), kRowCount, kCols), 0x22);
  for (const auto& [begin, end] : {std::pair{64, 75}, {0, 16}, {16, 64}}) {
    PackGrouped(format(), matrix.Rows(begin, end),
                parts.data() + PackedMatrixBytes(format(), begin, kCols));
  }
  EXPECT_EQ(parts, matrix.Pack());
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupedFormatTest, ::testing::ValuesIn(kGroupedFormats),
                         [](const auto& info) { return std::string(info.param); });

TEST(PackGrouped, FourBitsHaveTheLayoutOfQ4) {
  // The codes of a group precede the scales in q4, and follow them in a grouped format.
  constexpr int64_t kRowCount = 20, kCols = 64;
  const MatrixFormat format = MatrixFormat::Parse("u4g32f16z7");
  const GroupedMatrix matrix(format, kRowCount, kCols, 3);
  std::vector<uint32_t> words(kRowCount * kCols / 8);
  for (int64_t row = 0; row < kRowCount; ++row) {
    for (int64_t k = 0; k < kCols; ++k) {
      words[(row * kCols + k) / 8] |= static_cast<uint32_t>(matrix.Code(row, k)) << (4 * (k % 8));
    }
  }
  std::vector<uint8_t> q4(PackedMatrixBytes(WeightFormat::kQ4, kRowCount, kCols));
  PackMatrixQ4(words.data(), static_cast<const uint16_t*>(matrix.Rows(0, kRowCount).scales),
               kRowCount, kCols, 0, kRowCount, q4.data());

  const std::vector<uint8_t> packed = matrix.Pack();

  ASSERT_EQ(packed.size(), q4.size());
  for (size_t group = 0; group < q4.size(); group += 288) {
    EXPECT_EQ(std::vector(&packed[group], &packed[group] + 32),
              std::vector(&q4[group + 256], &q4[group + 256] + 32));
    for (int64_t n = 0; n < (group < 2 * 288 ? 16 : 4); ++n) {
      for (int64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(packed[group + 32 + 64 * i + 4 * n], q4[group + 64 * i + 4 * n]);
      }
    }
  }
}

}  // namespace
}  // namespace aiomlc
