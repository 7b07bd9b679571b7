/*!
 * \file metrics/histogram.h
 * \brief A histogram with fixed buckets.
 */
#ifndef AIOMLC_METRICS_HISTOGRAM_H_
#define AIOMLC_METRICS_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace aiomlc {

/*! \brief The ascending, inclusive upper bounds of all buckets except the unbounded last one. */
using HistogramBounds = std::array<double, 16>;

inline constexpr HistogramBounds kSecondsBounds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
inline constexpr HistogramBounds kCountBounds = {1,   2,   4,    8,    16,   32,   64,    128,
                                                 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};

/*! \brief Counts per bucket; copyable, so that a snapshot is a copy. */
class Histogram {
 public:
  /*! \param bounds Not owned; one of the constants above. */
  explicit Histogram(const HistogramBounds& bounds) : bounds_(&bounds) {}

  void Observe(double value) {
    const auto bound = std::lower_bound(bounds_->begin(), bounds_->end(), value);
    ++counts_[static_cast<size_t>(bound - bounds_->begin())];
    sum_ += value;
  }

  const HistogramBounds& bounds() const { return *bounds_; }
  /*! \brief The count of each bucket (not cumulative); the last bucket is above all bounds. */
  const std::array<int64_t, 17>& counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  const HistogramBounds* bounds_;
  std::array<int64_t, 17> counts_{};
  double sum_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_HISTOGRAM_H_
