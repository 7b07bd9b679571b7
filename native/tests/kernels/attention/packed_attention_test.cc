#include "kernels/attention/packed_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/attention/attention_products.h"
#include "kernels/attention/disentangled_biases.h"
#include "kernels/attention/relative_biases.h"
#include "kernels/simd/simd_portable.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

/*! \brief Attention of random qkv rows, with its expected output in float64. */
struct Problem {
  PackedAttentionShape shape;
  std::vector<int32_t> lengths;
  std::vector<float> qkv;
  std::vector<float> table, slopes;
  std::optional<RelativeBiases> biases;
  std::vector<float> position_rows;  //!< Queries and keys of relative positions, side by side.
  std::vector<int32_t> relative;

  Problem(PackedAttentionShape attention, std::vector<int32_t> sizes, int seed)
      : shape(attention), lengths(std::move(sizes)) {
    qkv = RandomFloats(NumRows() * RowSize(), seed);
  }

  /*! \brief The same with inputs that are rounded to bf16. */
  Problem Rounded() const {
    Problem rounded = *this;
    rounded.shape.products = KvType::kBF16;
    for (float& number : rounded.qkv) number = BFloat16ToFloat(FloatToBFloat16(number));
    return rounded;
  }

  int64_t NumRows() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t RowSize() const { return shape.heads.num_heads() * shape.heads.head_dim; }
  int64_t OutputSize() const { return shape.heads.num_query_heads * shape.heads.head_dim; }

  std::vector<float> Attend(ThreadPool& pool) const {
    std::vector<float> output(NumRows() * OutputSize());
    const float* keys = qkv.data() + OutputSize();
    const float* values = keys + shape.heads.num_kv_heads * shape.heads.head_dim;
    const PackedInputs inputs{qkv.data(), keys, values, RowSize(), RowSize()};
    if (relative.empty()) {
      AttendPacked(pool, shape, lengths, inputs, output.data());
      return output;
    }
    const std::vector<float> tiles = PositionTilesOfAll(pool);
    const float* key_tiles = tiles.data() + tiles.size() / 2;
    PackedAttentionShape biased = shape;
    const DisentangledBiases content(
        shape, inputs, {tiles.data(), key_tiles, PositionTilesOf(NumPositions())}, relative);
    biased.biases = &content;
    AttendPacked(pool, biased, lengths, inputs, output.data());
    return output;
  }

  /*! \brief Add products with relative positions, several distances of which share one. */
  void UsePositions(int64_t num_distances) {
    for (int64_t distance = 1 - num_distances; distance < num_distances; ++distance) {
      const int64_t size = std::abs(distance);
      const int64_t bucket = size <= 10 ? size : 10 + (size - 10) / 3;
      relative.push_back(static_cast<int32_t>(40 + (distance < 0 ? -bucket : bucket)));
    }
    position_rows = RandomFloats((relative.back() + 1) * 2 * OutputSize(), 12);
  }

  int64_t NumPositions() const {
    return static_cast<int64_t>(position_rows.size()) / (2 * OutputSize());
  }

  /*! \return The tiles of the queries, then those of the keys. */
  std::vector<float> PositionTilesOfAll(ThreadPool& pool) const {
    const int64_t heads = shape.heads.num_query_heads, size = shape.heads.head_dim;
    const int64_t plane = heads * PositionTilesOf(NumPositions()) * size * 16;
    std::vector<float> tiles(2 * plane, NAN);
    for (int which = 0; which < 2; ++which) {
      WritePositionTiles(pool, position_rows.data() + which * OutputSize(), 2 * OutputSize(),
                         NumPositions(), heads, size, tiles.data() + which * plane);
    }
    return tiles;
  }

  /*! \return The products of a row and another with their relative position. */
  double ContentBias(int64_t row, int64_t other, int64_t head) const {
    if (relative.empty()) return 0.0;
    const int64_t size = shape.heads.head_dim, width = OutputSize();
    const float* position = position_rows.data() +
                            relative[relative.size() / 2 + row - other] * 2 * width + head * size;
    const float* query = qkv.data() + row * RowSize() + head * size;
    const float* key = qkv.data() + other * RowSize() + width + head * size;
    double sum = 0;
    for (int64_t c = 0; c < size; ++c) {
      sum += double{query[c]} * position[width + c] + double{key[c]} * position[c];
    }
    return sum * shape.scale;
  }

  /*! \brief Add biases from a table, [2 * num_distances - 1, heads]. */
  void UseTable(int64_t num_distances) {
    const int64_t heads = shape.heads.num_query_heads;
    table = RandomFloats((2 * num_distances - 1) * heads, 7);
    biases = RelativeBiases::FromTable(table.data(), num_distances, heads, Longest());
    shape.biases = &*biases;
  }

  void UseSlopes(std::vector<float> values) {
    slopes = std::move(values);
    biases = RelativeBiases::Alibi(slopes, Longest());
    shape.biases = &*biases;
  }

  int64_t Longest() const { return *std::max_element(lengths.begin(), lengths.end()); }

  /*! \param distance The position of the key less that of the query. */
  double BiasOf(int64_t head, int64_t distance) const {
    if (!slopes.empty()) return -double{slopes[head]} * static_cast<double>(std::abs(distance));
    if (table.empty()) return 0.0;
    const int64_t heads = shape.heads.num_query_heads;
    const auto rows = static_cast<int64_t>(table.size()) / heads;
    return table[(distance + rows / 2) * heads + head];
  }

  bool Sees(int64_t row, int64_t other) const {
    if (shape.is_causal && other > row) return false;
    return shape.window == 0 || std::abs(row - other) <= shape.window;
  }

  /*! \return The output of a row and head of the sequence whose first row is `begin`. */
  std::vector<double> Expected(int64_t begin, int64_t length, int64_t row, int64_t head) const {
    const int64_t size = shape.heads.head_dim;
    const int64_t queries = shape.heads.num_query_heads;
    const int64_t key_head = head / (queries / shape.heads.num_kv_heads);
    const auto at = [&](int64_t i, int64_t column, int64_t c) {
      return double{qkv[(begin + i) * RowSize() + column * size + c]};
    };
    std::vector<double> weights(length, 0.0);
    for (int64_t i = 0; i < length; ++i) {
      double score = 0;
      for (int64_t c = 0; c < size; ++c) score += at(row, head, c) * at(i, queries + key_head, c);
      score *= shape.scale;
      if (shape.soft_cap > 0) score = shape.soft_cap * std::tanh(score / shape.soft_cap);
      score += BiasOf(head, i - row) + ContentBias(begin + row, begin + i, head);
      weights[i] = Sees(row, i) ? std::exp(score) : 0.0;
    }
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<double> output(size, 0.0);
    for (int64_t i = 0; i < length; ++i) {
      for (int64_t c = 0; c < size; ++c) {
        output[c] += weights[i] / total * at(i, queries + shape.heads.num_kv_heads + key_head, c);
      }
    }
    return output;
  }
};

constexpr HeadLayout kHeads{3, 3, 20};
constexpr HeadLayout kGroupedHeads{6, 2, 20};
constexpr HeadLayout kPairedHeads{6, 2, 32};  // For bf16: elements in multiples of 16.
constexpr float kScale = 0.25f;
const std::vector<int32_t> kLengths{1, 16, 5, 70, 33, 8, 9, 15, 17};

void ExpectExact(const Problem& problem, const std::vector<float>& output,
                 double tolerance = 2e-6) {
  const int64_t size = problem.shape.heads.head_dim;
  int64_t begin = 0;
  for (const int32_t length : problem.lengths) {
    for (int64_t row = 0; row < length; ++row) {
      for (int64_t head = 0; head < problem.shape.heads.num_query_heads; ++head) {
        const std::vector<double> expected = problem.Expected(begin, length, row, head);
        for (int64_t c = 0; c < size; ++c) {
          ASSERT_NEAR(output[(begin + row) * problem.OutputSize() + head * size + c], expected[c],
                      tolerance)
              << length << " " << row;
        }
      }
    }
    begin += length;
  }
}

class PackedAttentionOnTier : public ::testing::TestWithParam<Isa> {
 protected:
  TierScope tier_{GetParam()};
  ThreadPool pool_{2};
};

TEST_P(PackedAttentionOnTier, EveryRowSeesItsWholeSequence) {
  for (const HeadLayout& heads : {kHeads, kGroupedHeads}) {
    const Problem problem({heads, kScale}, kLengths, 1);
    ExpectExact(problem, problem.Attend(pool_));
  }
}

TEST_P(PackedAttentionOnTier, ARowSeesTheWindowOnBothSides) {
  for (const HeadLayout& heads : {kHeads, kGroupedHeads}) {
    for (const int64_t window : {1, 8, 16, 40}) {
      const Problem problem({heads, kScale, window}, kLengths, 4);
      ExpectExact(problem, problem.Attend(pool_));
    }
  }
}

TEST_P(PackedAttentionOnTier, ARowOfCausalAttentionSeesNoRowAfterIt) {
  for (const int64_t window : {0, 7}) {
    const Problem problem({kGroupedHeads, kScale, window, true}, kLengths, 5);
    ExpectExact(problem, problem.Attend(pool_));
  }
}

TEST_P(PackedAttentionOnTier, ScoresAreCapped) {
  const Problem problem({kHeads, 2.0f, 4, false, 1.5f}, kLengths, 6);
  ExpectExact(problem, problem.Attend(pool_));
}

TEST_P(PackedAttentionOnTier, BiasesDependOnTheDistanceAndItsSign) {
  for (const HeadLayout& heads : {kHeads, kGroupedHeads}) {
    for (const int64_t num_distances : {70, 90}) {
      Problem problem({heads, kScale}, kLengths, 8);
      problem.UseTable(num_distances);
      ExpectExact(problem, problem.Attend(pool_));
    }
  }
}

TEST_P(PackedAttentionOnTier, ProductsOfBF16RoundProbabilities) {
  constexpr double kTolerance = 0.005;  // 2^-8, of values up to 1.
  for (const int64_t window : {0, 8}) {
    for (const bool is_causal : {false, true}) {
      const Problem problem({kPairedHeads, kScale, window, is_causal}, kLengths, 7);
      const Problem rounded = problem.Rounded();
      const std::vector<float> output = rounded.Attend(pool_);
      ExpectExact(rounded, output, kTolerance);
      EXPECT_NE(problem.Attend(pool_), output);
      // Inputs that are not bf16 are rounded to it.
      Problem unrounded = problem;
      unrounded.shape.products = KvType::kBF16;
      EXPECT_EQ(unrounded.Attend(pool_), output);
    }
  }
}

TEST_P(PackedAttentionOnTier, BiasesAreAddedToTheScoresOfBF16) {
  Problem problem = Problem({kPairedHeads, kScale}, kLengths, 11).Rounded();
  problem.UseTable(70);
  ExpectExact(problem, problem.Attend(pool_), 0.005);
}

TEST_P(PackedAttentionOnTier, SlopesLowerTheScoresOfDistantRows) {
  Problem problem({kHeads, kScale}, kLengths, 9);
  problem.UseSlopes({0.5f, 0.25f, 0.0625f});
  ExpectExact(problem, problem.Attend(pool_));
}

TEST_P(PackedAttentionOnTier, ProductsWithRelativePositionsAreAdded) {
  for (const int64_t num_distances : {70, 90}) {
    Problem problem({kHeads, kScale / 4}, kLengths, 13);
    problem.UsePositions(num_distances);
    ExpectExact(problem, problem.Attend(pool_), 5e-6);
  }
}

TEST_P(PackedAttentionOnTier, ProductsWithRelativePositionsAreNotRoundedToBF16) {
  Problem problem = Problem({{3, 3, 32}, kScale / 4}, kLengths, 14).Rounded();
  problem.UsePositions(70);
  ExpectExact(problem, problem.Attend(pool_), 0.01);
}

TEST_P(PackedAttentionOnTier, OtherSequencesDoNotChangeTheBitsWithRelativePositions) {
  for (const KvType products : {KvType::kF32, KvType::kBF16}) {
    Problem together({{3, 3, 32}, kScale / 4}, {37, 70, 3}, 15);
    together.shape.products = products;
    together.UsePositions(80);
    Problem alone = together;
    alone.lengths = {70};
    alone.qkv.erase(alone.qkv.begin(), alone.qkv.begin() + 37 * together.RowSize());

    const std::vector<float> expected = alone.Attend(pool_);
    const std::vector<float> output = together.Attend(pool_);

    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), output.begin() + 37 * together.OutputSize()));
  }
}

TEST_P(PackedAttentionOnTier, OtherSequencesDoNotChangeTheBitsWithBiases) {
  Problem together({kHeads, kScale}, {37, 19, 3}, 10);
  together.UseTable(40);
  Problem alone({kHeads, kScale}, {19}, 10);
  const auto begin = together.qkv.begin() + 37 * together.RowSize();
  alone.qkv.assign(begin, begin + 19 * alone.RowSize());
  alone.UseTable(40);

  const std::vector<float> expected = alone.Attend(pool_);
  const std::vector<float> output = together.Attend(pool_);

  EXPECT_TRUE(
      std::equal(expected.begin(), expected.end(), output.begin() + 37 * together.OutputSize()));
}

TEST_P(PackedAttentionOnTier, OtherSequencesDoNotChangeTheBits) {
  for (const auto& [window, products] :
       {std::pair{0, KvType::kF32}, {6, KvType::kF32}, {0, KvType::kBF16}, {6, KvType::kBF16}}) {
    Problem together({kPairedHeads, kScale, window}, {37, 19, 3}, 2);
    together.shape.products = products;
    Problem alone = together;
    alone.lengths = {19};
    alone.qkv.erase(alone.qkv.begin(), alone.qkv.begin() + 37 * together.RowSize());

    const std::vector<float> expected = alone.Attend(pool_);
    const std::vector<float> output = together.Attend(pool_);

    EXPECT_TRUE(
        std::equal(expected.begin(), expected.end(), output.begin() + 37 * together.OutputSize()));
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, PackedAttentionOnTier, ::testing::ValuesIn(SupportedTiers()));

void ExpectTheSameBitsOnEveryTier(const Problem& problem) {
  ThreadPool pool(2);
  std::vector<std::vector<float>> outputs;
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    outputs.push_back(problem.Attend(pool));
  }

  for (const std::vector<float>& output : outputs) EXPECT_EQ(output, outputs.front());
}

TEST(RoughExp, IsNearEnoughForBF16) {
  using Lanes = PortableLanes;
  float values[kTilePageSize] = {0.0f, -0.0f, -87.5f, -INFINITY, NAN};
  Lanes::Store(values, RoughExp<Lanes>(Lanes::Load(values)));
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 1.0f);
  EXPECT_EQ(values[2], 0.0f);
  EXPECT_EQ(values[3], 0.0f);
  EXPECT_TRUE(std::isnan(values[4]));
  for (int i = 0; i < 6000; ++i) {
    const float x = -0.0144f * static_cast<float>(i);
    Lanes::Store(values, RoughExp<Lanes>(Lanes::Set(x)));
    ASSERT_NEAR(values[0] / std::exp(double{x}), 1.0, 1.1e-4) << x;
  }
}

TEST(PackedAttention, EveryTierComputesTheSameBits) {
  for (const int64_t window : {0, 5}) {
    ExpectTheSameBitsOnEveryTier(Problem({kGroupedHeads, kScale, window}, {41, 9}, 3));
    ExpectTheSameBitsOnEveryTier(Problem({kPairedHeads, kScale, window}, {41, 9, 80}, 3).Rounded());
  }
  Problem biased({kGroupedHeads, kScale}, {41, 9}, 3);
  biased.UseTable(41);
  ExpectTheSameBitsOnEveryTier(biased);
  Problem disentangled({kHeads, kScale}, {41, 9, 80}, 3);
  disentangled.UsePositions(80);
  ExpectTheSameBitsOnEveryTier(disentangled);
}

}  // namespace
}  // namespace aiomlc
