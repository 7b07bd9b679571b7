#include "sampling/logits.h"

#include <algorithm>
#include <limits>

#include "kernels/elementwise/elementwise.h"

namespace aiomlc {

namespace {

// Independent lanes let the compiler vectorize the loops.
constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 1024;

}  // namespace

float MaxLogit(const float* logits, int64_t size) {
  float largest[kLanes];
  int32_t is_nan[kLanes] = {};
  std::fill(largest, largest + kLanes, -std::numeric_limits<float>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      largest[lane] = logit > largest[lane] ? logit : largest[lane];
      is_nan[lane] |= logit != logit;
    }
  }
  for (; i < size; ++i) {
    largest[0] = std::max(largest[0], logits[i]);
    is_nan[0] |= logits[i] != logits[i];
  }
  if (std::any_of(is_nan, is_nan + kLanes, [](int32_t flag) { return flag != 0; })) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return *std::max_element(largest, largest + kLanes);
}

double SumWeights(const float* weights, int64_t size, double lowest) {
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double weight = weights[i + lane];
      sums[lane] += weight >= lowest ? weight : 0.0;
    }
  }
  for (; i < size; ++i) sums[0] += weights[i] >= lowest ? weights[i] : 0.0;
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

double SumExp(const float* logits, int64_t size, float max_logit) {
  float weights[kChunk];
  double total = 0;
  for (int64_t begin = 0; begin < size; begin += kChunk) {
    const int64_t count = std::min(kChunk, size - begin);
    ExpScaled(logits + begin, max_logit, 1.0f, count, weights);
    total += SumWeights(weights, count);
  }
  return total;
}

}  // namespace aiomlc
