/*!
 * \file kernels/simd/hadamard.h
 * \brief Products with the Hadamard matrix of ones and minus ones.
 *
 * The steps are sums and differences of elements 1, 2, 4 and so on apart. This order gives the same
 * bits with registers of every size.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_SIMD_HADAMARD_H_
#define AIOMLC_KERNELS_SIMD_HADAMARD_H_

#include <cstdint>
#include <utility>

#include "kernels/simd/registers.h"

namespace aiomlc {

namespace {

/*! \brief The elements that `RotateGroup` multiplies. */
constexpr int kHadamardGroup = 32;

/*! \return A vector whose lanes exchange places with those `kWidth` apart. */
template <int kWidth, typename Vector, int... kLane>
[[gnu::always_inline]] inline Vector Exchange(Vector values,
                                              std::integer_sequence<int, kLane...> /*lanes*/) {
  return __builtin_shufflevector(values, values, (kLane ^ kWidth)...);
}

/*! \return The sign bit in the lanes that are the second of two that are `kWidth` apart. */
template <int kWidth, typename Numbers, int... kLane>
[[gnu::always_inline]] inline Numbers SignsOfSeconds(
    std::integer_sequence<int, kLane...> /*lanes*/) {
  return Numbers{((kLane & kWidth) != 0 ? 0x80000000u : 0)...};
}

/*!
 * \brief A step of the rotation within registers: the sums and differences of elements that are
 * `kWidth` apart.
 */
template <int kBytes, int kWidth, int kCount>
[[gnu::always_inline]] inline void AddWithin(typename Registers<kBytes>::Floats (&values)[kCount]) {
  using Numbers = typename Registers<kBytes>::Numbers;
  using Floats = typename Registers<kBytes>::Floats;
  if constexpr (kWidth < kBytes / 4) {
    constexpr auto kLanes = std::make_integer_sequence<int, kBytes / 4>();
    const auto signs = SignsOfSeconds<kWidth, Numbers>(kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      values[r] = Exchange<kWidth>(values[r], kLanes) +
                  reinterpret_cast<Floats>(reinterpret_cast<Numbers>(values[r]) ^ signs);
    }
  }
}

/*! \brief A step of the rotation between registers that are `kDistance` apart. */
template <int kBytes, int kDistance, int kCount>
[[gnu::always_inline]] inline void AddBetween(
    typename Registers<kBytes>::Floats (&values)[kCount]) {
  if constexpr (kDistance < kCount) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      if ((r & kDistance) != 0) continue;
      const auto low = values[r];
      const auto high = values[r + kDistance];
      values[r] = low + high;
      values[r + kDistance] = low - high;
    }
  }
}

/*! \brief Multiply 32 values by the Hadamard matrix, in registers of `kBytes`. */
template <int kBytes>
[[gnu::always_inline]] inline void RotateGroup(float* group) {
  using Floats = typename Registers<kBytes>::Floats;
  constexpr int kCount = 4 * kHadamardGroup / kBytes;
  Floats values[kCount];
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) values[r] = LoadVector<Floats>(group + r * (kBytes / 4));
  AddWithin<kBytes, 1>(values);
  AddWithin<kBytes, 2>(values);
  AddWithin<kBytes, 4>(values);
  AddWithin<kBytes, 8>(values);
  AddBetween<kBytes, 1>(values);
  AddBetween<kBytes, 2>(values);
  AddBetween<kBytes, 4>(values);
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    __builtin_memcpy(group + r * (kBytes / 4), &values[r], sizeof(values[r]));
  }
}

/*!
 * \brief Multiply each block of a row by the Hadamard matrix of its size, in place.
 * \param block A power of two, at least kHadamardGroup, which divides `size`.
 */
template <typename Lanes>
void RotateBlocks(float* row, int64_t size, int64_t block) {
  for (int64_t i = 0; i < size; i += kHadamardGroup) RotateGroup<64 / Lanes::kRegisters>(row + i);
  for (int64_t distance = kHadamardGroup; distance < block; distance *= 2) {
    for (int64_t i = 0; i < size; i += Lanes::kWidth) {
      if ((i & distance) != 0) continue;
      const auto low = Lanes::Load(row + i);
      const auto high = Lanes::Load(row + i + distance);
      Lanes::Store(row + i, Lanes::Add(low, high));
      Lanes::Store(row + i + distance, Lanes::Sub(low, high));
    }
  }
}

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_SIMD_HADAMARD_H_
