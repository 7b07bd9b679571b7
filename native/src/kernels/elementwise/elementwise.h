/*!
 * \file kernels/elementwise/elementwise.h
 * \brief What a transformer does to each row between its matrices.
 *
 * Tensors are dense and row-major. Every element is computed with the same float32 operations in
 * the same order on every instruction-set tier, whatever the other rows and the number of threads.
 */
#ifndef AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief out = x / sqrt(mean(x^2) + eps) * weight, for each of `rows` rows of `size`. */
void RmsNorm(ThreadPool& pool, const float* x, const float* weight, float eps, int64_t rows,
             int64_t size, float* out);

/*! \brief out_residual = x + residual; out = its RMS norm. `out_residual` may be an input. */
void AddRmsNorm(ThreadPool& pool, const float* x, const float* residual, const float* weight,
                float eps, int64_t rows, int64_t size, float* out, float* out_residual);

/*! \brief out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, for each row. `bias` may
 * be null, `out` may be `x`. */
void LayerNorm(ThreadPool& pool, const float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t size, float* out);

/*! \brief out_residual = x + residual; out = its layer norm. `out_residual` may be an input. */
void AddLayerNorm(ThreadPool& pool, const float* x, const float* residual, const float* weight,
                  const float* bias, float eps, int64_t rows, int64_t size, float* out,
                  float* out_residual);

/*! \brief out = x * P(a normal variable is below x), the exact GELU. `out` may be `x`. */
void Gelu(ThreadPool& pool, const float* x, int64_t size, float* out);

/*! \brief The GELU with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for the error function. `out` may be
 * `x`. */
void GeluTanh(ThreadPool& pool, const float* x, int64_t size, float* out);

/*! \brief out = max(x, 0)^2. `out` may be `x`. */
void ReluSquare(ThreadPool& pool, const float* x, int64_t size, float* out);

/*! \brief out = a + b, element by element. `out` may be an input. */
void Add(ThreadPool& pool, const float* a, const float* b, int64_t size, float* out);

/*! \brief out = x * factor, element by element. `out` may be `x`. */
void Scale(ThreadPool& pool, const float* x, float factor, int64_t size, float* out);

/*! \brief out = cap * tanh(x / cap), element by element. `out` may be `x`. */
void SoftCap(ThreadPool& pool, const float* x, float cap, int64_t size, float* out);

/*! \brief What a gated layer does to its gate: x / (1 + e^-x), or GELU by way of tanh. */
enum class Activation { kSilu, kGeluTanh };

/*! \brief out[i] = activation(gate_up[i][:size]) * gate_up[i][size:], for each of `rows` rows. */
void GatedMul(ThreadPool& pool, Activation activation, const float* gate_up, int64_t rows,
              int64_t size, float* out);

/*! \brief The same with SiLU. */
void SiluMul(ThreadPool& pool, const float* gate_up, int64_t rows, int64_t size, float* out);

/*! \brief The heads of one attention layer, as they lie in a fused qkv row: q, k, v. */
struct HeadLayout {
  int64_t num_query_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  int64_t num_heads() const { return num_query_heads + 2 * num_kv_heads; }
};

/*! \brief What one norm of queries or keys spans. */
enum class QkSpan { kHead, kAllHeads };

/*!
 * \brief RMS norm of each query and key head by itself, or of all query heads and all key heads;
 * values are only converted.
 * \param qkv float32[rows, num_heads, head_dim].
 * \param query_weight As many elements as one norm spans; so has `key_weight`.
 * \param out Same shape, of `out_type`.
 */
void QkNorm(ThreadPool& pool, const HeadLayout& heads, QkSpan span, const float* qkv,
            const float* query_weight, const float* key_weight, float eps, int64_t rows, void* out,
            FloatType out_type);

/*!
 * \brief Rotate queries and keys by their positions, and split them from the values.
 *
 * Dimension i turns with i + n, where n is `num_frequencies` (half of the rotated dimensions); the
 * angle is float32(position) * inverse_frequencies[i], and `amplitude` multiplies cosines and
 * sines. Dimensions from 2 n on are only copied.
 * \param qkv [rows, num_heads, head_dim]; q, k, v take their parts of it. All are of `type`.
 */
struct RotaryCall {
  HeadLayout heads;
  FloatType type = FloatType::kF16;
  int64_t rows = 0;
  const void* qkv = nullptr;
  const int32_t* positions = nullptr;  //!< [rows]
  const float* inverse_frequencies = nullptr;
  int64_t num_frequencies = 0;
  void* q = nullptr;
  void* k = nullptr;
  void* v = nullptr;
  float amplitude = 1.0f;
};

void SplitRotary(ThreadPool& pool, const RotaryCall& call);

/*!
 * \brief Round each row to 8 bits with a step of its own; half a step at most is lost.
 * \param x Rows of `size` elements of `type`.
 * \param out As many rows of KvType::kI8. A row with an element that is not finite is NaN.
 */
void QuantizeRows(ThreadPool& pool, const void* x, FloatType type, int64_t rows, int64_t size,
                  std::byte* out);

/*! \brief out[i] = x[row_ids[i]], rows of `size`. Ids must be in range. */
void TakeRows(const float* x, const int32_t* row_ids, int64_t count, int64_t size, float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
