#include "platform/isa.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace aiomlc {

namespace {

constexpr int kUndecided = -1;
std::atomic<int> active_isa{kUndecided};

constexpr Isa kTiersFromHighest[] = {Isa::kAmx,  Isa::kAvx512, Isa::kAvxVnni, Isa::kAvx2,
                                     Isa::kI8mm, Isa::kNeon,   Isa::kPortable};

// Whether this library contains the kernels of a tier, which not every compiler can build.
#if defined(AIOMLC_AVXVNNI)
constexpr bool kBuiltWithAvxVnni = true;
#else
[[maybe_unused]] constexpr bool kBuiltWithAvxVnni = false;
#endif
#if defined(AIOMLC_AMX)
constexpr bool kBuiltWithAmx = true;
#else
[[maybe_unused]] constexpr bool kBuiltWithAmx = false;
#endif
#if defined(AIOMLC_NEON)
constexpr bool kBuiltWithNeon = true;
#else
[[maybe_unused]] constexpr bool kBuiltWithNeon = false;
#endif
#if defined(AIOMLC_I8MM)
constexpr bool kBuiltWithI8mm = true;
#else
[[maybe_unused]] constexpr bool kBuiltWithI8mm = false;
#endif

#if defined(__x86_64__)
// __builtin_cpu_supports also checks that the operating system saves the wide registers.
bool HasAvx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool HasAvxVnni() {
  // By CPUID: not every compiler that can build these kernels knows the feature name.
  constexpr unsigned kLeaf = 7, kSubleaf = 1, kAvxVnniBit = 1u << 4;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return kBuiltWithAvxVnni && HasAvx2() &&
         __get_cpuid_count(kLeaf, kSubleaf, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & kAvxVnniBit) != 0;
}

AmxFeatures DetectAmx() {
#ifdef __linux__
  constexpr unsigned kBF16 = 1u << 22, kTiles = 1u << 24, kInt8 = 1u << 25;  // In EDX of leaf 7.
  constexpr unsigned kSaved = 3u << 17;  // In XCR0: tile configuration and data.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!kBuiltWithAmx || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return {};
  if (!(edx & kTiles) || !(edx & (kInt8 | kBF16))) return {};
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kSaved) != kSaved) return {};
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return {};
  return {.int8 = (edx & kInt8) != 0, .bf16 = (edx & kBF16) != 0};
#else
  return {};
#endif
}
#elif defined(__aarch64__) && defined(__linux__)
bool HasNeon() { return kBuiltWithNeon && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }

bool HasI8mm() {
  constexpr unsigned long kI8mmBit = 1ul << 13;  // HWCAP2_I8MM, which older headers lack.
  return kBuiltWithI8mm && HasNeon() && (getauxval(AT_HWCAP2) & kI8mmBit) != 0;
}
#endif

/*!
 * \return The highest supported tier up to `limit`.
 *
 * AMX is checked only if `limit` allows it, since the check requests a permission for the process.
 */
Isa HighestUpTo(Isa limit) {
  for (const Isa isa : kTiersFromHighest) {
    if (isa <= limit && IsSupported(isa)) return isa;
  }
  return Isa::kPortable;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kAmx:
      return "amx";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kI8mm:
      return "i8mm";
    case Isa::kNeon:
      return "neon";
    case Isa::kPortable:
      break;
  }
  return "portable";
}

bool IsSupported(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAmx:
      return HasAvx512() && (DetectedAmx().int8 || DetectedAmx().bf16);
    case Isa::kAvx512:
      return HasAvx512();
    case Isa::kAvxVnni:
      return HasAvxVnni();
    case Isa::kAvx2:
      return HasAvx2();
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__) && defined(__linux__)
  if (isa == Isa::kI8mm) return HasI8mm();
  if (isa == Isa::kNeon) return HasNeon();
#endif
  return isa == Isa::kPortable;
}

Isa SupportedIsa() { return HighestUpTo(Isa::kAmx); }

Isa ParseIsa(std::string_view name) {
  if (name.empty()) return SupportedIsa();
  for (const Isa isa : kTiersFromHighest) {
    if (name == IsaName(isa)) return HighestUpTo(isa);
  }
  throw std::invalid_argument(
      "AIOMLC_ISA must be portable, neon, i8mm, avx2, avxvnni, avx512 or amx, got '" +
      std::string(name) + "'");
}

Isa ActiveIsa() {
  const int active = active_isa.load(std::memory_order_relaxed);
  if (active != kUndecided) return static_cast<Isa>(active);
  const char* name = std::getenv("AIOMLC_ISA");
  const Isa isa = ParseIsa(name == nullptr ? "" : name);
  active_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
  return isa;
}

void SetIsa(Isa isa) {
  if (!IsSupported(isa)) {
    throw std::invalid_argument("this processor does not support " + std::string(IsaName(isa)));
  }
  active_isa.store(static_cast<int>(isa), std::memory_order_relaxed);
}

AmxFeatures DetectedAmx() {
#if defined(__x86_64__)
  static const AmxFeatures detected = DetectAmx();
  return detected;
#else
  return {};
#endif
}

bool HasAvx512BF16() {
#if defined(__x86_64__)
  constexpr unsigned kLeaf = 7, kSubleaf = 1, kBit = 1u << 5;
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return HasAvx512() && __get_cpuid_count(kLeaf, kSubleaf, &eax, &ebx, &ecx, &edx) != 0 &&
           (eax & kBit) != 0;
  }();
  return has;
#else
  return false;
#endif
}

bool IsIntel() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

}  // namespace aiomlc
