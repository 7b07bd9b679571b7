/*!
 * \file benchmarks/kernels_linear.cc
 * \brief The bandwidth and the throughput of linear layers, per tier, weight format and batch size.
 *
 * Build the target `kernels_linear` with AIOMLC_TESTS=ON. Usage: kernels_linear [threads] [tier].
 * Consecutive calls use different copies of the weights, which together exceed the caches, like the
 * layers of a model. "memory" is the bandwidth of plain reading of the same bytes.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/cpu_info.h"
#include "platform/isa.h"

namespace {

using aiomlc::FloatType;
using aiomlc::Isa;
using aiomlc::ThreadPool;
using aiomlc::WeightFormat;
using Clock = std::chrono::steady_clock;

constexpr int64_t kOutputs = 8192;
constexpr int64_t kInputs = 2048;
constexpr size_t kTotalBytes = size_t{192} << 20;

/*! \return The time of the fastest of several calls, in seconds. */
template <typename Work>
double Fastest(double budget_seconds, Work work) {
  double fastest = 1e9;
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(budget_seconds));
  int calls = 0;
  do {
    const Clock::time_point start = Clock::now();
    work(calls++);
    fastest = std::min(fastest, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() < end || calls < 3);
  return fastest;
}

/*! \brief Copies of a random matrix, kTotalBytes in total. */
struct Matrices {
  WeightFormat format;
  size_t bytes;
  std::vector<std::vector<uint8_t>> copies;

  explicit Matrices(WeightFormat format)
      : format(format), bytes(aiomlc::PackedMatrixBytes(format, kOutputs, kInputs)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::vector<float> weights(kOutputs * kInputs);
    for (float& weight : weights) weight = normal(random);
    copies.emplace_back(bytes);
    aiomlc::PackMatrixF32(format, weights.data(), kOutputs, kInputs, 0, kOutputs, copies[0].data());
    while (copies.size() * bytes < kTotalBytes) copies.push_back(copies[0]);
  }
};

double ReadingSeconds(ThreadPool& pool, const Matrices& matrices) {
  std::atomic<uint64_t> sink{0};  // Prevents the compiler from removing the sums.
  return Fastest(0.5, [&](int call) {
    const std::vector<uint8_t>& copy = matrices.copies[call % matrices.copies.size()];
    constexpr int kParts = 16;
    pool.Run(kParts, [&](int part) {
      const uint64_t* words = reinterpret_cast<const uint64_t*>(copy.data());
      const size_t count = copy.size() / 8;
      uint64_t sum = 0;
      for (size_t i = count * part / kParts; i < count * (part + 1) / kParts; ++i) sum += words[i];
      sink.fetch_add(sum, std::memory_order_relaxed);
    });
  });
}

double LinearSeconds(ThreadPool& pool, const Matrices& matrices, int64_t m) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> x(m * kInputs);
  for (float& value : x) value = normal(random);
  std::vector<float> out(m * kOutputs);
  return Fastest(0.5, [&](int call) {
    const void* packed = matrices.copies[call % matrices.copies.size()].data();
    aiomlc::Linear(pool, matrices.format, packed, kOutputs, kInputs, x.data(), FloatType::kF32, m,
                   nullptr, out.data(), FloatType::kF32);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : aiomlc::PhysicalCores();
  const Isa highest = argc > 2 ? aiomlc::ParseIsa(argv[2]) : aiomlc::SupportedIsa();
  const Isa lowest = argc > 2 ? highest : Isa::kPortable;
  ThreadPool pool(threads);
  std::printf("%lld outputs, %lld inputs, %d threads; fastest calls\n",
              static_cast<long long>(kOutputs), static_cast<long long>(kInputs), threads);
  std::printf("%-9s %-6s %10s %12s %12s %12s %12s\n", "tier", "format", "m=1 GB/s", "memory GB/s",
              "m=4 GB/s", "m=16 GB/s", "m=512 GOP/s");
  for (const WeightFormat format : {WeightFormat::kQ4, WeightFormat::kBF16, WeightFormat::kF32}) {
    const Matrices matrices(format);
    const double gigabytes = static_cast<double>(matrices.bytes) * 1e-9;
    const double memory = gigabytes / ReadingSeconds(pool, matrices);
    for (const Isa isa : {Isa::kPortable, Isa::kNeon, Isa::kI8mm, Isa::kAvx2, Isa::kAvxVnni,
                          Isa::kAvx512, Isa::kAmx}) {
      if (isa < lowest || isa > highest || !aiomlc::IsSupported(isa)) continue;
      aiomlc::SetIsa(isa);
      const char* name = format == WeightFormat::kQ4     ? "q4"
                         : format == WeightFormat::kBF16 ? "bf16"
                                                         : "f32";
      const double operations = 2e-9 * 512 * kOutputs * kInputs;
      std::printf("%-9s %-6s %10.1f %12.1f %12.1f %12.1f %12.0f\n", aiomlc::IsaName(isa).data(),
                  name, gigabytes / LinearSeconds(pool, matrices, 1), memory,
                  gigabytes / LinearSeconds(pool, matrices, 4),
                  gigabytes / LinearSeconds(pool, matrices, 16),
                  operations / LinearSeconds(pool, matrices, 512));
      std::fflush(stdout);
    }
  }
  return 0;
}
