/*!
 * \file kernels/simd/registers.h
 * \brief Vectors of the compiler, of the size of a tier's registers.
 *
 * Larger ones would be taken apart by way of memory.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_SIMD_REGISTERS_H_
#define AIOMLC_KERNELS_SIMD_REGISTERS_H_

#include <cstdint>

namespace aiomlc {

namespace {

/*! \brief Vectors of `kBytes`, with elements of 8 to 64 bits. */
template <int kBytes>
struct Registers;

// One for each size: GCC ignores a vector's size that depends on a template's argument.
template <>
struct Registers<16> {
  using Bytes = uint8_t __attribute__((vector_size(16)));
  using Halves = uint16_t __attribute__((vector_size(16)));
  using Numbers = uint32_t __attribute__((vector_size(16)));
  using Words = uint64_t __attribute__((vector_size(16)));
  using Floats = float __attribute__((vector_size(16)));
};

template <>
struct Registers<32> {
  using Bytes = uint8_t __attribute__((vector_size(32)));
  using Halves = uint16_t __attribute__((vector_size(32)));
  using Numbers = uint32_t __attribute__((vector_size(32)));
  using Words = uint64_t __attribute__((vector_size(32)));
  using Floats = float __attribute__((vector_size(32)));
};

template <>
struct Registers<64> {
  using Bytes = uint8_t __attribute__((vector_size(64)));
  using Halves = uint16_t __attribute__((vector_size(64)));
  using Numbers = uint32_t __attribute__((vector_size(64)));
  using Words = uint64_t __attribute__((vector_size(64)));
  using Floats = float __attribute__((vector_size(64)));
};

template <typename Vector>
[[gnu::always_inline]] inline Vector LoadVector(const void* source) {
  Vector vector;
  __builtin_memcpy(&vector, source, sizeof(vector));
  return vector;
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_REGISTERS_H_
