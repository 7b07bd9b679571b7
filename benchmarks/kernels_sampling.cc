/*!
 * \file benchmarks/kernels_sampling.cc
 * \brief The time to sample a token, for several vocabularies, distributions and filters.
 *
 * Build the target `kernels_sampling` with AIOMLC_TESTS=ON. Usage: kernels_sampling [tier]. The
 * lower quartile of one row is printed, in microseconds. Rows take turns, so that they come from
 * memory as a model leaves them. `peaked` logits are like those of a trained model: a few tokens
 * are likely, and the others far behind; `flat` ones are those of random weights, for which top_p
 * keeps most of the vocabulary.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "options/sequence_options.h"
#include "sampling/sampler.h"

namespace {

using aiomlc::SamplerOptions;
using Clock = std::chrono::steady_clock;

constexpr int kRows = 8;
constexpr int kCalls = 160;

struct Distribution {
  const char* name;
  float spread;
  float peak;  //!< The distance of the likeliest tokens from the others.
};

std::vector<float> Logits(const Distribution& distribution, int64_t vocab_size, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, distribution.spread);
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  for (float& logit : logits) logit = normal(generator);
  std::uniform_int_distribution<size_t> tokens(0, logits.size() - 1);
  for (int i = 0; i < 50; ++i) {
    logits[tokens(generator)] += distribution.peak / (1.0f + 0.1f * static_cast<float>(i));
  }
  return logits;
}

double Microseconds(const std::vector<std::vector<float>>& rows, const SamplerOptions& options,
                    int64_t* token_sum) {
  aiomlc::Sampler sampler;
  std::vector<double> times;
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float>& row = rows[static_cast<size_t>(call) % rows.size()];
    const Clock::time_point start = Clock::now();
    *token_sum += *sampler.Sample(row.data(), static_cast<int64_t>(row.size()), options, 7,
                                  static_cast<uint64_t>(call));
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kCalls / 4, times.end());
  return times[kCalls / 4];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) setenv("AIOMLC_ISA", argv[1], 1);
  const struct {
    const char* name;
    SamplerOptions options;
  } filters[] = {
      {"none", {}},
      {"top_p 0.9", {.top_p = 0.9}},
      {"top_p 0.95, min_p 0.02", {.top_p = 0.95, .min_p = 0.02}},
      {"top_p 0.999", {.top_p = 0.999}},
      {"top_k 40, top_p 0.9", {.top_p = 0.9, .top_k = 40}},
      {"greedy", {.temperature = 0}},
  };
  constexpr Distribution kDistributions[] = {
      {"peaked", 2.0f, 14.0f}, {"wide", 3.0f, 0.0f}, {"flat", 1.0f, 0.0f}};
  // The sum of the tokens shows that two builds draw the same ones.
  std::printf("| tokens | logits | filter | us | sum of tokens |\n|---|---|---|---|---|\n");
  for (int64_t vocab_size : {32'000, 128'256, 262'144}) {
    for (const Distribution& distribution : kDistributions) {
      std::vector<std::vector<float>> rows;
      for (uint32_t seed = 0; seed < kRows; ++seed) {
        rows.push_back(Logits(distribution, vocab_size, seed));
      }
      for (const auto& filter : filters) {
        int64_t token_sum = 0;
        const double time = Microseconds(rows, filter.options, &token_sum);
        std::printf("| %d | %s | %s | %.0f | %lld |\n", static_cast<int>(vocab_size),
                    distribution.name, filter.name, time, static_cast<long long>(token_sum));
      }
    }
  }
}
