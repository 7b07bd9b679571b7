#include "sampling/logits.h"

#include <algorithm>

#include "kernels/elementwise/elementwise.h"

namespace aiomlc {

namespace {

// Independent lanes let the compiler vectorize the loops.
constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 1024;

}  // namespace

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
