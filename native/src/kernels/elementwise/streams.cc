#include "kernels/elementwise/streams.h"

#include <algorithm>
#include <cmath>

namespace aiomlc {

namespace {

/*! \brief The elements of a task; for fewer, waking a thread costs more than the work. */
constexpr int64_t kElementsPerTask = 16384;
/*! \brief Independent partial sums, which a compiler may keep in one vector. */
constexpr int64_t kLanes = 16;
constexpr float kSmallestMean = 1e-5f;

void ForRows(ThreadPool& pool, int64_t rows, int64_t size, FunctionRef<void(int64_t)> function) {
  const int64_t per_task = std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, size));
  pool.Run(static_cast<int>((rows + per_task - 1) / per_task), [&](int task) {
    const int64_t end = std::min(rows, (task + 1) * per_task);
    for (int64_t row = task * per_task; row < end; ++row) function(row);
  });
}

/*! \return The mean of (x - shift)^power for power 1 or 2, in an order that only `size` determines.
 */
template <int kPower>
float Mean(const float* x, float shift, int64_t size) {
  float sums[kLanes] = {};
  for (int64_t i = 0; i < size; ++i) {
    const float value = x[i] - shift;
    sums[i % kLanes] += kPower == 2 ? value * value : value;
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum / static_cast<float>(size);
}

}  // namespace

void PredictStreams(ThreadPool& pool, const StreamShape& shape, const float* x,
                    const float* coefficients, float* out) {
  const auto [rows, count, size] = shape;
  ForRows(pool, rows, count * count * size, [&, count = count, size = size](int64_t row) {
    const float* source = x + row * count * size;
    for (int64_t s = 0; s < count; ++s) {
      const float* factors = coefficients + (row * count + s) * count;
      float* target = out + (row * count + s) * size;
      std::copy_n(source + s * size, size, target);
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t i = 0; i < size; ++i) target[i] += factors[t] * source[t * size + i];
      }
    }
  });
}

void CorrectStreams(ThreadPool& pool, const StreamShape& shape, int64_t active,
                    const float* predicted, const float* activated, const float* coefficients,
                    float* out) {
  const auto [rows, count, size] = shape;
  ForRows(pool, rows, count * size, [&, count = count, size = size](int64_t row) {
    const float* source = predicted + row * count * size;
    const float* base = source + active * size;
    const float* value = activated + row * size;
    for (int64_t s = 0; s < count; ++s) {
      const float factor = coefficients[row * count + s] + 1.0f;
      float* target = out + (row * count + s) * size;
      for (int64_t i = 0; i < size; ++i) {
        target[i] = source[s * size + i] + factor * (value[i] - base[i]);
      }
    }
  });
}

void AddToLaterStreams(ThreadPool& pool, const StreamShape& shape, const float* x,
                       const float* update, float* out) {
  const auto [rows, count, size] = shape;
  ForRows(pool, rows, count * size, [&, count = count, size = size](int64_t row) {
    const float* source = x + row * count * size;
    float* target = out + row * count * size;
    std::copy_n(source, size, target);
    for (int64_t s = 1; s < count; ++s) {
      for (int64_t i = 0; i < size; ++i) {
        target[s * size + i] = source[s * size + i] + update[row * size + i];
      }
    }
  });
}

void MatchMagnitude(ThreadPool& pool, const float* x, const float* target, int64_t rows,
                    int64_t size, float* out) {
  ForRows(pool, rows, size, [&](int64_t row) {
    const float* source = x + row * size;
    const float wanted = std::sqrt(Mean<2>(target + row * size, 0.0f, size));
    const float own = std::sqrt(std::max(Mean<2>(source, 0.0f, size), kSmallestMean));
    for (int64_t i = 0; i < size; ++i) out[row * size + i] = source[i] * wanted / own;
  });
}

void MultiplyColumns(ThreadPool& pool, const float* x, const float* weight, int64_t rows,
                     int64_t size, float* out) {
  ForRows(pool, rows, size, [&](int64_t row) {
    for (int64_t i = 0; i < size; ++i) out[row * size + i] = x[row * size + i] * weight[i];
  });
}

void CutGates(ThreadPool& pool, const float* gate_up, float deviations, int64_t rows, int64_t size,
              float* out) {
  ForRows(pool, rows, 2 * size, [&](int64_t row) {
    const float* gates = gate_up + row * 2 * size;
    float* target = out + row * 2 * size;
    const float mean = Mean<1>(gates, 0.0f, size);
    const float cutoff = mean + std::sqrt(Mean<2>(gates, mean, size)) * deviations;
    for (int64_t i = 0; i < size; ++i) target[i] = std::max(gates[i] - cutoff, 0.0f);
    std::copy_n(gates + size, size, target + size);
  });
}

}  // namespace aiomlc
