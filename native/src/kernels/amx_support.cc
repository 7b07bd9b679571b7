#include "amx_support.h"

#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace aiomlc {

#if defined(__x86_64__)

namespace {

/*! \brief A layer of two tiles and three groups for a full panel and one of 9 rows. */
struct SmallLayer {
  static constexpr int64_t kOutputs = 30, kInputs = 96, kRowCount = 25;
  static constexpr int64_t kGroups = kInputs / kGroupSize;

  std::vector<uint8_t> packed = std::vector<uint8_t>(2 * kGroups * kGroupBytes);
  std::vector<ActivationGroup> activations = std::vector<ActivationGroup>(kRowCount * kGroups);

  SmallLayer() {
    std::minstd_rand random(1);
    for (uint8_t& byte : packed) byte = static_cast<uint8_t>(random() >> 8);
    for (int64_t group = 0; group < 2 * kGroups; ++group) {
      for (int64_t row = 0; row < kTileRows; ++row) {
        const auto scale =
            static_cast<uint16_t>(0x2800 + random() % 0x400);  // Halves from 1/32 to 1/16.
        std::memcpy(&packed[group * kGroupBytes + 256 + 2 * row], &scale, sizeof(scale));
      }
    }
    for (ActivationGroup& group : activations) {
      int sum = 0;
      for (int8_t& value : group.values) {
        value = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
        sum += value;
      }
      group.scale = static_cast<float>(random() % 1000) / 7000.0f;
      group.offset = -7 * sum;
    }
  }

  std::vector<float> Multiply(void (*kernel)(const LinearBlock&)) const {
    std::vector<float> out(kRowCount * kOutputs);
    LinearBlock block = {};
    block.packed = packed.data();
    block.rows_n = kOutputs;
    block.cols_k = kInputs;
    block.tile_end = 2;
    block.row_end = kRowCount;
    block.activations = activations.data();
    block.out = out.data();
    block.out_type = FloatType::kF32;
    kernel(block);
    return out;
  }
};

}  // namespace

bool EqualsAvx512(void (*kernel)(const LinearBlock&)) {
  const SmallLayer layer;
  const std::vector<float> expected = layer.Multiply(kLinearAvx512.q4);
  const std::vector<float> actual = layer.Multiply(kernel);
  return std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)) == 0;
}

#endif  // defined(__x86_64__)

#if defined(__x86_64__) && defined(__linux__)

namespace {

/*! \return Whether processor and operating system have tiles, and let this process use them. */
bool HasTiles() {
  constexpr unsigned kTiles = 1u << 24, kInt8 = 1u << 25;      // Of leaf 7's EDX.
  constexpr unsigned kSaved = 3u << 17;                        // Of XCR0: shapes and contents.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
  if (!(edx & kTiles) || !(edx & kInt8)) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kSaved) != kSaved) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool AmxUsable() {
  static const bool usable = [] {
    if (kQ4Amx == nullptr || !HasTiles()) return false;
    if (EqualsAvx512(kQ4Amx)) return true;
    std::fputs("aiomlc: AMX multiplies wrongly on this machine, AVX-512 is used instead\n", stderr);
    return false;
  }();
  return usable;
}

#else

bool AmxUsable() { return false; }

#endif  // defined(__x86_64__) && defined(__linux__)

}  // namespace aiomlc
