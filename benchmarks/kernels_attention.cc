/*!
 * \file benchmarks/kernels_attention.cc
 * \brief The memory bandwidth of decode attention, compared with plain reading of keys and values.
 *
 * Build the target `kernels_attention` with AIOMLC_TESTS=ON. Usage: kernels_attention [threads]
 * [tier] [kv_heads] [float16 | bfloat16 | int8]. The benchmark computes one new token of a model
 * with a billion parameters: 16 layers, 8 key-value heads by default, four query heads per
 * key-value head, head_dim 64, and a KV cache of one of these types. Long contexts do not fit into
 * the caches. With one key-value head, several threads are busy only if the context is divided into
 * chunks.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_pages.h"
#include "platform/cpu_info.h"
#include "platform/isa.h"

namespace {

using aiomlc::AttentionShape;
using aiomlc::FloatType;
using aiomlc::kPageSize;
using aiomlc::ThreadPool;
using Clock = std::chrono::steady_clock;

constexpr int kLayers = 16;
constexpr int kCalls = 31;

/*! \return The median time of several calls to `work`, in seconds. */
template <typename Work>
double Median(Work work) {
  std::vector<double> seconds;
  for (int call = 0; call < kCalls; ++call) {
    const Clock::time_point start = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kCalls / 2, seconds.end());
  return seconds[kCalls / 2];
}

/*! \brief The pages of one sequence in one layer, in random order. */
struct Layer {
  std::vector<std::byte> bytes;
  std::vector<const void*> pages;

  Layer(const AttentionShape& shape, int64_t context, std::mt19937& random) {
    const int64_t num_pages = (context + kPageSize - 1) / kPageSize;
    bytes.resize(num_pages * shape.PageBytes());
    const aiomlc::KvPages target{bytes.data(), num_pages, shape.num_kv_heads, shape.head_dim,
                                 shape.kv_type()};
    for (int64_t slot = 0; slot < num_pages * kPageSize; ++slot) {
      for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        target.WriteKey(slot, head, Row(shape, random).data());
        target.WriteValue(slot, head, Row(shape, random).data());
      }
    }
    for (int64_t page = 0; page < num_pages; ++page) {
      pages.push_back(bytes.data() + page * shape.PageBytes());
    }
    std::shuffle(pages.begin(), pages.end(), random);
  }

 private:
  static std::vector<std::byte> Row(const AttentionShape& shape, std::mt19937& random) {
    std::normal_distribution<float> normal;
    std::vector<std::byte> row(aiomlc::KvRowBytes(shape.kv_type(), shape.head_dim));
    if (shape.kv_type() == aiomlc::KvType::kI8) {
      for (std::byte& element : row) element = static_cast<std::byte>(random());
      const float scale = 1.0f / 64.0f;
      std::memcpy(row.data() + shape.head_dim, &scale, sizeof(scale));
      return row;
    }
    for (int64_t i = 0; i < shape.head_dim; ++i) {
      const float value = normal(random);
      const uint16_t element = shape.kv_type() == aiomlc::KvType::kBF16
                                   ? aiomlc::FloatToBFloat16(value)
                                   : aiomlc::FloatToHalf(value);
      std::memcpy(row.data() + 2 * i, &element, sizeof(element));
    }
    return row;
  }
};

double AttentionSeconds(ThreadPool& pool, const AttentionShape& shape,
                        const std::vector<Layer>& layers, int64_t context) {
  const std::vector<uint16_t> queries(shape.num_query_heads * shape.head_dim, 0x3800);
  std::vector<uint16_t> output(queries.size());
  return Median([&] {
    for (const Layer& layer : layers) {
      const aiomlc::AttentionRows rows{0, 1, context - 1, layer.pages.data()};
      aiomlc::Attend(pool, shape, {&rows, 1}, queries.data(), output.data());
    }
  });
}

double ReadingSeconds(ThreadPool& pool, const std::vector<Layer>& layers) {
  std::atomic<uint64_t> sink{0};  // Prevents the compiler from removing the sums.
  return Median([&] {
    for (const Layer& layer : layers) {
      pool.Run(pool.num_threads(), [&](int part) {
        const auto* words = reinterpret_cast<const uint64_t*>(layer.bytes.data());
        const size_t count = layer.bytes.size() / sizeof(uint64_t);
        const size_t begin = count * part / pool.num_threads();
        const size_t end = count * (part + 1) / pool.num_threads();
        uint64_t sum = 0;
        for (size_t i = begin; i < end; ++i) sum += words[i];
        sink.fetch_add(sum, std::memory_order_relaxed);
      });
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : aiomlc::PhysicalCores();
  if (argc > 2) aiomlc::SetIsa(aiomlc::ParseIsa(argv[2]));
  const int kv_heads = argc > 3 ? std::atoi(argv[3]) : 8;
  if (kv_heads < 1) {
    std::fprintf(stderr, "kv_heads must be >= 1, got %d\n", kv_heads);
    return 2;
  }
  const char* type = argc > 4 ? argv[4] : "float16";
  AttentionShape shape{4 * kv_heads, kv_heads, 64, FloatType::kF16, 0.125f};
  if (std::strcmp(type, "int8") == 0) shape.stored = aiomlc::KvType::kI8;
  if (std::strcmp(type, "bfloat16") == 0) shape.stored = aiomlc::KvType::kBF16;
  ThreadPool pool(threads);
  std::printf("one token, %d layers, %d key-value heads, %d threads, %s, %s; medians\n", kLayers,
              kv_heads, threads, aiomlc::IsaName(aiomlc::ActiveIsa()).data(), type);
  std::printf("%8s %10s %12s %12s\n", "context", "ms", "GB/s", "memory GB/s");
  std::mt19937 random(1);
  std::vector<int64_t> contexts{128, 512, 1024, 4096};
  if (kv_heads < 8) contexts.push_back(32768 / kv_heads);
  for (const int64_t context : contexts) {
    const std::vector<Layer> layers = [&] {
      std::vector<Layer> random_layers;
      for (int i = 0; i < kLayers; ++i) random_layers.emplace_back(shape, context, random);
      return random_layers;
    }();
    const double gigabytes = 1e-9 * kLayers * static_cast<double>(layers[0].bytes.size());
    const double attention = AttentionSeconds(pool, shape, layers, context);
    std::printf("%8lld %10.2f %12.1f %12.1f\n", static_cast<long long>(context), 1e3 * attention,
                gigabytes / attention, gigabytes / ReadingSeconds(pool, layers));
  }
  return 0;
}
