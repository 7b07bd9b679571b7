#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/linear/fused_linear.h"
#include "kernels/linear/linear.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/random_matrix.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;

/*! \brief The formats of the segments of both matrices. */
struct LayerFormats {
  SegmentFormats up, down;
};

constexpr LayerFormats kLayerFormats[] = {{{"f32"}, {"f32"}},
                                          {{"f16"}, {"bf16"}},
                                          {{"bf16"}, {"f32"}},
                                          {{"q4"}, {"q4"}},
                                          {{"u8g32f16z128"}, {"u8g32f16z128"}},
                                          {{"i8channel"}, {"i8channel"}}};

struct Layer {
  int64_t size, inner;
  RandomMatrix up, down;
  Floats up_bias, down_bias;

  Layer(int64_t size, int64_t inner, const LayerFormats& formats)
      : size(size),
        inner(inner),
        up(Segments(formats.up, inner), size, 1),
        down(Segments(formats.down, size), inner, 2),
        up_bias(RandomFloats(inner, 3)),
        down_bias(RandomFloats(size, 4)) {}

  Floats Fused(ThreadPool& pool, const float* x, int64_t rows) const {
    Floats out(rows * size);
    FeedForward(pool, x, rows, size, {{up.layout, up.packed.data()}, up_bias.data()},
                ActiveRowKernels().gelu, {{down.layout, down.packed.data()}, down_bias.data()},
                out.data());
    return out;
  }

  Floats Separate(ThreadPool& pool, const float* x, int64_t rows) const {
    Floats values(rows * inner), out(rows * size);
    Linear(pool, up.layout, up.packed.data(), size, x, FloatType::kF32, rows, up_bias.data(),
           values.data(), FloatType::kF32);
    Gelu(pool, values.data(), rows * inner, values.data());
    Linear(pool, down.layout, down.packed.data(), inner, values.data(), FloatType::kF32, rows,
           down_bias.data(), out.data(), FloatType::kF32);
    return out;
  }
};

/*! \brief The parameters are a tier, and an index of kLayerFormats. */
class FeedForwardOnTier : public ::testing::TestWithParam<std::tuple<Isa, size_t>> {};

TEST_P(FeedForwardOnTier, EqualsTheSeparateKernelsInAnyBatch) {
  const TierScope tier(std::get<0>(GetParam()));
  const LayerFormats& formats = kLayerFormats[std::get<1>(GetParam())];
  for (const auto& [size, inner] : std::vector<std::pair<int64_t, int64_t>>{
           {32, 64}, {1, 16}, {31, 48}, {70, 112}, {200, 400}}) {
    const Layer layer(size, inner, formats);
    constexpr int64_t kRows = 330;
    const Floats x = RandomFloats(kRows * size, 5);
    ThreadPool one(1), pool(3);
    const Floats expected = layer.Separate(one, x.data(), kRows);
    for (const int64_t rows : {int64_t{1}, int64_t{2}, int64_t{17}, int64_t{130}, kRows}) {
      SCOPED_TRACE(std::to_string(size) + " by " + std::to_string(inner) + ", " +
                   std::to_string(rows) + " rows");
      const int64_t first = (kRows - rows) / 2;
      const Floats actual = layer.Fused(pool, x.data() + first * size, rows);
      EXPECT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin() + first * size));
    }
  }
}

TEST_P(FeedForwardOnTier, MayOverwriteItsInput) {
  const TierScope tier(std::get<0>(GetParam()));
  const Layer layer(48, 96, kLayerFormats[std::get<1>(GetParam())]);
  ThreadPool pool(2);
  for (const int64_t rows : {1, 40}) {
    Floats x = RandomFloats(rows * layer.size, 6);
    const Floats expected = layer.Fused(pool, x.data(), rows);
    FeedForward(pool, x.data(), rows, layer.size,
                {{layer.up.layout, layer.up.packed.data()}, layer.up_bias.data()},
                ActiveRowKernels().gelu,
                {{layer.down.layout, layer.down.packed.data()}, layer.down_bias.data()}, x.data());
    EXPECT_EQ(x, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, FeedForwardOnTier,
                         ::testing::Combine(::testing::ValuesIn(SupportedTiers()),
                                            ::testing::Range(size_t{0}, std::size(kLayerFormats))),
                         [](const auto& info) {
                           return std::string(IsaName(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace aiomlc
