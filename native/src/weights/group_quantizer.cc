#include "weights/group_quantizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "platform/float_types.h"

namespace aiomlc {

namespace {

// The arithmetic of each dtype. `Round` rounds to the dtype, `RoundStep` the intermediate results.
struct HalfArithmetic {
  using Stored = uint16_t;
  static float Round(float value) { return RoundToHalf(value); }
  // Without subnormals: adding `zero` to such a ratio gives `zero`, however it is rounded.
  static float RoundStep(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
  }
  static Stored Store(float value) { return FloatToHalf(value); }
};

struct BFloat16Arithmetic {
  using Stored = uint16_t;
  static float Round(float value) {
    // Without the special case of NaN, so that loops are vectorized.
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    return std::bit_cast<float>((bits + 0x7fffu + ((bits >> 16) & 1u)) & ~0xffffu);
  }
  static float RoundStep(float value) { return value; }
  static Stored Store(float value) { return FloatToBFloat16(value); }
};

struct FloatArithmetic {
  using Stored = float;
  static float Round(float value) { return value; }
  static float RoundStep(float value) { return value; }
  static Stored Store(float value) { return value; }
};

// Adding 2^23 rounds a small number >= 0 to the nearest integer, ties to even, in the low bits.
constexpr float kRounder = 0x1p23f;

/*! \brief The quantized values of a group, one per byte, and the scale. */
template <int64_t kSize>
struct Group {
  uint8_t values[kSize];
  float scale;
};

template <int kBits, int64_t kSize, typename Arithmetic>
struct Quantizer {
  static constexpr int64_t kPerWord = 32 / kBits;
  static constexpr int kZero = (1 << (kBits - 1)) - 1;
  static constexpr int kLargest = (1 << kBits) - 1;
  static constexpr int64_t kLanes = 8;
  static constexpr int kSteps = 13; /*!< Scales of the search for each sign. */
  static constexpr int kRefinements = 4;

  /*! \brief Quantize a group whose weights are rounded to the dtype. */
  static void Quantize(const float (&weights)[kSize], const float (& /*importance*/)[kSize],
                       Group<kSize>* group) {
    // Without the sign bit, floats have the same order as their bits.
    int32_t largest = 0;
    for (int64_t k = 0; k < kSize; ++k) {
      largest = std::max(largest, std::bit_cast<int32_t>(weights[k]) & 0x7fffffff);
    }
    const float scale = Arithmetic::Round(std::bit_cast<float>(largest) / kZero);
    constexpr float kBound = 2 * kZero;
    for (int64_t k = 0; k < kSize; ++k) {
      const float ratio = Arithmetic::RoundStep(weights[k] / scale);
      const float value = Arithmetic::RoundStep(ratio + kZero);
      const float positive = value > 0.0f ? value : 0.0f;  // Also for NaN, from 0 / 0.
      const float clamped = positive < kBound ? positive : kBound;
      group->values[k] = static_cast<uint8_t>(std::bit_cast<uint32_t>(clamped + kRounder));
    }
    group->scale = scale;
  }

  /*! \return The levels `u - zero` of a given scale, the nearest of all. */
  static void Levels(const float (&weights)[kSize], float scale, float (&levels)[kSize]) {
    const float inverse = 1.0f / scale;
    for (int64_t k = 0; k < kSize; ++k) {
      const float value = weights[k] * inverse + kZero;
      const float positive = value > 0.0f ? value : 0.0f;
      const float clamped = positive < kLargest ? positive : kLargest;
      levels[k] = (clamped + kRounder) - (kRounder + kZero);
    }
  }

  /*! \return The sum of term(k) over the group, in `kLanes` partial sums that are vectorized. */
  template <typename Term>
  static float Sum(Term term) {
    float sums[kLanes] = {};
    for (int64_t k = 0; k < kSize; k += kLanes) {
      for (int64_t i = 0; i < kLanes; ++i) sums[i] += term(k + i);
    }
    return std::accumulate(sums, sums + kLanes, 0.0f);
  }

  /*! \brief The weights of a group, and the factors of their squared errors. */
  struct Target {
    const float (&weights)[kSize];
    const float (&importance)[kSize];
  };

  /*! \brief A scale, the levels of a group, and their squared error. */
  struct Candidate {
    float scale;
    float levels[kSize];
    float error;

    void Evaluate(const Target& target) {
      error = Sum([&](int64_t k) {
        const float difference = target.weights[k] - levels[k] * scale;
        return target.importance[k] * difference * difference;
      });
    }

    /*! \brief Become the candidate of `new_scale` if it is better. \return Whether it is. */
    bool Improve(const Target& target, float new_scale) {
      Candidate other;
      other.scale = Arithmetic::Round(new_scale);
      if (!std::isnormal(other.scale)) return false;
      Levels(target.weights, other.scale, other.levels);
      other.Evaluate(target);
      if (!(other.error < error)) return false;
      *this = other;
      return true;
    }

    /*! \return The scale of least squared error for these levels; 0 if all are 0. */
    float LeastSquares(const Target& target) const {
      const float squares =
          Sum([&](int64_t k) { return target.importance[k] * levels[k] * levels[k]; });
      const float products =
          Sum([&](int64_t k) { return target.importance[k] * target.weights[k] * levels[k]; });
      return squares > 0.0f ? products / squares : 0.0f;
    }
  };

  static void Search(const float (&weights)[kSize], const float (&importance)[kSize],
                     Group<kSize>* group) {
    const Target target{weights, importance};
    Quantize(weights, importance, group);
    Candidate best;
    best.scale = group->scale;
    for (int64_t k = 0; k < kSize; ++k) {
      best.levels[k] = static_cast<float>(group->values[k] - kZero);
    }
    best.Evaluate(target);
    // One side of zero has one level more than the other: the side of the largest weight.
    const auto [low, high] = std::minmax_element(weights, weights + kSize);
    const float largest = *high < -*low ? *low : *high;
    for (int step = 0; step < kSteps; ++step) {
      // The number of levels that the largest magnitude becomes: 8.2 to 5.8 of 4 bits.
      const float levels = kZero + 1.2f - 0.2f * static_cast<float>(step);
      best.Improve(target, largest / levels);
    }
    for (int i = 0; i < kRefinements; ++i) {
      if (!best.Improve(target, best.LeastSquares(target))) break;
    }
    for (int64_t k = 0; k < kSize; ++k) {
      group->values[k] = static_cast<uint8_t>(static_cast<int>(best.levels[k]) + kZero);
    }
    group->scale = best.scale;
  }

  static void WriteWords(const Group<kSize>& group, uint32_t* words) {
    for (int64_t w = 0; w < kSize / kPerWord; ++w) {
      uint32_t word = 0;
      for (int64_t i = 0; i < kPerWord; ++i) {
        word |= static_cast<uint32_t>(group.values[w * kPerWord + i]) << (i * kBits);
      }
      words[w] = word;
    }
  }

  template <void (*kQuantize)(const float (&)[kSize], const float (&)[kSize], Group<kSize>*)>
  static void QuantizeRows(const float* weights, int64_t rows, int64_t cols,
                           const float* importance, uint32_t* words, void* scales) {
    auto* stored = static_cast<typename Arithmetic::Stored*>(scales);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t begin = 0; begin < cols; begin += kSize, words += kSize / kPerWord) {
        const int64_t count = std::min(kSize, cols - begin);
        float rounded[kSize] = {};
        std::memcpy(rounded, weights + row * cols + begin,
                    static_cast<size_t>(count) * sizeof(float));
        for (int64_t k = 0; k < kSize; ++k) rounded[k] = Arithmetic::Round(rounded[k]);
        float factors[kSize] = {};
        if (importance != nullptr) std::copy_n(importance + begin, count, factors);
        Group<kSize> group;
        kQuantize(rounded, factors, &group);
        std::fill(group.values + count, group.values + kSize, uint8_t{0});
        WriteWords(group, words);
        *stored++ = Arithmetic::Store(group.scale);
      }
    }
  }
};

template <typename Visit>
void WithQuantizer(const GroupFormat& format, Visit visit) {
  const bool is_4_bit = format.bits == 4;
  switch (format.dtype) {
    case ModelDtype::kF16:
      return is_4_bit ? visit(Quantizer<4, 32, HalfArithmetic>())
                      : visit(Quantizer<3, 40, HalfArithmetic>());
    case ModelDtype::kBF16:
      return is_4_bit ? visit(Quantizer<4, 32, BFloat16Arithmetic>())
                      : visit(Quantizer<3, 40, BFloat16Arithmetic>());
    case ModelDtype::kF32:
      return is_4_bit ? visit(Quantizer<4, 32, FloatArithmetic>())
                      : visit(Quantizer<3, 40, FloatArithmetic>());
  }
}

}  // namespace

void QuantizeGroups(const GroupFormat& format, const float* weights, int64_t rows, int64_t cols,
                    uint32_t* words, void* scales) {
  WithQuantizer(format, [&]<typename Q>(Q) {
    Q::template QuantizeRows<Q::Quantize>(weights, rows, cols, nullptr, words, scales);
  });
}

void SearchGroups(const GroupFormat& format, const float* weights, int64_t rows, int64_t cols,
                  const float* importance, uint32_t* words, void* scales) {
  WithQuantizer(format, [&]<typename Q>(Q) {
    Q::template QuantizeRows<Q::Search>(weights, rows, cols, importance, words, scales);
  });
}

void QuantizeBytes(const float* weights, int64_t cols, uint8_t* codes, uint8_t* scales) {
  constexpr int kZero = 128;
  for (int64_t first = 0; first < cols; first += kByteGroup, scales += sizeof(uint16_t)) {
    const int64_t end = std::min(cols, first + kByteGroup);
    float largest = 0;
    for (int64_t k = first; k < end; ++k) largest = std::max(largest, std::fabs(weights[k]));
    const float scale = largest / kLargestByte;
    // The float16 of a smaller scale is 0, and its inverse may be infinite.
    const float inverse = scale < std::numeric_limits<float>::min() ? 0.0f : 1.0f / scale;
    for (int64_t k = first; k < end; ++k) {
      codes[k] = static_cast<uint8_t>(static_cast<int>(std::round(weights[k] * inverse)) + kZero);
    }
    const uint16_t half = FloatToHalf(scale);
    std::memcpy(scales, &half, sizeof(half));
  }
}

bool FitsDtype(ModelDtype dtype, const float* values, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  switch (dtype) {
    case ModelDtype::kF16:
      return largest < std::bit_cast<uint32_t>(kHalfOverflow);
    case ModelDtype::kBF16:
      return largest < 0x7f7f8000u;
    case ModelDtype::kF32:
      return largest < 0x7f800000u;
  }
  return false;
}

void RoundFloats(ModelDtype dtype, const float* values, int64_t count, uint16_t* out) {
  const auto convert = dtype == ModelDtype::kF16 ? FloatToHalf : FloatToBFloat16;
  for (int64_t i = 0; i < count; ++i) out[i] = convert(values[i]);
}

}  // namespace aiomlc
