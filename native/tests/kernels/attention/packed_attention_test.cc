#include "kernels/attention/packed_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

constexpr HeadLayout kHeads{3, 3, 20};
constexpr int64_t kRow = 60;
constexpr float kScale = 0.25f;

class PackedAttentionOnTier : public ::testing::TestWithParam<Isa> {
 protected:
  std::vector<float> Attend(const std::vector<int32_t>& lengths, const float* qkv) {
    int64_t rows = 0;
    for (const int32_t length : lengths) rows += length;
    std::vector<float> output(rows * kRow);
    AttendPacked(pool_, kHeads, lengths, kScale, qkv, output.data());
    return output;
  }

  TierScope tier_{GetParam()};
  ThreadPool pool_{2};
};

/*! \return The output of one row and head, in float64. */
std::vector<double> Expected(const float* qkv, int64_t length, int64_t row, int64_t head) {
  const auto at = [&](int64_t i, int64_t part, int64_t c) {
    return double{qkv[(i * 3 + part) * kRow + head * kHeads.head_dim + c]};
  };
  std::vector<double> weights(length, 0.0);
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t c = 0; c < kHeads.head_dim; ++c) weights[i] += at(row, 0, c) * at(i, 1, c);
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double total = 0;
  for (double& weight : weights) total += weight = std::exp((weight - largest) * kScale);
  std::vector<double> output(kHeads.head_dim, 0.0);
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t c = 0; c < kHeads.head_dim; ++c) output[c] += weights[i] / total * at(i, 2, c);
  }
  return output;
}

TEST_P(PackedAttentionOnTier, EveryRowSeesItsWholeSequence) {
  const std::vector<int32_t> lengths{1, 16, 5, 70, 33};
  const std::vector<float> qkv = RandomFloats(125 * 3 * kRow, 1);

  const std::vector<float> output = Attend(lengths, qkv.data());

  int64_t begin = 0;
  for (const int32_t length : lengths) {
    for (int64_t row = 0; row < length; ++row) {
      for (int64_t head = 0; head < kHeads.num_query_heads; ++head) {
        const std::vector<double> expected =
            Expected(qkv.data() + begin * 3 * kRow, length, row, head);
        for (int64_t c = 0; c < kHeads.head_dim; ++c) {
          ASSERT_NEAR(output[(begin + row) * kRow + head * kHeads.head_dim + c], expected[c], 2e-6)
              << length << " " << row;
        }
      }
    }
    begin += length;
  }
}

TEST_P(PackedAttentionOnTier, OtherSequencesDoNotChangeTheBits) {
  const std::vector<float> qkv = RandomFloats(59 * 3 * kRow, 2);

  const std::vector<float> together = Attend({37, 19, 3}, qkv.data());
  const std::vector<float> alone = Attend({19}, qkv.data() + 37 * 3 * kRow);

  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + 37 * kRow));
}

INSTANTIATE_TEST_SUITE_P(Tiers, PackedAttentionOnTier, ::testing::ValuesIn(SupportedTiers()));

TEST(PackedAttention, EveryTierComputesTheSameBits) {
  const std::vector<float> qkv = RandomFloats(50 * 3 * kRow, 3);
  const std::vector<int32_t> lengths{41, 9};
  ThreadPool pool(2);
  std::vector<std::vector<float>> outputs;
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    outputs.emplace_back(50 * kRow);
    AttendPacked(pool, kHeads, lengths, kScale, qkv.data(), outputs.back().data());
  }

  for (const std::vector<float>& output : outputs) EXPECT_EQ(output, outputs.front());
}

}  // namespace
}  // namespace aiomlc
