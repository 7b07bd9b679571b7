/*!
 * \file benchmarks/kernels_attention.cc
 * \brief The memory bandwidth of decode attention, compared with plain reading of keys and values.
 *
 * Build the target `kernels_attention` with AIOMLC_TESTS=ON. Usage: kernels_attention [threads]
 * [tier] [kv_heads] [types] [contexts]. The benchmark computes one new token of a model with a
 * billion parameters: 16 layers, 8 key-value heads by default, four query heads per key-value head,
 * head_dim 64, and a KV cache of each of these types, such as float16,bfloat16,int8,int4. Long
 * contexts do not fit into the caches. With one key-value head, several threads are busy only if
 * the context is divided into chunks.
 *
 * A round measures each type once, and plain reading of as many bytes after it, because the
 * bandwidth of shared machines changes; the figures are the fastest of the rounds.
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_pages.h"
#include "kernels/elementwise/quantized_rows.h"
#include "platform/aligned_buffer.h"
#include "platform/cpu_info.h"
#include "platform/huge_pages.h"
#include "platform/isa.h"

namespace {

using aiomlc::AttentionShape;
using aiomlc::FloatType;
using aiomlc::kPageSize;
using aiomlc::KvType;
using aiomlc::ThreadPool;
using Clock = std::chrono::steady_clock;

constexpr int kLayers = 16;
constexpr int kRounds = 15;

/*!
 * \return The time of `work`, in seconds. With one thread, it is the time on the processor, which
 * other processes may take.
 */
template <typename Work>
double Seconds(const ThreadPool& pool, Work work) {
  const Clock::time_point start = Clock::now();
  const std::clock_t cpu_start = std::clock();
  work();
  if (pool.num_threads() == 1) {
    return static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double Fastest(const std::vector<double>& seconds) {
  return *std::min_element(seconds.begin(), seconds.end());
}

/*! \brief A type of KV caches, by its name in `EngineConfig.kv_cache_dtype`. */
struct NamedType {
  const char* name;
  FloatType queries;
  std::optional<KvType> stored;
};

constexpr NamedType kTypes[] = {
    {"float32", FloatType::kF32, {}},
    {"float16", FloatType::kF16, {}},
    {"bfloat16", FloatType::kF16, KvType::kBF16},
    {"int8", FloatType::kF16, KvType::kI8},
    {"int4", FloatType::kF16, KvType::kI4},
};

/*! \return Random rows of keys or values, as a cache stores them. */
std::vector<std::byte> RandomRows(const AttentionShape& shape, int64_t rows, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> floats(rows * shape.head_dim);
  for (float& value : floats) value = normal(random);
  std::vector<std::byte> stored(rows * aiomlc::KvRowBytes(shape.kv_type(), shape.head_dim));
  ThreadPool pool(1);
  const auto store = [&](auto function, auto... arguments) {
    function(pool, floats.data(), FloatType::kF32, rows, shape.head_dim, arguments...,
             stored.data());
  };
  switch (shape.kv_type()) {
    case KvType::kF32:
      std::memcpy(stored.data(), floats.data(), stored.size());
      break;
    case KvType::kF16:
      for (size_t i = 0; i < floats.size(); ++i) {
        const uint16_t half = aiomlc::FloatToHalf(floats[i]);
        std::memcpy(stored.data() + 2 * i, &half, sizeof(half));
      }
      break;
    case KvType::kBF16:
      store(aiomlc::RoundRowsToBFloat16);
      break;
    case KvType::kI8:
      store(aiomlc::QuantizeRows);
      break;
    case KvType::kI4:
      store(aiomlc::QuantizeRowsTo4Bits, 1.0f / static_cast<float>(shape.head_dim));
      break;
  }
  return stored;
}

/*! \brief The pages of one sequence in one layer, in random order. */
struct Layer {
  std::byte* data = nullptr;
  size_t size = 0;
  std::vector<const void*> pages;

  Layer(const AttentionShape& shape, int64_t context, std::mt19937& random) {
    const int64_t num_pages = (context + kPageSize - 1) / kPageSize;
    size = num_pages * shape.PageBytes();
    data = reinterpret_cast<std::byte*>(memory_.Reserve(size));
    aiomlc::HugePages huge_pages;
    huge_pages.Request(data, size);  // As for the tensors of a cache.
    const aiomlc::KvPages target{data, num_pages, shape.num_kv_heads, shape.head_dim,
                                 shape.kv_type()};
    const std::vector<std::byte> rows =
        RandomRows(shape, 2 * kPageSize * shape.num_kv_heads, random);
    for (int64_t i = 0; i < kPageSize * shape.num_kv_heads; ++i) {
      const size_t row = 2 * i * target.RowBytes();
      target.WriteKey(i / shape.num_kv_heads, i % shape.num_kv_heads, rows.data() + row);
      target.WriteValue(i / shape.num_kv_heads, i % shape.num_kv_heads,
                        rows.data() + row + target.RowBytes());
    }
    for (int64_t page = 0; page < num_pages; ++page) {
      if (page > 0) aiomlc::CopyWholePage(target, 0, page);
      pages.push_back(data + page * shape.PageBytes());
    }
    std::shuffle(pages.begin(), pages.end(), random);
  }

 private:
  aiomlc::AlignedBuffer memory_;
};

/*! \brief All layers of one type of cache, after one context. */
class Cache {
 public:
  Cache(const NamedType& type, int64_t kv_heads, int64_t context)
      : type_(type), shape_{4 * kv_heads, kv_heads, 64, type.queries, 0.125f}, context_(context) {
    shape_.stored = type.stored;
    std::mt19937 random(1);
    for (int i = 0; i < kLayers; ++i)
      layers_.push_back(std::make_unique<Layer>(shape_, context, random));
    output_.resize(shape_.num_query_heads * shape_.head_dim);
    queries_.resize(output_.size(), type.queries == FloatType::kF32 ? 0x3f000000u : 0x38003800u);
  }

  void Measure(ThreadPool& pool) {
    attention_.push_back(Seconds(pool, [&] {
      for (const auto& layer : layers_) {
        const aiomlc::AttentionRows rows{0, 1, context_ - 1, layer->pages.data()};
        aiomlc::Attend(pool, shape_, {&rows, 1}, queries_.data(), output_.data());
      }
    }));
    reading_.push_back(Seconds(pool, [&] { Read(pool); }));
  }

  void Print() const {
    const double gigabytes = 1e-9 * kLayers * static_cast<double>(layers_[0]->size);
    const double attention = Fastest(attention_), reading = Fastest(reading_);
    std::printf("%8lld %10s %10.2f %10.1f %12.1f %10.2f\n", static_cast<long long>(context_),
                type_.name, 1e3 * attention, gigabytes / attention, gigabytes / reading,
                attention / reading);
    std::fflush(stdout);
  }

 private:
  void Read(ThreadPool& pool) {
    std::atomic<uint64_t> sink{0};  // Prevents the compiler from removing the sums.
    for (const auto& layer : layers_) {
      pool.Run(pool.num_threads(), [&](int part) {
        const auto* words = reinterpret_cast<const uint64_t*>(layer->data);
        const size_t count = layer->size / sizeof(uint64_t);
        const size_t begin = count * part / pool.num_threads();
        const size_t end = count * (part + 1) / pool.num_threads();
        uint64_t sum = 0;
        for (size_t i = begin; i < end; ++i) sum += words[i];
        sink.fetch_add(sum, std::memory_order_relaxed);
      });
    }
  }

  const NamedType& type_;
  AttentionShape shape_;
  int64_t context_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<uint32_t> queries_, output_;  // As many bytes as float32 takes.
  std::vector<double> attention_, reading_;
};

/*! \return The parts of a list whose items are separated by commas. */
std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> items;
  std::istringstream stream(list);
  for (std::string item; std::getline(stream, item, ',');) items.push_back(item);
  return items;
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
  std::vector<const NamedType*> types;
  for (const std::string& name : Split(argc > 4 ? argv[4] : "float16")) {
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const NamedType& known) { return name == known.name; });
    if (type == std::end(kTypes)) {
      std::fprintf(stderr, "unknown type %s\n", name.c_str());
      return 2;
    }
    types.push_back(type);
  }
  ThreadPool pool(threads);
  std::printf("one token, %d layers, %d key-value heads, %d threads, %s; fastest calls\n", kLayers,
              kv_heads, threads, aiomlc::IsaName(aiomlc::ActiveIsa()).data());
  std::printf("%8s %10s %10s %10s %12s %10s\n", "context", "type", "ms", "GB/s", "memory GB/s",
              "times");
  for (const std::string& context : Split(argc > 5 ? argv[5] : "128,512,1024,4096")) {
    std::vector<std::unique_ptr<Cache>> caches;
    for (const NamedType* type : types) {
      caches.push_back(std::make_unique<Cache>(*type, kv_heads, std::atoll(context.c_str())));
    }
    for (int round = 0; round < kRounds; ++round) {
      for (const auto& cache : caches) cache->Measure(pool);
    }
    for (const auto& cache : caches) cache->Print();
  }
  return 0;
}
