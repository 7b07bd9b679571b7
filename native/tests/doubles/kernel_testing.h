/*!
 * \file tests/doubles/kernel_testing.h
 * \brief Helpers of the kernel tests: tiers, random numbers, and tensors of both float types.
 */
#ifndef AIOMLC_TESTS_DOUBLES_KERNEL_TESTING_H_
#define AIOMLC_TESTS_DOUBLES_KERNEL_TESTING_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "platform/float_types.h"
#include "platform/isa.h"

namespace aiomlc {

/*! \return The tiers that this machine supports. */
inline std::vector<Isa> SupportedTiers() {
  std::vector<Isa> tiers;
  for (const Isa isa : {Isa::kPortable, Isa::kNeon, Isa::kI8mm, Isa::kAvx2, Isa::kAvxVnni,
                        Isa::kAvx512, Isa::kAmx}) {
    if (IsSupported(isa)) tiers.push_back(isa);
  }
  return tiers;
}

/*! \brief Sets the active tier during its lifetime. */
class TierScope {
 public:
  explicit TierScope(Isa isa) : previous_(ActiveIsa()) { SetIsa(isa); }
  ~TierScope() { SetIsa(previous_); }
  TierScope(const TierScope&) = delete;
  TierScope& operator=(const TierScope&) = delete;

 private:
  Isa previous_;
};

/*! \brief Restores the tier when a test ends. */
class TierTest : public ::testing::Test {
 private:
  TierScope previous_{ActiveIsa()};
};

/*! \return Normally distributed numbers with mean 0. */
inline std::vector<float> RandomFloats(int64_t size, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

inline void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  ASSERT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

/*! \brief A dense tensor of float32 or float16 elements. */
class FloatTensor {
 public:
  FloatTensor(FloatType type, int64_t size) : type_(type), bytes_(size * FloatBytes(type)) {}

  FloatTensor(FloatType type, const std::vector<float>& values)
      : FloatTensor(type, static_cast<int64_t>(values.size())) {
    for (size_t i = 0; i < values.size(); ++i) Set(i, values[i]);
  }

  /*! \brief Copy `count` elements of another tensor. */
  FloatTensor(const FloatTensor& other, int64_t begin, int64_t count)
      : type_(other.type_), bytes_(other.Slice(begin, count)) {}

  float operator[](int64_t i) const {
    if (type_ == FloatType::kF32) {
      float value;
      std::memcpy(&value, &bytes_[i * 4], 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, &bytes_[i * 2], 2);
    return HalfToFloat(half);
  }

  void Set(int64_t i, float value) {
    if (type_ == FloatType::kF32) {
      std::memcpy(&bytes_[i * 4], &value, 4);
    } else {
      const uint16_t half = FloatToHalf(value);
      std::memcpy(&bytes_[i * 2], &half, 2);
    }
  }

  FloatType type() const { return type_; }
  uint8_t* data() { return bytes_.data(); }
  const uint8_t* data() const { return bytes_.data(); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

  /*! \return The bytes of `count` elements from `begin` on. */
  std::vector<uint8_t> Slice(int64_t begin, int64_t count) const {
    const auto size = static_cast<int64_t>(FloatBytes(type_));
    return {bytes_.begin() + begin * size, bytes_.begin() + (begin + count) * size};
  }

 private:
  FloatType type_;
  std::vector<uint8_t> bytes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_KERNEL_TESTING_H_
