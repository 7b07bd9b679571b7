// The numbers of grouped rows, of which a shard has some columns.
#include "weights/group_buffers.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "weights/source_matrix.h"

namespace aiomlc {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 1024;

/*! \brief Buffers whose numbers all differ from those beside them. */
GroupBuffers Filled(MatrixFormat format) {
  GroupBuffers buffers;
  buffers.Resize(format, kRows, kCols);
  for (int64_t row = 0; row < kRows; ++row) {
    const GroupedRow target = buffers.Row(row);
    for (int64_t k = 0; k < kCols; ++k) target.codes[k] = static_cast<uint8_t>((k * 5 + row) % 16);
    const bool has_minima = format.zero == ZeroType::kMinima;
    for (int64_t g = 0; g < buffers.groups(); ++g) {
      const auto number = static_cast<uint8_t>(1 + (g * 3 + row) % 60);
      for (int64_t i = 0; i < buffers.scale_bytes(); ++i) {
        // Halves between 1 and 2, or bytes.
        const bool is_high = i == 1;
        target.scales[g * buffers.scale_bytes() + i] = is_high ? uint8_t{0x3c} : number;
      }
      if (format.zero == ZeroType::kPoints) target.zeros[g] = number % 16;
      if (has_minima) {
        for (int64_t i = 0; i < buffers.scale_bytes(); ++i) {
          target.zeros[g * buffers.scale_bytes() + i] = i == 1 ? uint8_t{0x3c} : number;
        }
      }
    }
    for (int64_t s = 0; s < buffers.supers(); ++s) {
      target.super_scales[s] = static_cast<uint16_t>(0x3c00 + 16 * s + row);
      if (has_minima) target.super_minima[s] = static_cast<uint16_t>(0x3800 + 16 * s + row);
    }
  }
  return buffers;
}

class GroupBuffersTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GroupBuffersTest, AColumnKeepsItsWeightsWhenOthersAreCut) {
  const MatrixFormat format = MatrixFormat::Parse(GetParam());
  const GroupBuffers whole = Filled(format);
  std::vector<float> expected(kRows * kCols);
  whole.Dequantize(expected.data());
  for (const auto& [first, cols] : {std::pair(0, 512), std::pair(512, 512), std::pair(256, 256)}) {
    GroupBuffers part = Filled(format);
    part.Cut(first, cols);
    ASSERT_EQ(part.cols(), cols);
    EXPECT_EQ(part.View().cols, cols);
    std::vector<float> actual(static_cast<size_t>(kRows * cols));
    part.Dequantize(actual.data());
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t k = 0; k < cols; ++k) {
        ASSERT_EQ(actual[static_cast<size_t>(row * cols + k)],
                  expected[static_cast<size_t>(row * kCols + first + k)])
            << "row " << row << " column " << k << " from " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, GroupBuffersTest,
                         ::testing::Values("u4g32f16z8", "u4g128f16zp", "u4g32f16m", "u4g32k8m",
                                           "u6g16k8sz32"));

TEST(SelectRows, PicksRunsOfSeveralMatricesInOrder) {
  std::vector<SourceMatrix> matrices(2);
  matrices[0].rows = 6;
  matrices[1].rows = 4;
  const std::vector<SourceSlice> all = OrderRows(matrices, {});

  const std::vector<SourceSlice> selected = SelectRows(all, {1, 2, 4, 4, 9, 1});

  std::vector<std::pair<int, int64_t>> rows;
  for (const SourceSlice& slice : selected) {
    for (int64_t i = 0; i < slice.rows; ++i) {
      rows.emplace_back(slice.matrix, slice.first + i * slice.step);
    }
  }
  const std::vector<std::pair<int, int64_t>> expected = {{0, 1}, {0, 2}, {0, 4}, {0, 5},
                                                         {1, 0}, {1, 1}, {1, 3}};
  EXPECT_EQ(rows, expected);
}

TEST(SelectRows, KeepsTheDistanceOfInterleavedRows) {
  std::vector<SourceMatrix> matrices(1);
  matrices[0].rows = 8;
  // Rows 0, 2, 4, 6, then 1, 3, 5, 7.
  const std::vector<SourceSlice> all = OrderRows(matrices, {1, 4, 1, 1});

  const std::vector<SourceSlice> selected = SelectRows(all, {2, 2, 6, 2});

  ASSERT_EQ(selected.size(), 2u);
  EXPECT_EQ(selected[0].first, 4);
  EXPECT_EQ(selected[0].step, 2);
  EXPECT_EQ(selected[1].first, 5);
  EXPECT_EQ(selected[1].rows, 2);
}

}  // namespace
}  // namespace aiomlc
