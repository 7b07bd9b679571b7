#include "kernels/linear/fused_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/random_matrix.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr float kEps = 1e-5f;
constexpr int64_t kBatches[] = {1, 2, 5, 16, 17, 130};

/*! \brief The formats of segments in a layer's matrices. */
struct LayerFormats {
  SegmentFormats matrix, gate_up, down;
};

constexpr LayerFormats kLayerFormats[] = {
    {{"q4"}, {"q4"}, {"q4"}},
    {{"u4g32k8m"}, {"u4g128f16zp"}, {"u8g32f16z128"}},
    {{"u4g32k8m", "u4g32k8m", "u6g16k8sz32"}, {"u4g32k8m", "u5g32f16m"}, {"u6g16k8sz32"}},
    {{"i8channel"}, {"i8channel", "i8channel"}, {"i8channel"}},
    {{"i8channel"}, {"u4g32k8m"}, {"i8channel"}},
    {{"i4progressive"}, {"i4progressive", "i4progressive"}, {"i4progressive"}},
    {{"u4g32k8m"}, {"i4progressive"}, {"i8channel"}},
    {{"i8rotated"}, {"i8rotated"}, {"i8rotated"}},
    {{"bf16"}, {"bf16", "bf16"}, {"bf16"}},
    {{"u4g32k8m"}, {"q4"}, {"bf16"}},
    {{"u3g8f16z3", "iq4nlg32f16"}, {"q4"}, {"u2g16k8m"}}};

/*! \brief The bytes of the output and of the sum x + residual. */
struct Result {
  Bytes out;
  Bytes total;
};

void ExpectSame(const Result& actual, const Result& expected) {
  EXPECT_EQ(actual.out, expected.out);
  EXPECT_EQ(actual.total, expected.total);
}

/*! \return Rows [begin, begin + count) of the result of a call with all rows. */
Result RowsOf(const Result& all, int64_t rows, int64_t begin, int64_t count) {
  const auto part = [&](const Bytes& bytes) {
    const int64_t row_bytes = static_cast<int64_t>(bytes.size()) / rows;
    return Bytes(bytes.begin() + begin * row_bytes, bytes.begin() + (begin + count) * row_bytes);
  };
  return {part(all.out), part(all.total)};
}

QuantizedMatrix Quantized(const RandomMatrix& matrix) {
  return {matrix.layout, matrix.packed.data()};
}

/*! \brief A norm and its next layers, computed by one fused kernel or by separate kernels. */
struct Layer {
  int64_t size, outputs, inner;
  Floats norm, bias;
  RandomMatrix matrix, gate_up, down;

  Layer(int64_t size, int64_t outputs, int64_t inner,
        const LayerFormats& formats = kLayerFormats[0])
      : size(size),
        outputs(outputs),
        inner(inner),
        norm(RandomFloats(size, 1)),
        bias(RandomFloats(outputs, 2)),
        matrix(Segments(formats.matrix, outputs), size, 3),
        gate_up(Segments(formats.gate_up, 2 * inner), size, 4),
        down(Segments(formats.down, size), inner, 5) {}

  AddNormCall Norm(const float* x, const float* residual, int64_t m, FloatTensor& total) const {
    return {x, residual, norm.data(), kEps, m, size, reinterpret_cast<float*>(total.data())};
  }

  Result FusedLinear(ThreadPool& pool, const float* x, const float* residual, int64_t m,
                     FloatType type, bool has_bias) const {
    FloatTensor out(type, m * outputs), total(FloatType::kF32, m * size);
    AddNormLinear(pool, Norm(x, residual, m, total), Quantized(matrix),
                  has_bias ? bias.data() : nullptr, out.data(), type);
    return {out.bytes(), total.bytes()};
  }

  Result SeparateLinear(ThreadPool& pool, const float* x, const float* residual, int64_t m,
                        FloatType type, bool has_bias) const {
    FloatTensor out(type, m * outputs), total(FloatType::kF32, m * size);
    const Floats normed = Normed(pool, x, residual, m, total);
    Linear(pool, matrix.layout, matrix.packed.data(), size, normed.data(), FloatType::kF32, m,
           has_bias ? bias.data() : nullptr, out.data(), type);
    return {out.bytes(), total.bytes()};
  }

  Result FusedFeedForward(ThreadPool& pool, const float* x, const float* residual, int64_t m,
                          Activation activation = Activation::kSilu) const {
    FloatTensor out(FloatType::kF32, m * size), total(FloatType::kF32, m * size);
    AddNormFeedForward(pool, Norm(x, residual, m, total), Quantized(gate_up), activation,
                       Quantized(down), reinterpret_cast<float*>(out.data()));
    return {out.bytes(), total.bytes()};
  }

  Result SeparateFeedForward(ThreadPool& pool, const float* x, const float* residual, int64_t m,
                             Activation activation = Activation::kSilu) const {
    FloatTensor out(FloatType::kF32, m * size), total(FloatType::kF32, m * size);
    const Floats normed = Normed(pool, x, residual, m, total);
    Floats gates(m * 2 * inner), gated(m * inner);
    Linear(pool, gate_up.layout, gate_up.packed.data(), size, normed.data(), FloatType::kF32, m,
           nullptr, gates.data(), FloatType::kF32);
    GatedMul(pool, activation, gates.data(), m, inner, gated.data());
    Linear(pool, down.layout, down.packed.data(), inner, gated.data(), FloatType::kF32, m, nullptr,
           out.data(), FloatType::kF32);
    return {out.bytes(), total.bytes()};
  }

 private:
  Floats Normed(ThreadPool& pool, const float* x, const float* residual, int64_t m,
                FloatTensor& total) const {
    Floats normed(m * size);
    AddRmsNorm(pool, x, residual, norm.data(), kEps, m, size, normed.data(),
               reinterpret_cast<float*>(total.data()));
    return normed;
  }
};

/*! \brief The parameters are a tier, and an index of kLayerFormats. */
class FusedLinearOnTier : public ::testing::TestWithParam<std::tuple<Isa, size_t>> {
 protected:
  void SetUp() override { SetIsa(std::get<0>(GetParam())); }
  void TearDown() override { SetIsa(previous_); }
  static const LayerFormats& Formats() { return kLayerFormats[std::get<1>(GetParam())]; }

 private:
  Isa previous_ = ActiveIsa();
};

TEST_P(FusedLinearOnTier, AddNormLinearEqualsTheSeparateKernels) {
  ThreadPool pool(2);
  for (const auto& [size, outputs] : std::vector<std::pair<int64_t, int64_t>>{
           {32, 16}, {1, 1}, {31, 17}, {96, 40}, {70, 100}, {257, 7}}) {
    const Layer layer(size, outputs, 16, Formats());
    for (const int64_t m : kBatches) {
      SCOPED_TRACE(std::to_string(size) + " to " + std::to_string(outputs) + ", " +
                   std::to_string(m) + " rows");
      const Floats x = RandomFloats(m * size, 6), residual = RandomFloats(m * size, 7, 3.0f);
      for (const FloatType type : {FloatType::kF32, FloatType::kF16}) {
        for (const bool has_bias : {false, true}) {
          ExpectSame(layer.FusedLinear(pool, x.data(), residual.data(), m, type, has_bias),
                     layer.SeparateLinear(pool, x.data(), residual.data(), m, type, has_bias));
        }
      }
    }
  }
}

TEST_P(FusedLinearOnTier, AddNormFeedForwardEqualsTheSeparateKernels) {
  ThreadPool pool(2);
  for (const auto& [size, inner] : std::vector<std::pair<int64_t, int64_t>>{
           {32, 64}, {1, 16}, {31, 48}, {96, 112}, {70, 80}, {257, 272}}) {
    const Layer layer(size, 1, inner, Formats());
    for (const int64_t m : kBatches) {
      SCOPED_TRACE(std::to_string(size) + " by " + std::to_string(inner) + ", " +
                   std::to_string(m) + " rows");
      const Floats x = RandomFloats(m * size, 6), residual = RandomFloats(m * size, 7, 3.0f);
      for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
        ExpectSame(layer.FusedFeedForward(pool, x.data(), residual.data(), m, activation),
                   layer.SeparateFeedForward(pool, x.data(), residual.data(), m, activation));
      }
    }
  }
}

TEST_P(FusedLinearOnTier, ARowHasTheSameBitsAloneAndInAnyBatch) {
  constexpr int64_t kSize = 200, kOutputs = 83, kRows = 130;
  const Layer layer(kSize, kOutputs, 176, Formats());
  const Floats x = RandomFloats(kRows * kSize, 8), residual = RandomFloats(kRows * kSize, 9);
  ThreadPool pool(2), one(1);
  const Result linear =
      layer.FusedLinear(pool, x.data(), residual.data(), kRows, FloatType::kF32, true);
  const Result feed_forward = layer.FusedFeedForward(pool, x.data(), residual.data(), kRows);
  for (const int64_t m : kBatches) {
    for (const int64_t first : {int64_t{0}, (kRows - m) / 2, kRows - m}) {
      const float* part_x = x.data() + first * kSize;
      const float* part_residual = residual.data() + first * kSize;
      ExpectSame(layer.FusedLinear(one, part_x, part_residual, m, FloatType::kF32, true),
                 RowsOf(linear, kRows, first, m));
      ExpectSame(layer.FusedFeedForward(one, part_x, part_residual, m),
                 RowsOf(feed_forward, kRows, first, m));
    }
  }
}

TEST_P(FusedLinearOnTier, ANonFiniteRowDoesNotAffectOtherRows) {
  constexpr int64_t kSize = 64, kRows = 4;
  const Layer layer(kSize, 20, 48, Formats());
  const Floats finite = RandomFloats(kRows * kSize, 10), residual = RandomFloats(kRows * kSize, 11);
  ThreadPool pool(1);
  const Result expected = layer.FusedFeedForward(pool, finite.data(), residual.data(), kRows);
  for (const float non_finite :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Floats x = finite;
    x[2 * kSize + 40] = non_finite;
    const Result actual = layer.FusedFeedForward(pool, x.data(), residual.data(), kRows);
    for (const int64_t row : {0, 1, 3}) {
      ExpectSame(RowsOf(actual, kRows, row, 1), RowsOf(expected, kRows, row, 1));
    }
    const Bytes out = RowsOf(actual, kRows, 2, 1).out;
    for (int64_t i = 0; i < kSize; ++i) {
      float value;
      std::memcpy(&value, &out[i * sizeof(float)], sizeof(float));
      EXPECT_FALSE(std::isfinite(value)) << i;
    }
  }
}

TEST_P(FusedLinearOnTier, TheSumMayOverwriteAnInput) {
  constexpr int64_t kSize = 48, kRows = 17;
  const Layer layer(kSize, 20, 32, Formats());
  const Floats x = RandomFloats(kRows * kSize, 12), residual = RandomFloats(kRows * kSize, 13);
  ThreadPool pool(2);
  const Result expected = layer.FusedFeedForward(pool, x.data(), residual.data(), kRows);
  FloatTensor total(FloatType::kF32, residual), out(FloatType::kF32, kRows * kSize);

  AddNormFeedForward(
      pool, layer.Norm(x.data(), reinterpret_cast<const float*>(total.data()), kRows, total),
      Quantized(layer.gate_up), Activation::kSilu, Quantized(layer.down),
      reinterpret_cast<float*>(out.data()));

  ExpectSame({out.bytes(), total.bytes()}, expected);
}

INSTANTIATE_TEST_SUITE_P(Tiers, FusedLinearOnTier,
                         ::testing::Combine(::testing::ValuesIn(SupportedTiers()),
                                            ::testing::Range(size_t{0}, std::size(kLayerFormats))),
                         [](const auto& info) {
                           return std::string(IsaName(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(FusedLinear, HasTheSameBitsOnEveryTierAndAnyNumberOfThreads) {
  // Large enough that tiles and rows are both divided among the threads, and blocks into parts.
  constexpr int64_t kSize = 520, kRows = 700;
  const Layer layer(kSize, 300, 528, kLayerFormats[2]);
  const Floats x = RandomFloats(kRows * kSize, 14), residual = RandomFloats(kRows * kSize, 15);
  ThreadPool one(1);
  const Result linear =
      layer.SeparateLinear(one, x.data(), residual.data(), kRows, FloatType::kF16, false);
  const Result feed_forward = layer.SeparateFeedForward(one, x.data(), residual.data(), kRows);
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    for (const int threads : {1, 2, 3, 5}) {
      SCOPED_TRACE(std::string(IsaName(isa)) + ", " + std::to_string(threads) + " threads");
      ThreadPool pool(threads);
      for (const int64_t m : {int64_t{1}, int64_t{40}, kRows}) {
        ExpectSame(layer.FusedLinear(pool, x.data(), residual.data(), m, FloatType::kF16, false),
                   RowsOf(linear, kRows, 0, m));
        ExpectSame(layer.FusedFeedForward(pool, x.data(), residual.data(), m),
                   RowsOf(feed_forward, kRows, 0, m));
      }
    }
  }
}

}  // namespace
}  // namespace aiomlc
