/*!
 * \file benchmarks/kernels_formats.cc
 * \brief The time of linear layers in several weight formats, relative to the first format.
 *
 * Build the target `kernels_formats` with AIOMLC_TESTS=ON. Usage: kernels_formats [threads] [tier]
 * [format...]. The formats take turns, so that other load affects all of them alike; lower
 * quartiles are printed. Consecutive calls of a format use different copies of the weights, which
 * together exceed the caches, like the layers of a model. A decoding step has 1 row, and a prompt
 * many.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/float_types.h"
#include "platform/isa.h"

namespace {

using aiomlc::FloatType;
using aiomlc::MatrixFormat;
using aiomlc::ScaleType;
using aiomlc::ThreadPool;
using Clock = std::chrono::steady_clock;

constexpr int64_t kOutputs = 8192;
constexpr int64_t kInputs = 2048;
constexpr size_t kTotalBytes = size_t{128} << 20;
constexpr int64_t kRows[] = {1, 4, 8, 16, 128, 512};

/*! \brief A cache line. The weights of a model are aligned to it as well. */
struct alignas(64) Line {
  uint8_t bytes[64];
};

/*! \brief Copies of a matrix, kTotalBytes in total. */
struct Matrices {
  MatrixFormat format;
  size_t bytes;
  std::vector<std::vector<Line>> copies;

  explicit Matrices(const MatrixFormat& format)
      : format(format), bytes(aiomlc::PackedMatrixBytes(format, kOutputs, kInputs)) {
    std::vector<Line> packed((bytes + sizeof(Line) - 1) / sizeof(Line));
    if (format.family == aiomlc::WeightFormat::kGrouped ||
        format.family == aiomlc::WeightFormat::kChannel) {
      PackCodes(packed[0].bytes);
    } else {
      std::mt19937 random(1);
      std::normal_distribution<float> normal(0.0f, 0.02f);
      std::vector<float> weights(kOutputs * kInputs);
      for (float& weight : weights) weight = normal(random);
      aiomlc::PackMatrixF32(format.family, weights.data(), kOutputs, kInputs, 0, kOutputs,
                            packed[0].bytes);
    }
    while (copies.size() * bytes < kTotalBytes) copies.push_back(packed);
  }

 private:
  /*! \brief Pack random codes, and scales and zeros that are all equal. */
  void PackCodes(uint8_t* packed) const {
    std::mt19937 random(1);
    std::vector<uint8_t> codes(kOutputs * kInputs);
    const bool is_channel = format.family == aiomlc::WeightFormat::kChannel;
    const unsigned levels = is_channel ? 256 : 1u << format.bits;
    for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % levels);
    const size_t numbers = is_channel ? kOutputs : kOutputs * kInputs / format.group;
    const std::vector<float> floats(numbers, 0.01f);
    const std::vector<uint16_t> halves(numbers, aiomlc::FloatToHalf(0.01f));
    const std::vector<uint16_t> bfloats(numbers, aiomlc::FloatToBFloat16(0.01f));
    const std::vector<uint8_t> bytes(numbers, 7);
    aiomlc::GroupedRows rows;
    rows.rows = kOutputs;
    rows.cols = kInputs;
    rows.codes = codes.data();
    if (is_channel) {
      rows.scales = floats.data();
      return aiomlc::PackChannel(rows, packed);
    }
    rows.scales = format.scale == ScaleType::kF16    ? static_cast<const void*>(halves.data())
                  : format.scale == ScaleType::kBF16 ? static_cast<const void*>(bfloats.data())
                  : format.scale == ScaleType::kF32  ? static_cast<const void*>(floats.data())
                                                     : bytes.data();
    rows.zeros = format.zero == aiomlc::ZeroType::kPoints ? bytes.data() : rows.scales;
    if (rows.scales == bytes.data()) rows.super_scales = rows.super_minima = halves.data();
    aiomlc::PackGrouped(format, rows, packed);
  }
};

/*! \return The seconds of one call with `m` rows. */
double Seconds(ThreadPool& pool, const Matrices& matrices, int64_t m, size_t call) {
  static const std::vector<float> x(kRows[std::size(kRows) - 1] * kInputs, 1.0f);
  static std::vector<float> out(kRows[std::size(kRows) - 1] * kOutputs);
  const uint8_t* packed = matrices.copies[call % matrices.copies.size()][0].bytes;
  const Clock::time_point start = Clock::now();
  aiomlc::Linear(pool, matrices.format, packed, kOutputs, kInputs, x.data(), FloatType::kF32, m,
                 nullptr, out.data(), FloatType::kF32);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/*! \return The lower quartile, which other load on the machine changes little. */
double Quartile(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 4, values.end());
  return values[values.size() / 4];
}

void Compare(ThreadPool& pool, const std::vector<Matrices>& formats, int64_t m) {
  const size_t calls = m >= 128 ? 13 : 81;
  std::vector<std::vector<double>> seconds(formats.size());
  for (size_t call = 0; call < calls; ++call) {
    for (size_t i = 0; i < formats.size(); ++i) {
      seconds[i].push_back(Seconds(pool, formats[i], m, call));
    }
  }
  for (size_t i = 0; i < formats.size(); ++i) {
    const auto bytes = static_cast<double>(formats[i].bytes);
    const double time = Quartile(seconds[i]);
    std::printf("%-14s m=%-4lld %9.3f ms  time x%.2f  bytes x%.2f  %5.1f GB/s\n",
                formats[i].format.Name().c_str(), static_cast<long long>(m), time * 1e3,
                time / Quartile(seconds[0]), bytes / static_cast<double>(formats[0].bytes),
                bytes / time * 1e-9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 1);
  aiomlc::SetIsa(aiomlc::ParseIsa(argc > 2 ? argv[2] : ""));
  std::vector<std::string> names(argv + std::min(argc, 3), argv + argc);
  if (names.empty()) {
    names = {"q4",         "u4g32f16z8",  "u4g128f16zp",  "u4g32k8m",
             "u5g32k8m",   "u6g16k8sz32", "u8g32f16z128", "u2g16k8m",
             "u3g16k8sz4", "iq4nlg32f16", "e2m1g32bf16",  "i8channel"};
  }
  std::vector<Matrices> formats;
  for (const std::string& name : names) formats.emplace_back(MatrixFormat::Parse(name));
  std::printf("%lld outputs, %lld inputs, %s\n", static_cast<long long>(kOutputs),
              static_cast<long long>(kInputs), aiomlc::IsaName(aiomlc::ActiveIsa()).data());
  for (const int64_t m : kRows) Compare(pool, formats, m);
  return 0;
}
