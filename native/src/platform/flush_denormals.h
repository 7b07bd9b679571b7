/*!
 * \file platform/flush_denormals.h
 * \brief Count float32 numbers below 2^-126 as zero.
 *
 * Everything has internal linkage: kernels of every tier include this (see linear_kernels.h).
 */
#ifndef AIOMLC_PLATFORM_FLUSH_DENORMALS_H_
#define AIOMLC_PLATFORM_FLUSH_DENORMALS_H_

#include <cstdint>

namespace aiomlc {

namespace {

/*! \brief While it exists, float operations of this thread take and give zero for denormals. */
class FlushDenormals {
 public:
  FlushDenormals() : before_(Read()) { Write(before_ | kFlush); }
  ~FlushDenormals() { Write(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  // The "memory" of the statements keeps loads, products and stores between them.
#if defined(__x86_64__)
  using Control = uint32_t;
  static constexpr Control kFlush = 0x8040;  // In MXCSR: flush to zero, denormals are zero.
  static Control Read() {
    Control control;
    asm volatile("stmxcsr %0" : "=m"(control)::"memory");
    return control;
  }
  static void Write(Control control) { asm volatile("ldmxcsr %0" ::"m"(control) : "memory"); }
#elif defined(__aarch64__)
  using Control = uint64_t;
  static constexpr Control kFlush = 1u << 24;  // FZ in FPCR.
  static Control Read() {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control)::"memory");
    return control;
  }
  static void Write(Control control) { asm volatile("msr fpcr, %0" ::"r"(control) : "memory"); }
#else
  using Control = uint32_t;
  static constexpr Control kFlush = 0;
  static Control Read() { return 0; }
  static void Write(Control /*control*/) {}
#endif

  Control before_;
};

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_FLUSH_DENORMALS_H_
