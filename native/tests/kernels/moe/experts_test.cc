#include "kernels/moe/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/random_matrix.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

/*! \brief The formats of the segments of an expert's matrices. */
struct ExpertFormats {
  SegmentFormats gate_up, down;
};

constexpr ExpertFormats kFormats[] = {{{"q4"}, {"q4"}},
                                      {{"bf16"}, {"bf16"}},
                                      {{"f32"}, {"f32"}},
                                      {{"u4g32k8m"}, {"u6g16k8sz32"}},
                                      {{"e2m1g32bf16", "u4g128f16zp"}, {"u2g16k8m"}},
                                      {{"bf16"}, {"u4g32f16m"}},
                                      {{"i8channel"}, {"i8channel"}},
                                      {{"q4"}, {"i8channel"}},
                                      {{"i4progressive"}, {"i4progressive"}}};
constexpr int64_t kBatches[] = {1, 2, 5, 16, 17, 130};

/*! \return The bits of floats, for comparisons that include NaN. */
Bytes BitsOf(const float* values, int64_t count) {
  Bytes bits(count * sizeof(float));
  std::memcpy(bits.data(), values, bits.size());
  return bits;
}

struct Selection {
  std::vector<int32_t> experts;
  Floats weights;
};

Selection Select(const Floats& logits, int64_t per_row, bool normalize) {
  Selection selection{std::vector<int32_t>(per_row), Floats(per_row)};
  SelectExperts({static_cast<int64_t>(logits.size()), per_row, normalize}, logits.data(),
                selection.experts.data(), selection.weights.data());
  return selection;
}

TEST(SelectExperts, BiasedSigmoidsSelectAndPlainOnesWeigh) {
  const Floats logits{0.5f, 2.0f, -1.0f, 1.0f};
  const Floats bias{1.0f, 0.0f, 0.7f, 0.0f};
  ExpertRouting routing{.num_experts = 4, .experts_per_row = 2, .normalize = true};
  routing.scores = ExpertRouting::Scores::kSigmoid;
  routing.epsilon = 1e-6f;
  routing.scale = 2.5f;
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<int32_t> experts(2);
  Floats weights(2);
  SelectExperts(routing, logits.data(), experts.data(), weights.data());
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 3}));
  EXPECT_NEAR(weights[0], 2.5 * sigmoid(2) / (sigmoid(2) + sigmoid(1)), 1e-5);
  routing.selection_bias = bias.data();
  SelectExperts(routing, logits.data(), experts.data(), weights.data());
  EXPECT_EQ(experts, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(weights[0], 2.5 * sigmoid(0.5) / (sigmoid(0.5) + sigmoid(-1)), 1e-5);
  EXPECT_NEAR(weights[1], 2.5 * sigmoid(-1) / (sigmoid(0.5) + sigmoid(-1)), 1e-5);
  const Floats broken{0.5f, 2.0f, std::numeric_limits<float>::quiet_NaN(), 1.0f};
  SelectExperts(routing, broken.data(), experts.data(), weights.data());
  EXPECT_TRUE(std::isnan(weights[0]) && std::isnan(weights[1]));
}

TEST(SelectExperts, ScalesMultiplyTheWeightsOfTheirExperts) {
  const Floats logits{0.5f, 2.0f, -1.0f, 1.0f};
  const Floats scales{9.0f, 0.5f, 9.0f, 3.0f};
  const Selection plain = Select(logits, 2, true);
  ExpertRouting routing{.num_experts = 4, .experts_per_row = 2, .normalize = true};
  routing.expert_scales = scales.data();
  std::vector<int32_t> experts(2);
  Floats weights(2);

  SelectExperts(routing, logits.data(), experts.data(), weights.data());

  EXPECT_EQ(experts, plain.experts);
  EXPECT_EQ(weights, (Floats{plain.weights[0] * 0.5f, plain.weights[1] * 3.0f}));
}

TEST(SelectExperts, TheLargestLogitsAreSelectedWithTheirSoftmax) {
  for (const int64_t count : {1, 2, 7, 64}) {
    const Floats logits = RandomFloats(count, static_cast<uint32_t>(count), 3.0f);
    std::vector<int32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    for (const int64_t per_row : {int64_t{1}, (count + 1) / 2, count}) {
      const Selection plain = Select(logits, per_row, false);
      const Selection normalized = Select(logits, per_row, true);
      EXPECT_EQ(plain.experts, std::vector<int32_t>(order.begin(), order.begin() + per_row));
      EXPECT_EQ(normalized.experts, plain.experts);
      double selected_sum = 0;
      for (int64_t i = 0; i < per_row; ++i) selected_sum += std::exp(double{logits[order[i]]});
      for (int64_t i = 0; i < per_row; ++i) {
        const double weight = std::exp(double{logits[order[i]]});
        EXPECT_NEAR(plain.weights[i], weight / sum, 1e-6);
        EXPECT_NEAR(normalized.weights[i], weight / selected_sum, 1e-6);
      }
    }
  }
}

TEST(SelectExperts, EqualLogitsAreSelectedByIndex) {
  EXPECT_EQ(Select({1, 2, 2, 1, 2, 0}, 4, true).experts, (std::vector<int32_t>{1, 2, 4, 0}));
  EXPECT_EQ(Select({0, 0, 0, 0}, 2, false).experts, (std::vector<int32_t>{0, 1}));
}

TEST(SelectExperts, LargeLogitsDoNotOverflow) {
  const Selection selection = Select({1e30f, -1e30f, 1e30f}, 2, false);

  EXPECT_EQ(selection.experts, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(selection.weights, (Floats{0.5f, 0.5f}));
}

TEST(SelectExperts, ANaNLogitMakesAllWeightsNaNAndKeepsTheIndicesValid) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Floats& logits :
       {Floats{0, nan, 2, 1}, Floats{nan, nan, nan, nan}, Floats{nan, -infinity, -infinity, nan},
        Floats{-infinity, -infinity, -infinity, -infinity}}) {
    for (const bool normalize : {false, true}) {
      Selection selection = Select(logits, 3, normalize);
      for (const float weight : selection.weights) EXPECT_TRUE(std::isnan(weight));
      std::vector<int32_t>& experts = selection.experts;
      std::sort(experts.begin(), experts.end());
      EXPECT_EQ(std::unique(experts.begin(), experts.end()), experts.end());
      EXPECT_GE(experts.front(), 0);
      EXPECT_LT(experts.back(), 4);
    }
  }
}

/*! \brief Experts with random matrices, and a reference computed with `Linear` and `GatedMul`. */
struct Layer {
  ExpertRouting routing;
  int64_t size, inner;
  std::vector<MatrixSegment> gate_up_layout, down_layout;
  Bytes gate_up, down;
  Activation activation = Activation::kSilu;
  Floats gate_up_bias, down_bias;  // Empty, or of all experts.

  Layer(const ExpertFormats& formats, ExpertRouting routing, int64_t size, int64_t inner)
      : routing(routing),
        size(size),
        inner(inner),
        gate_up_layout(Segments(formats.gate_up, 2 * inner)),
        down_layout(Segments(formats.down, size)) {
    for (uint32_t expert = 0; expert < routing.num_experts; ++expert) {
      Append(RandomMatrix(gate_up_layout, size, 1 + 8 * expert), gate_up);
      Append(RandomMatrix(down_layout, inner, 5 + 8 * expert), down);
    }
  }

  /*! \brief Give the experts biases and another activation. */
  void SetBiased(Activation other) {
    activation = other;
    gate_up_bias = RandomFloats(routing.num_experts * 2 * inner, 21, 4.0f);
    down_bias = RandomFloats(routing.num_experts * size, 22);
  }

  /*! \return The bias of an expert with `outputs` outputs, or null. */
  static const float* BiasOf(const Floats& biases, int64_t expert, int64_t outputs) {
    return biases.empty() ? nullptr : biases.data() + expert * outputs;
  }

  static void Append(const RandomMatrix& matrix, Bytes& matrices) {
    matrices.insert(matrices.end(), matrix.packed.begin(), matrix.packed.end());
  }

  Floats Forward(ThreadPool& pool, const float* x, const float* logits, int64_t rows,
                 const float* shared = nullptr, const float* shared_gate = nullptr) const {
    Floats out(rows * size, -1.0f);
    ExpertsCall call;
    call.routing = routing;
    call.logits = logits;
    call.x = x;
    call.rows = rows;
    call.size = size;
    call.inner = inner;
    call.gate_up_layout = gate_up_layout;
    call.down_layout = down_layout;
    call.gate_up = gate_up.data();
    call.down = down.data();
    call.activation = activation;
    call.gate_up_bias = BiasOf(gate_up_bias, 0, 0);
    call.down_bias = BiasOf(down_bias, 0, 0);
    call.shared = shared;
    call.shared_gate = shared_gate;
    call.out = out.data();
    MixtureOfExperts(pool, call);
    return out;
  }

  /*! \return The expected output, computed one row and one expert at a time. */
  Floats Reference(const float* x, const float* logits, int64_t rows) const {
    Floats out(rows * size, 0.0f);
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int32_t> experts(routing.experts_per_row);
      Floats weights(routing.experts_per_row);
      SelectExperts(routing, logits + row * routing.num_experts, experts.data(), weights.data());
      std::vector<size_t> order(routing.experts_per_row);
      std::iota(order.begin(), order.end(), size_t{0});
      std::sort(order.begin(), order.end(),
                [&](size_t a, size_t b) { return experts[a] < experts[b]; });
      for (const size_t i : order) {
        const Floats result = Expert(experts[i], x + row * size);
        for (int64_t k = 0; k < size; ++k) out[row * size + k] += weights[i] * result[k];
      }
    }
    return out;
  }

  Floats Expert(int64_t expert, const float* x) const {
    ThreadPool one(1);
    const uint8_t* first = gate_up.data() + expert * PackedMatrixBytes(gate_up_layout, size);
    const uint8_t* second = down.data() + expert * PackedMatrixBytes(down_layout, inner);
    Floats gate_ups(2 * inner), gated(inner), result(size);
    Linear(one, gate_up_layout, first, size, x, FloatType::kF32, 1,
           BiasOf(gate_up_bias, expert, 2 * inner), gate_ups.data(), FloatType::kF32);
    GatedMul(one, activation, gate_ups.data(), 1, inner, gated.data());
    Linear(one, down_layout, second, inner, gated.data(), FloatType::kF32, 1,
           BiasOf(down_bias, expert, size), result.data(), FloatType::kF32);
    return result;
  }
};

struct Shape {
  ExpertRouting routing;
  int64_t size, inner;
};

class ExpertsOnTier : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { SetIsa(GetParam()); }
  void TearDown() override { SetIsa(before_); }

 private:
  Isa before_ = ActiveIsa();
};

TEST_P(ExpertsOnTier, ARowIsTheWeightedSumOfItsExperts) {
  ThreadPool pool(2);
  for (const ExpertFormats& formats : kFormats) {
    for (const Shape& shape :
         {Shape{{1, 1, true}, 16, 16}, Shape{{4, 2, false}, 48, 80}, Shape{{9, 4, true}, 112, 48},
          Shape{{16, 16, true}, 32, 64}, Shape{{33, 3, false}, 80, 32}}) {
      Layer layer(formats, shape.routing, shape.size, shape.inner);
      if (shape.routing.num_experts % 2 == 0) layer.SetBiased(Activation::kClampedSwiGlu);
      for (const int64_t rows : kBatches) {
        SCOPED_TRACE(std::to_string(shape.routing.num_experts) + " experts, " +
                     std::to_string(rows) + " rows, format " + std::string(formats.gate_up[0]));
        const Floats x = RandomFloats(rows * shape.size, 3);
        const Floats logits = RandomFloats(rows * shape.routing.num_experts, 4);
        EXPECT_EQ(layer.Forward(pool, x.data(), logits.data(), rows),
                  layer.Reference(x.data(), logits.data(), rows));
      }
    }
  }
}

TEST_P(ExpertsOnTier, ARowHasTheSameBitsAloneAndInAnyBatch) {
  constexpr int64_t kSize = 208, kExperts = 11, kRows = 130;
  ThreadPool pool(2), one(1);
  for (const ExpertFormats& formats : kFormats) {
    const Layer layer(formats, {kExperts, 3, true}, kSize, 176);
    const Floats x = RandomFloats(kRows * kSize, 5), logits = RandomFloats(kRows * kExperts, 6);
    const Floats all = layer.Forward(pool, x.data(), logits.data(), kRows);
    for (const int64_t m : kBatches) {
      for (const int64_t first : {int64_t{0}, (kRows - m) / 2, kRows - m}) {
        const Floats part =
            layer.Forward(one, x.data() + first * kSize, logits.data() + first * kExperts, m);
        EXPECT_EQ(part, Floats(all.begin() + first * kSize, all.begin() + (first + m) * kSize));
      }
    }
  }
}

TEST_P(ExpertsOnTier, ExpertsMayBeSelectedByAllRowsOrByNone) {
  constexpr int64_t kSize = 64, kExperts = 5, kRows = 40;
  ThreadPool pool(2);
  const Layer layer(kFormats[0], {kExperts, 2, true}, kSize, 48);
  const Floats x = RandomFloats(kRows * kSize, 7);
  Floats logits(kRows * kExperts, 0.0f);
  for (int64_t row = 0; row < kRows; ++row) logits[row * kExperts + 3] = 2.0f;

  EXPECT_EQ(layer.Forward(pool, x.data(), logits.data(), kRows),
            layer.Reference(x.data(), logits.data(), kRows));
  EXPECT_EQ(layer.Forward(pool, x.data(), logits.data(), 0), Floats());
}

TEST_P(ExpertsOnTier, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kSize = 64, kExperts = 6, kRows = 5;
  ThreadPool pool(1);
  for (const ExpertFormats& formats : kFormats) {
    const Layer layer(formats, {kExperts, 2, true}, kSize, 48);
    Floats x = RandomFloats(kRows * kSize, 8), logits = RandomFloats(kRows * kExperts, 9);
    const Floats expected = layer.Forward(pool, x.data(), logits.data(), kRows);
    x[2 * kSize + 40] = std::numeric_limits<float>::infinity();
    logits[3 * kExperts] = std::numeric_limits<float>::quiet_NaN();
    const Floats actual = layer.Forward(pool, x.data(), logits.data(), kRows);
    for (const int64_t row : {0, 1, 4}) {
      EXPECT_EQ(BitsOf(&actual[row * kSize], kSize), BitsOf(&expected[row * kSize], kSize));
    }
    for (int64_t i = 2 * kSize; i < 4 * kSize; ++i) EXPECT_FALSE(std::isfinite(actual[i])) << i;
  }
}

TEST_P(ExpertsOnTier, SharedExpertsAreScaledByTheSigmoidOfTheirGate) {
  constexpr int64_t kSize = 48, kExperts = 4, kRows = 21;
  ThreadPool pool(2);
  const Layer layer(kFormats[2], {kExperts, 2, true}, kSize, 32);
  const Floats x = RandomFloats(kRows * kSize, 12), logits = RandomFloats(kRows * kExperts, 13);
  const Floats shared = RandomFloats(kRows * kSize, 14), gate = RandomFloats(kRows, 15, 4.0f);
  const Floats routed = layer.Forward(pool, x.data(), logits.data(), kRows);

  const Floats all =
      layer.Forward(pool, x.data(), logits.data(), kRows, shared.data(), gate.data());

  for (int64_t i = 0; i < kRows * kSize; ++i) {
    const double weight = 1 / (1 + std::exp(-double{gate[i / kSize]}));
    EXPECT_NEAR(all[i], routed[i] + weight * shared[i], 1e-5) << i;
  }
  const Floats last = layer.Forward(pool, &x[(kRows - 1) * kSize], &logits[(kRows - 1) * kExperts],
                                    1, &shared[(kRows - 1) * kSize], &gate[kRows - 1]);
  EXPECT_EQ(last, Floats(all.end() - kSize, all.end()));
}

INSTANTIATE_TEST_SUITE_P(Tiers, ExpertsOnTier, ::testing::ValuesIn(SupportedTiers()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

TEST(Experts, Q4ExpertsHaveTheSameBitsOnEveryTierAndAnyNumberOfThreads) {
  // Large enough that the tiles are divided among threads, and the rows of an expert into blocks.
  constexpr int64_t kSize = 528, kExperts = 6, kRows = 900;
  const Layer layer(kFormats[0], {kExperts, 3, false}, kSize, 304);
  const Floats x = RandomFloats(kRows * kSize, 10), logits = RandomFloats(kRows * kExperts, 11);
  ThreadPool one(1);
  const Floats expected = layer.Forward(one, x.data(), logits.data(), kRows);
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    for (const int threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(std::string(IsaName(isa)) + ", " + std::to_string(threads) + " threads");
      ThreadPool pool(threads);
      for (const int64_t m : {int64_t{1}, int64_t{40}, kRows}) {
        EXPECT_EQ(layer.Forward(pool, x.data(), logits.data(), m),
                  Floats(expected.begin(), expected.begin() + m * kSize));
      }
    }
  }
}

}  // namespace
}  // namespace aiomlc
