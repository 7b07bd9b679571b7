#include "kernels/attention/slot_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

constexpr int64_t kHeads = 3, kHeadDim = 20, kPages = 5, kSlots = 4;
constexpr int64_t kRowSize = kHeads * kHeadDim;
constexpr float kScale = 0.25f;

/*! \brief Memory whose unwritten elements are NaN. */
class Memory {
 public:
  Memory() : memory_{nullptr, kPages, kHeads, kHeadDim} {
    data_.assign(kSlots * kPages * memory_.PageElements(), std::numeric_limits<float>::quiet_NaN());
    memory_.data = data_.data();
  }
  const SlotMemory& get() const { return memory_; }

 private:
  std::vector<float> data_;
  SlotMemory memory_;
};

/*! \brief Attention of one row and head to the first `visible` positions, in float64. */
std::vector<double> Expected(const float* query, const float* keys, const float* values,
                             int64_t visible) {
  std::vector<double> weights(visible, 0.0);
  for (int64_t i = 0; i < visible; ++i) {
    double score = 0;
    for (int64_t c = 0; c < kHeadDim; ++c) score += double{query[c]} * keys[i * kRowSize + c];
    weights[i] = std::exp(score * kScale);
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> output(kHeadDim, 0.0);
  for (int64_t i = 0; i < visible; ++i) {
    for (int64_t c = 0; c < kHeadDim; ++c) {
      output[c] += weights[i] / total * values[i * kRowSize + c];
    }
  }
  return output;
}

void ExpectRow(const float* output, const float* query, const float* keys, const float* values,
               int64_t visible) {
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t offset = head * kHeadDim;
    const std::vector<double> expected =
        Expected(query + offset, keys + offset, values + offset, visible);
    for (int64_t c = 0; c < kHeadDim; ++c) EXPECT_NEAR(output[offset + c], expected[c], 2e-6);
  }
}

TEST(SlotAttentionTest, RowsSeeThePositionsUpToTheirOwn) {
  ThreadPool pool(2);
  const Memory memory;
  constexpr int64_t kLength = 37;
  const std::vector<float> keys = RandomFloats(kLength * kRowSize, 1);
  const std::vector<float> values = RandomFloats(kLength * kRowSize, 2);
  const std::vector<float> queries = RandomFloats(kLength * kRowSize, 3);
  std::vector<float> output(kLength * kRowSize);
  int64_t begin = 0;
  for (const int64_t count : {20, 1, 16}) {
    const SlotRows rows{2, count, begin + count};
    const int64_t offset = begin * kRowSize;
    WriteSlots(pool, memory.get(), {&rows, 1}, keys.data() + offset, values.data() + offset);
    AttendSlots(pool, memory.get(), {&rows, 1}, kScale, false, queries.data() + offset,
                output.data() + offset);
    begin += count;
  }
  for (int64_t row = 0; row < kLength; ++row) {
    ExpectRow(output.data() + row * kRowSize, queries.data() + row * kRowSize, keys.data(),
              values.data(), row + 1);
  }
}

TEST(SlotAttentionTest, RowsThatSeeAllSeeEveryPositionOfTheirSlot) {
  ThreadPool pool(2);
  const Memory memory;
  constexpr int64_t kLength = 71;
  const std::vector<float> keys = RandomFloats(2 * kLength * kRowSize, 4);
  const std::vector<float> values = RandomFloats(2 * kLength * kRowSize, 5);
  const std::vector<SlotRows> written{{3, kLength, kLength}, {0, kLength, kLength}};
  WriteSlots(pool, memory.get(), written, keys.data(), values.data());
  const std::vector<SlotRows> rows{{0, 4, kLength}, {3, 1, kLength}};
  const std::vector<float> queries = RandomFloats(5 * kRowSize, 6);
  std::vector<float> output(queries.size());
  AttendSlots(pool, memory.get(), rows, kScale, true, queries.data(), output.data());
  for (int64_t row = 0; row < 5; ++row) {
    const int64_t offset = row < 4 ? kLength * kRowSize : 0;
    ExpectRow(output.data() + row * kRowSize, queries.data() + row * kRowSize, keys.data() + offset,
              values.data() + offset, kLength);
  }
}

TEST(SlotAttentionTest, MoreRowsThanPositionsSeeAllOfThem) {
  ThreadPool pool(2);
  const Memory memory;
  constexpr int64_t kLength = 3, kRows = 20;
  const std::vector<float> keys = RandomFloats(kLength * kRowSize, 10);
  const std::vector<float> values = RandomFloats(kLength * kRowSize, 11);
  const SlotRows written{1, kLength, kLength}, rows{1, kRows, kLength};
  WriteSlots(pool, memory.get(), {&written, 1}, keys.data(), values.data());
  const std::vector<float> queries = RandomFloats(kRows * kRowSize, 12);
  std::vector<float> output(queries.size());
  AttendSlots(pool, memory.get(), {&rows, 1}, kScale, true, queries.data(), output.data());
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t offset = row * kRowSize;
    ExpectRow(output.data() + offset, queries.data() + offset, keys.data(), values.data(), kLength);
  }
}

TEST(SlotAttentionTest, BitsDependNeitherOnOtherSlotsNorOnTheThreads) {
  const Memory memory;
  const std::vector<float> keys = RandomFloats(80 * kRowSize, 7);
  const std::vector<float> values = RandomFloats(80 * kRowSize, 8);
  const std::vector<SlotRows> rows{{1, 30, 30}, {2, 50, 50}};
  const std::vector<float> queries = RandomFloats(80 * kRowSize, 9);
  std::vector<float> together(queries.size()), alone(30 * kRowSize);
  ThreadPool three(3), one(1);
  WriteSlots(three, memory.get(), rows, keys.data(), values.data());
  AttendSlots(three, memory.get(), rows, kScale, false, queries.data(), together.data());
  AttendSlots(one, memory.get(), {rows.data(), 1}, kScale, false, queries.data(), alone.data());
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin()));
}

}  // namespace
}  // namespace aiomlc
