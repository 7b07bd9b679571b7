/*!
 * \file benchmarks/suite/machine_limits.cc
 * \brief What the machine can do at most: reading memory, and multiplying in registers.
 *
 * Usage: machine_limits [threads] [mebibytes] [rounds]. Prints one line of JSON with the best of
 * the rounds; null is what the processor does not have.
 */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr size_t kVectorBytes = 64;
#elif defined(__AVX__)
constexpr size_t kVectorBytes = 32;
#else
constexpr size_t kVectorBytes = 16;
#endif
typedef uint64_t Words __attribute__((vector_size(kVectorBytes)));
typedef float Floats __attribute__((vector_size(kVectorBytes)));

constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kStreams = 4;
constexpr size_t kAhead = 1024;    // Bytes between what is read and what is fetched.
constexpr int kAccumulators = 12;  // Enough to hide the latency, few enough for 16 registers.
constexpr int64_t kRepeats = int64_t{1} << 22;
constexpr int64_t kTileRepeats = int64_t{1} << 18;

/*! \brief Keep a value in a register, and its history unknown to the compiler. */
template <typename Value>
inline void Pin(Value& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#else
  asm volatile("" : "+w"(value));
#endif
}

/*! \return Seconds of the fastest round, from the first thread's start to the last one's end. */
template <typename Work>
double Fastest(int threads, int rounds, Work work) {
  using Clock = std::chrono::steady_clock;
  struct alignas(64) Span {
    Clock::time_point start, end;
  };
  std::barrier line(threads);
  std::vector<std::vector<Span>> spans(threads, std::vector<Span>(rounds));
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) {
    workers.emplace_back([&, thread] {
      for (Span& span : spans[thread]) {
        line.arrive_and_wait();
        span.start = Clock::now();
        work(thread);
        span.end = Clock::now();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  double fastest = 1e30;
  for (int round = 0; round < rounds; ++round) {
    Span whole = spans[0][round];
    for (const std::vector<Span>& mine : spans) {
      whole.start = std::min(whole.start, mine[round].start);
      whole.end = std::max(whole.end, mine[round].end);
    }
    fastest = std::min(fastest, std::chrono::duration<double>(whole.end - whole.start).count());
  }
  return fastest;
}

/*! \brief Read a part of memory in several streams, each a page apart at the least. */
void ReadAll(const char* data, size_t bytes) {
  const size_t stride = bytes / kStreams;
  Words sums[kStreams] = {};
  for (size_t offset = 0; offset < stride; offset += 2 * kVectorBytes) {
    for (int stream = 0; stream < kStreams; ++stream) {
      const char* place = data + stream * stride + offset;
      __builtin_prefetch(place + kAhead);
      sums[stream] |= *reinterpret_cast<const Words*>(place);
      sums[stream] |= *reinterpret_cast<const Words*>(place + kVectorBytes);
    }
  }
  for (Words& sum : sums) Pin(sum);
}

double ReadGigabytesPerSecond(int threads, size_t bytes, int rounds) {
  const size_t part = bytes / threads / (kStreams * kHugePage) * (kStreams * kHugePage);
  const size_t total = part * threads;
  void* memory =
      mmap(nullptr, total + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (part == 0 || memory == MAP_FAILED) {
    std::fprintf(stderr, "machine_limits: cannot allocate %zu bytes\n", bytes);
    std::exit(1);
  }
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory);
  char* data = reinterpret_cast<char*>((address + kHugePage - 1) / kHugePage * kHugePage);
  madvise(data, total, MADV_HUGEPAGE);
  // Each thread writes what it will read, so that the pages are near it.
  Fastest(threads, 1, [&](int thread) { std::fill_n(data + thread * part, part, char{1}); });
  const double seconds =
      Fastest(threads, rounds, [&](int thread) { ReadAll(data + thread * part, part); });
  munmap(memory, total + kHugePage);
  return static_cast<double>(total) / seconds / 1e9;
}

void MultiplyFloats() {
  Floats sums[kAccumulators] = {};
  Floats x = Floats{} + 1.0f, y = Floats{} + 0.5f;
  for (int64_t repeat = 0; repeat < kRepeats; ++repeat) {
    Pin(x);
    Pin(y);
#pragma GCC unroll 16
    for (int i = 0; i < kAccumulators; ++i) {
      sums[i] = sums[i] * x + y;  // -O3 makes it one instruction.
      Pin(sums[i]);
    }
  }
}

double FloatGigaOps(int threads, int rounds) {
  const double ops = 2.0 * (kVectorBytes / sizeof(float)) * kAccumulators * kRepeats * threads;
  return ops / Fastest(threads, rounds, [](int) { MultiplyFloats(); }) / 1e9;
}

#if defined(__AVX512VNNI__)
using Bytes = __m512i;
inline Bytes Dot(Bytes sum, Bytes a, Bytes b) { return _mm512_dpbusd_epi32(sum, a, b); }
#elif defined(__AVXVNNI__)
using Bytes = __m256i;
inline Bytes Dot(Bytes sum, Bytes a, Bytes b) { return _mm256_dpbusd_avx_epi32(sum, a, b); }
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
void MultiplyBytes() {
  Bytes sums[kAccumulators] = {};
  Bytes a = {}, b = {};
  for (int64_t repeat = 0; repeat < kRepeats; ++repeat) {
    Pin(a);
    Pin(b);
#pragma GCC unroll 16
    for (int i = 0; i < kAccumulators; ++i) {
      sums[i] = Dot(sums[i], a, b);
      Pin(sums[i]);
    }
  }
}

double VectorGigaOps(int threads, int rounds) {
  const double ops = 2.0 * sizeof(Bytes) * kAccumulators * kRepeats * threads;
  return ops / Fastest(threads, rounds, [](int) { MultiplyBytes(); }) / 1e9;
}
#else
double VectorGigaOps(int, int) { return 0; }
#endif

#if defined(__x86_64__) && defined(__linux__)
/*! \return Whether there are int8 tiles, and the kernel lets this process use them. */
bool HasTiles() {
  constexpr unsigned kTileBit = 1u << 24, kInt8Bit = 1u << 25;  // Of leaf 7's EDX.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;   // ARCH_REQ_XCOMP_PERM.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if (!(edx & kTileBit) || !(edx & kInt8Bit)) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

void MultiplyTiles() {
  // The operand is the whole record: GCC 12's own intrinsic names 8 bytes of it, and the compiler
  // then drops the stores to the others.
  const TileConfig config;
  asm volatile("ldtilecfg %0" ::"m"(config));
  asm volatile(
      "tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3\n\t"
      "tilezero %tmm4\n\ttilezero %tmm5\n\ttilezero %tmm6\n\ttilezero %tmm7");
  for (int64_t repeat = 0; repeat < kTileRepeats; ++repeat) {
    asm volatile(
        "tdpbssd %tmm6, %tmm4, %tmm0\n\ttdpbssd %tmm7, %tmm4, %tmm1\n\t"
        "tdpbssd %tmm6, %tmm5, %tmm2\n\ttdpbssd %tmm7, %tmm5, %tmm3");
  }
  asm volatile("tilerelease");
}

double TileGigaOps(int threads, int rounds) {
  if (!HasTiles()) return 0;
  const double ops = 4.0 * 2 * 16 * 16 * 64 * kTileRepeats * threads;
  return ops / Fastest(threads, rounds, [](int) { MultiplyTiles(); }) / 1e9;
}
#else
double TileGigaOps(int, int) { return 0; }
#endif

std::string OrNull(double value) { return value > 0 ? std::to_string(value) : "null"; }

int Argument(int argc, char** argv, int index, int otherwise) {
  return argc > index ? std::max(1, std::atoi(argv[index])) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = Argument(argc, argv, 1, 2);
  const size_t bytes = static_cast<size_t>(Argument(argc, argv, 2, 1024)) << 20;
  const int rounds = Argument(argc, argv, 3, 5);
  const double read = ReadGigabytesPerSecond(threads, bytes, rounds);
  const double vectors = VectorGigaOps(threads, rounds);
  const double tiles = TileGigaOps(threads, rounds);
  const double floats = FloatGigaOps(threads, rounds);
  std::printf(
      "{\"threads\": %d, \"dram_read_gb_s\": %f, \"int8_vnni_gop_s\": %s, \"int8_amx_gop_s\": %s, "
      "\"f32_fma_gflop_s\": %f}\n",
      threads, read, OrNull(vectors).c_str(), OrNull(tiles).c_str(), floats);
  return 0;
}
