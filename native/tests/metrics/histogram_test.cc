#include "metrics/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace aiomlc {
namespace {

TEST(HistogramTest, BucketBoundsAreInclusive) {
  Histogram histogram(kCountBounds);
  for (double value : {1.0, 2.0, 2.5, 4.0}) histogram.Observe(value);

  EXPECT_EQ(histogram.counts()[0], 1);
  EXPECT_EQ(histogram.counts()[1], 1);
  EXPECT_EQ(histogram.counts()[2], 2);
  EXPECT_DOUBLE_EQ(histogram.sum(), 9.5);
}

TEST(HistogramTest, TheLastBucketIsUnbounded) {
  Histogram histogram(kSecondsBounds);
  histogram.Observe(60.1);
  histogram.Observe(1e9);

  EXPECT_EQ(histogram.counts().back(), 2);
  EXPECT_EQ(std::accumulate(histogram.counts().begin(), histogram.counts().end(), int64_t{0}), 2);
}

}  // namespace
}  // namespace aiomlc
