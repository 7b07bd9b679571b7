/*!
 * \file kernels/elementwise/elementwise_rows.h
 * \brief The elementwise kernels for one row, as a template over the `Lanes` classes.
 */
#ifndef AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_ROWS_H_
#define AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_ROWS_H_

#include <cstdint>
#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "kernels/simd/hadamard.h"
#include "kernels/simd/simd_math.h"
#include "platform/float_types.h"

namespace aiomlc {

/*! \brief The kernels of one instruction-set tier. Each processes one row. */
struct RowKernels {
  /*! \brief The RMS norm of float32[size]. */
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t size, void* out,
                   FloatType out_type);
  /*! \brief The layer norm of float32[size]; `bias` may be null, `out` may be `x`. */
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps,
                     int64_t size, float* out);
  /*! \brief The conversion to another element type. */
  void (*convert)(const float* x, int64_t size, void* out, FloatType out_type);
  /*! \brief silu(gate) * up; `out` may be `gate`. */
  void (*silu_mul)(const float* gate, const float* up, int64_t size, float* out);
  /*! \brief gelu(gate) * up, exact; `out` may be `gate`. */
  void (*gelu_mul)(const float* gate, const float* up, int64_t size, float* out);
  /*! \brief gelu_tanh(gate) * up; `out` may be `gate`. */
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t size, float* out);
  /*! \brief `Activation::kClampedSwiGlu`; `out` may be `gate`. */
  void (*clamped_swiglu)(const float* gate, const float* up, int64_t size, float* out);
  /*! \brief x * sigmoid(gate) for x of `type`. */
  void (*sigmoid_mul)(const void* x, FloatType type, const float* gate, int64_t size, float* out);
  /*! \brief The exact GELU of float32[size]; `out` may be `x`. */
  void (*gelu)(const float* x, int64_t size, float* out);
  /*! \brief The tanh approximation of GELU of float32[size]; `out` may be `x`. */
  void (*gelu_tanh)(const float* x, int64_t size, float* out);
  /*! \brief x / (1 + e^(-1.702 x)) of float32[size]; `out` may be `x`. */
  void (*quick_gelu)(const float* x, int64_t size, float* out);
  /*! \brief cap * tanh(x / cap); `out` may be `x`. */
  void (*soft_cap)(const float* x, float cap, int64_t size, float* out);
  /*! \brief e^((x - shift) * factor); `out` may be `x`. */
  void (*exp_scaled)(const float* x, float shift, float factor, int64_t size, float* out);
  /*! \brief See `LargestElement`. */
  float (*largest)(const float* x, int64_t size);
  /*! \brief See `SumsAtMost`. */
  void (*sums_at_most)(const float* x, int64_t size, const float* limits, float* sums);
  /*! \brief See `CollectBetween`. */
  int64_t (*collect_between)(const float* x, int64_t begin, int64_t end, float low, float high,
                             float* values, int32_t* ids);
  /*! \brief The rotation of each pair (x[i], x[i + half]). */
  void (*rotate)(const void* x, const float* cosines, const float* sines, int64_t half, void* out,
                 FloatType type);
  /*! \brief The quantization to int8; returns the scale, 1/127 of the largest absolute value. */
  float (*quantize)(const void* x, FloatType type, int64_t size, int8_t* out);
  /*! \brief Round to bf16. \param size A multiple of 16. */
  void (*round_to_bf16)(const void* x, FloatType type, int64_t size, uint16_t* out);
  /*! \brief The products of blocks with Hadamard matrices, and of these with `factor`. */
  void (*rotate_blocks)(const void* x, FloatType type, int64_t size, int64_t block, float factor,
                        float* out);
  /*! \brief The quantization to 16 levels; returns the scale, 1/15 of the largest magnitude. */
  float (*quantize_to_4_bits)(const float* x, int64_t size, uint8_t* out);
};

RowKernels PortableRowKernels();
RowKernels NeonRowKernels();
RowKernels Avx2RowKernels();
RowKernels Avx512RowKernels();

/*! \return The kernels of the active tier. */
RowKernels ActiveRowKernels();

/*! \brief An `Activation` of gate and up; `out` may be `gate`. */
using GateKernel = void (*)(const float* gate, const float* up, int64_t size, float* out);

/*! \return The gate kernel of an activation, of the active tier. */
GateKernel ActiveGateKernel(Activation activation);

/*! \brief The implementation of `RowKernels` with the vectors of one tier. */
template <typename Lanes>
class Rows {
 public:
  static RowKernels Kernels() {
    return {RmsNorm,       LayerNorm,    Convert,        SiluMul,        GeluMul,   GeluTanhMul,
            ClampedSwiGlu, SigmoidMul,   Gelu,           GeluTanh,       QuickGelu, SoftCap,
            ExpScaled,     Largest,      SumsAtMost,     CollectBetween, Rotate,    Quantize,
            RoundToBF16,   RotateBlocks, QuantizeTo4Bits};
  }

 private:
  using Vector = typename Lanes::Vector;

  /*! \brief Call `function(first, count)` for every vector of elements; the last may be shorter. */
  template <typename Function>
  static void ForVectors(int64_t size, Function function) {
    for (int64_t i = 0; i < size; i += Lanes::kWidth) {
      function(i, size - i < Lanes::kWidth ? static_cast<int>(size - i) : Lanes::kWidth);
    }
  }

  template <typename Element>
  static Vector Load(const Element* source, int count) {
    return count == Lanes::kWidth ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }

  template <typename Element>
  static void Store(Element* target, Vector a, int count) {
    if (count == Lanes::kWidth) {
      Lanes::Store(target, a);
    } else {
      Lanes::StoreFirst(target, a, count);
    }
  }

  static void StoreAs(FloatType type, void* out, int64_t i, Vector a, int count) {
    if (type == FloatType::kF16) {
      Store(static_cast<uint16_t*>(out) + i, a, count);
    } else {
      Store(static_cast<float*>(out) + i, a, count);
    }
  }

  static void RmsNorm(const float* x, const float* weight, float eps, int64_t size, void* out,
                      FloatType out_type) {
    Vector squares = Lanes::Set(0.0f);
    ForVectors(size, [&](int64_t i, int count) {
      const Vector a = Load(x + i, count);
      squares = Lanes::Fma(a, a, squares);
    });
    const float mean = Lanes::Sum(squares) / static_cast<float>(size);
    const Vector scale = Lanes::Set(1.0f / __builtin_sqrtf(mean + eps));
    ForVectors(size, [&](int64_t i, int count) {
      const Vector normal = Lanes::Mul(Load(x + i, count), scale);
      StoreAs(out_type, out, i, Lanes::Mul(normal, Load(weight + i, count)), count);
    });
  }

  static void LayerNorm(const float* x, const float* weight, const float* bias, float eps,
                        int64_t size, float* out) {
    Vector sum = Lanes::Set(0.0f);
    ForVectors(size, [&](int64_t i, int count) { sum = Lanes::Add(sum, Load(x + i, count)); });
    const Vector mean = Lanes::Set(Lanes::Sum(sum) / static_cast<float>(size));
    Vector squares = Lanes::Set(0.0f);
    ForVectors(size, [&](int64_t i, int count) {
      // Lanes after the end are 0 - mean, which must not count.
      const Vector a = Lanes::Select(count, Lanes::Sub(Load(x + i, count), mean), Lanes::Set(0.0f));
      squares = Lanes::Fma(a, a, squares);
    });
    const float variance = Lanes::Sum(squares) / static_cast<float>(size);
    const Vector scale = Lanes::Set(1.0f / __builtin_sqrtf(variance + eps));
    ForVectors(size, [&](int64_t i, int count) {
      const Vector normal = Lanes::Mul(Lanes::Sub(Load(x + i, count), mean), scale);
      const Vector scaled = Load(weight + i, count);
      Store(out + i,
            bias == nullptr ? Lanes::Mul(normal, scaled)
                            : Lanes::Fma(normal, scaled, Load(bias + i, count)),
            count);
    });
  }

  static void Convert(const float* x, int64_t size, void* out, FloatType out_type) {
    ForVectors(size,
               [&](int64_t i, int count) { StoreAs(out_type, out, i, Load(x + i, count), count); });
  }

  static void SiluMul(const float* gate, const float* up, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      const Vector a = Load(gate + i, count);
      const Vector decay = Exp<Lanes>(Lanes::Sub(Lanes::Set(0.0f), a));
      const Vector silu = Lanes::Div(a, Lanes::Add(Lanes::Set(1.0f), decay));
      Store(out + i, Lanes::Mul(silu, Load(up + i, count)), count);
    });
  }

  static void GeluMul(const float* gate, const float* up, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      Store(out + i, Lanes::Mul(ExactGelu(Load(gate + i, count)), Load(up + i, count)), count);
    });
  }

  static void GeluTanhMul(const float* gate, const float* up, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      const Vector gelu = aiomlc::GeluTanh<Lanes>(Load(gate + i, count));
      Store(out + i, Lanes::Mul(gelu, Load(up + i, count)), count);
    });
  }

  static void ClampedSwiGlu(const float* gate, const float* up, int64_t size, float* out) {
    const Vector limit = Lanes::Set(7.0f);
    const Vector one = Lanes::Set(1.0f);
    // With the variable operand second, NaN stays NaN.
    ForVectors(size, [&](int64_t i, int count) {
      const Vector a = Lanes::Min(limit, Load(gate + i, count));
      const Vector b = Lanes::Max(Lanes::Set(-7.0f), Lanes::Min(limit, Load(up + i, count)));
      const Vector decay = Exp<Lanes>(Lanes::Mul(a, Lanes::Set(-1.702f)));
      const Vector gated = Lanes::Div(a, Lanes::Add(one, decay));
      Store(out + i, Lanes::Mul(Lanes::Add(b, one), gated), count);
    });
  }

  static void SigmoidMul(const void* x, FloatType type, const float* gate, int64_t size,
                         float* out) {
    if (type == FloatType::kF16) {
      SigmoidMulElements(static_cast<const uint16_t*>(x), gate, size, out);
    } else {
      SigmoidMulElements(static_cast<const float*>(x), gate, size, out);
    }
  }

  template <typename Element>
  static void SigmoidMulElements(const Element* x, const float* gate, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      const Vector decay = Exp<Lanes>(Lanes::Sub(Lanes::Set(0.0f), Load(gate + i, count)));
      Store(out + i, Lanes::Div(Load(x + i, count), Lanes::Add(Lanes::Set(1.0f), decay)), count);
    });
  }

  static void Gelu(const float* x, int64_t size, float* out) {
    ForVectors(size,
               [&](int64_t i, int count) { Store(out + i, ExactGelu(Load(x + i, count)), count); });
  }

  static Vector ExactGelu(Vector a) {
    const Vector zero = Lanes::Set(0.0f);
    const Vector distance = Lanes::Max(a, Lanes::Sub(zero, a));
    // max(x, 0) - |x| erfc(|x| / sqrt(2)) / 2: the second term vanishes for large |x|, so nearly
    // equal numbers are never subtracted.
    const Vector tail = Lanes::Mul(Lanes::Mul(Lanes::Set(0.5f), distance),
                                   Erfc<Lanes>(Lanes::Mul(distance, Lanes::Set(0x1.6a09e6p-1f))));
    return Lanes::Sub(Lanes::Max(a, zero), tail);
  }

  static void GeluTanh(const float* x, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      Store(out + i, aiomlc::GeluTanh<Lanes>(Load(x + i, count)), count);
    });
  }

  static void QuickGelu(const float* x, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      const Vector a = Load(x + i, count);
      const Vector decay = Exp<Lanes>(Lanes::Mul(Lanes::Set(-1.702f), a));
      Store(out + i, Lanes::Div(a, Lanes::Add(Lanes::Set(1.0f), decay)), count);
    });
  }

  static void SoftCap(const float* x, float cap, int64_t size, float* out) {
    ForVectors(size, [&](int64_t i, int count) {
      Store(out + i, aiomlc::SoftCap<Lanes>(Load(x + i, count), cap), count);
    });
  }

  static void ExpScaled(const float* x, float shift, float factor, int64_t size, float* out) {
    const Vector shifts = Lanes::Set(shift);
    const Vector factors = Lanes::Set(factor);
    ForVectors(size, [&](int64_t i, int count) {
      const Vector scaled = Lanes::Mul(Lanes::Sub(Load(x + i, count), shifts), factors);
      Store(out + i, aiomlc::Exp<Lanes>(scaled), count);
    });
  }

  static float Largest(const float* x, int64_t size) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const Vector infinity = Lanes::Set(kInfinity);
    const Vector lowest = Lanes::Set(-kInfinity);
    const Vector one = Lanes::Set(1.0f);
    Vector largest = lowest;
    Vector is_special = Lanes::Set(0.0f);  // Not below infinity.
    ForVectors(size, [&](int64_t i, int count) {
      Vector value = Load(x + i, count);
      if (count < Lanes::kWidth) value = Lanes::Select(count, value, lowest);
      largest = Lanes::Max(largest, value);
      is_special = Lanes::Max(is_special, Lanes::ZeroIfLess(value, infinity, one));
    });
    if (Lanes::Largest(is_special) == 0.0f) return Lanes::Largest(largest);
    for (int64_t i = 0; i < size; ++i) {
      if (x[i] != x[i]) return kNan;
    }
    return kInfinity;
  }

  static void SumsAtMost(const float* x, int64_t size, const float* limits, float* sums) {
    Vector highest[kSumLimits];
    Vector totals[kSumLimits];
    for (int j = 0; j < kSumLimits; ++j) highest[j] = Lanes::Set(limits[j]);
    for (int j = 0; j < kSumLimits; ++j) totals[j] = Lanes::Set(0.0f);
    ForVectors(size, [&](int64_t i, int count) {
      const Vector value = Load(x + i, count);
      for (int j = 0; j < kSumLimits; ++j) {
        totals[j] = Lanes::Add(totals[j], Lanes::ZeroIfLess(highest[j], value, value));
      }
    });
    for (int j = 0; j < kSumLimits; ++j) sums[j] = Lanes::Sum(totals[j]);
  }

  static int64_t CollectBetween(const float* x, int64_t begin, int64_t end, float low, float high,
                                float* values, int32_t* ids) {
    const Vector lowest = Lanes::Set(low);
    const Vector limit = Lanes::Set(high);
    int64_t collected = 0;
    ForVectors(end - begin, [&](int64_t i, int count) {
      const int32_t id = static_cast<int32_t>(begin + i);
      collected += Lanes::StoreBetween(Load(x + id, count), lowest, limit, id, values + collected,
                                       ids + collected);
    });
    return collected;
  }

  static void Rotate(const void* x, const float* cosines, const float* sines, int64_t half,
                     void* out, FloatType type) {
    if (type == FloatType::kF16) {
      RotateElements(static_cast<const uint16_t*>(x), cosines, sines, half,
                     static_cast<uint16_t*>(out));
    } else {
      RotateElements(static_cast<const float*>(x), cosines, sines, half, static_cast<float*>(out));
    }
  }

  template <typename Element>
  static void RotateElements(const Element* x, const float* cosines, const float* sines,
                             int64_t half, Element* out) {
    ForVectors(half, [&](int64_t i, int count) {
      const Vector low = Load(x + i, count);
      const Vector high = Load(x + half + i, count);
      const Vector c = Load(cosines + i, count);
      const Vector s = Load(sines + i, count);
      Store(out + i, Lanes::Sub(Lanes::Mul(low, c), Lanes::Mul(high, s)), count);
      Store(out + half + i, Lanes::Add(Lanes::Mul(high, c), Lanes::Mul(low, s)), count);
    });
  }

  static float Quantize(const void* x, FloatType type, int64_t size, int8_t* out) {
    return type == FloatType::kF16 ? QuantizeElements(static_cast<const uint16_t*>(x), size, out)
                                   : QuantizeElements(static_cast<const float*>(x), size, out);
  }

  static void RoundToBF16(const void* x, FloatType type, int64_t size, uint16_t* out) {
    for (int64_t i = 0; i < size; i += Lanes::kWidth) {
      const Vector a = type == FloatType::kF16 ? Lanes::Load(static_cast<const uint16_t*>(x) + i)
                                               : Lanes::Load(static_cast<const float*>(x) + i);
      Lanes::StoreBFloat16(out + i, Lanes::RoundToBFloat16(a));
    }
  }

  /*! \brief The largest magnitude of a row, and zero, or NaN if an element is not finite. */
  struct Range {
    float largest;
    float poison;
  };

  template <typename Element>
  static Range RangeOf(const Element* x, int64_t size) {
    const Vector zero = Lanes::Set(0.0f);
    Vector largest = zero;
    Vector poison = zero;
    ForVectors(size, [&](int64_t i, int count) {
      const Vector a = Load(x + i, count);
      largest = Lanes::Max(largest, Lanes::Max(a, Lanes::Sub(zero, a)));
      poison = Lanes::Fma(a, zero, poison);
    });
    return {Lanes::Largest(largest), Lanes::Sum(poison)};
  }

  /*! \brief 1 / scale. A row of tiny numbers becomes zero, because the division might overflow. */
  static float InverseScale(Range range, float largest_level) {
    return range.largest > 0x1p-100f ? largest_level / range.largest : 0.0f;
  }

  template <typename Element>
  static float QuantizeElements(const Element* x, int64_t size, int8_t* out) {
    const Range range = RangeOf(x, size);
    const Vector inverse_scale = Lanes::Set(InverseScale(range, 127.0f));
    ForVectors(size, [&](int64_t i, int count) {
      Lanes::StoreRounded(out + i, Lanes::Mul(Load(x + i, count), inverse_scale), count);
    });
    return range.largest / 127.0f + range.poison;
  }

  static void RotateBlocks(const void* x, FloatType type, int64_t size, int64_t block, float factor,
                           float* out) {
    const Vector factors = Lanes::Set(factor);
    for (int64_t i = 0; i < size; i += Lanes::kWidth) {
      const Vector a = type == FloatType::kF16 ? Lanes::Load(static_cast<const uint16_t*>(x) + i)
                                               : Lanes::Load(static_cast<const float*>(x) + i);
      Lanes::Store(out + i, Lanes::Mul(a, factors));
    }
    aiomlc::RotateBlocks<Lanes>(out, size, block);
  }

  static float QuantizeTo4Bits(const float* x, int64_t size, uint8_t* out) {
    const Range range = RangeOf(x, size);
    const Vector inverse_scale = Lanes::Set(InverseScale(range, 7.5f));
    const Vector middle = Lanes::Set(7.5f);
    int8_t levels[Lanes::kWidth];
    for (int64_t i = 0; i < size; i += Lanes::kWidth) {
      const Vector a = Lanes::Fma(Lanes::Load(x + i), inverse_scale, middle);
      Lanes::StoreRounded(levels, a, Lanes::kWidth);
      for (int k = 0; k < Lanes::kWidth; k += 2) {
        *out++ = static_cast<uint8_t>((levels[k] & 15) | (levels[k + 1] & 15) << 4);
      }
    }
    return range.largest / 15.0f + range.poison;
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_ROWS_H_
