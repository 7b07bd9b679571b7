/*!
 * \file kernels/elementwise/elementwise.h
 * \brief Norms, activations, RoPE and other operations on rows, between the matrix products.
 *
 * Tensors are dense and row-major. Every element is computed with the same float32 operations in
 * the same order, independent of the instruction-set tier, the other rows and the number of
 * threads.
 */
#ifndef AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
#define AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_H_

#include <cstddef>
#include <cstdint>

#include "platform/float_types.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Compute out = x / sqrt(mean(x^2) + eps) * weight for each of `rows` rows of `size`. */
void RmsNorm(ThreadPool& pool, const float* x, const float* weight, float eps, int64_t rows,
             int64_t size, float* out);

/*!
 * \brief Compute out_residual = x + residual, and out = the RMS norm of out_residual.
 *
 * `out_residual` may be an input.
 */
void AddRmsNorm(ThreadPool& pool, const float* x, const float* residual, const float* weight,
                float eps, int64_t rows, int64_t size, float* out, float* out_residual);

/*!
 * \brief Compute out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias for each row.
 *
 * `bias` may be null, `out` may be `x`.
 */
void LayerNorm(ThreadPool& pool, const float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t size, float* out);

/*!
 * \brief Compute out_residual = x + residual, and out = the layer norm of out_residual.
 *
 * `out_residual` may be `x` or `residual`.
 */
void AddLayerNorm(ThreadPool& pool, const float* x, const float* residual, const float* weight,
                  const float* bias, float eps, int64_t rows, int64_t size, float* out,
                  float* out_residual);

/*! \brief Compute the exact GELU, x (1 + erf(x / sqrt(2))) / 2. `out` may be `x`. */
void Gelu(ThreadPool& pool, const float* x, int64_t size, float* out);

/*!
 * \brief Compute the tanh approximation of GELU, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
 *
 * `out` may be `x`.
 */
void GeluTanh(ThreadPool& pool, const float* x, int64_t size, float* out);

/*! \brief Compute CLIP's approximation of GELU, x / (1 + e^(-1.702 x)). `out` may be `x`. */
void QuickGelu(ThreadPool& pool, const float* x, int64_t size, float* out);

/*! \brief Compute out = max(x, 0)^2. `out` may be `x`. */
void SquaredRelu(ThreadPool& pool, const float* x, int64_t size, float* out);

/*! \brief Compute out = a + b. `out` may be an input. */
void Add(ThreadPool& pool, const float* a, const float* b, int64_t size, float* out);

/*! \brief Compute out = x * factor. `out` may be `x`. */
void Scale(ThreadPool& pool, const float* x, float factor, int64_t size, float* out);

/*! \brief Multiply each row of `size` elements by `factors`. `out` may be `x`. */
void ScaleColumns(ThreadPool& pool, const float* x, const float* factors, int64_t rows,
                  int64_t size, float* out);

/*! \brief Compute out = cap * tanh(x / cap). `out` may be `x`. */
void SoftCap(ThreadPool& pool, const float* x, float cap, int64_t size, float* out);

/*!
 * \brief Compute out = e^((x - shift) * factor) to about 1 ulp, on the calling thread.
 *
 * 0 where the exponent is below -87. `out` may be `x`.
 */
void ExpScaled(const float* x, float shift, float factor, int64_t size, float* out);

/*!
 * \return The largest element, or NaN if an element is NaN, computed on the calling thread.
 * \param size At least 1.
 */
float LargestElement(const float* x, int64_t size);

/*! \brief The number of limits of `SumsAtMost`. */
inline constexpr int kSumLimits = 4;

/*!
 * \brief Compute sums[j] = the sum of the elements of `x` that are at most limits[j], on the
 * calling thread.
 *
 * 16 partial sums are added, so the relative error for positive elements is below size * 2^-28.
 */
void SumsAtMost(const float* x, int64_t size, const float* limits, float* sums);

/*! \brief The elements behind the last one that `CollectBetween` may write. */
inline constexpr int64_t kCollectPadding = 16;

/*!
 * \brief Copy the elements of x[begin, end) that are at least `low` and less than `high`, and their
 * indices, in ascending order of these, on the calling thread.
 * \param low Positive.
 * \param values With space for all of them and kCollectPadding more, like `ids`.
 * \return Their number.
 */
int64_t CollectBetween(const float* x, int64_t begin, int64_t end, float low, float high,
                       float* values, int32_t* ids);

/*!
 * \brief The function of gate g and up u in a gated feed-forward layer.
 *
 * kSilu is silu(g) * u, kGelu and kGeluTanh are gelu(g) * u, exact or approximated, and
 * kClampedSwiGlu, of gpt-oss, is g * sigmoid(1.702 * g) * (u + 1), with g at most 7 and u between
 * -7 and 7.
 */
enum class Activation { kSilu, kGelu, kGeluTanh, kClampedSwiGlu };

/*! \brief Compute the activation of gate_up[i][:size] and gate_up[i][size:] for each row i. */
void GatedMul(ThreadPool& pool, Activation activation, const float* gate_up, int64_t rows,
              int64_t size, float* out);

/*! \brief Compute `GatedMul` with SiLU. */
void SiluMul(ThreadPool& pool, const float* gate_up, int64_t rows, int64_t size, float* out);

/*! \brief Rows of a fused matrix product: queries, as many gates, then other columns. */
struct GatedColumns {
  const float* rows = nullptr;  //!< [count, width]
  int64_t count = 0;
  int64_t width = 0;
  int64_t size = 0;  //!< Of the queries, and of the gates.
};

/*! \brief Copy all columns but those of the gates, to float32[count, width - size]. */
void DropGate(ThreadPool& pool, const GatedColumns& columns, float* out);

/*! \brief Compute out = x * sigmoid(gates) for [count, size] elements of `type`. */
void SigmoidGate(ThreadPool& pool, const void* x, FloatType type, const GatedColumns& columns,
                 float* out);

/*! \brief The heads of one attention layer, in the order of a fused qkv row: q, k, v. */
struct HeadLayout {
  int64_t num_query_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  int64_t num_heads() const { return num_query_heads + 2 * num_kv_heads; }
};

/*! \brief The elements that one norm of queries or keys spans: each head, or all heads of a row. */
enum class QkSpan { kHead, kAllHeads };

/*!
 * \brief Compute the RMS norm of queries and keys; values are only converted to `out_type`.
 * \param span Whether each head, or all query heads and all key heads of a row, have one norm.
 * \param qkv float32[rows, num_heads, head_dim].
 * \param query_weight As many elements as one norm of queries spans; `key_weight` likewise.
 * \param out Same shape as `qkv`, of `out_type`.
 */
void QkNorm(ThreadPool& pool, const HeadLayout& heads, QkSpan span, const float* qkv,
            const float* query_weight, const float* key_weight, float eps, int64_t rows, void* out,
            FloatType out_type);

/*! \brief The values of a fused product: the last heads, or the keys before their norm. */
enum class ValueSource { kValues, kKeys };

/*!
 * \brief Compute the RMS norm of each head of queries, keys and values; values have no weights.
 * \param source With kKeys, `qkv` has no heads of values.
 * \param qkv float32[rows, heads, head_dim].
 * \param query_weight [head_dim], and so is `key_weight`.
 * \param out [rows, num_heads, head_dim], of `out_type`.
 */
void QkvNorm(ThreadPool& pool, const HeadLayout& heads, ValueSource source, const float* qkv,
             const float* query_weight, const float* key_weight, float eps, int64_t rows, void* out,
             FloatType out_type);

/*! \brief The arguments of `SplitRotary`. */
struct RotaryCall {
  HeadLayout heads;
  FloatType type = FloatType::kF16;  //!< Of qkv, q, k and v.
  int64_t rows = 0;
  const void* qkv = nullptr;                   //!< [rows, num_heads, head_dim]
  const int32_t* positions = nullptr;          //!< [rows]; with `axes`, [3, rows]
  const float* inverse_frequencies = nullptr;  //!< [num_frequencies]
  int64_t num_frequencies = 0;                 //!< Half of the rotary dimensions.
  void* q = nullptr;                           //!< [rows, num_query_heads, head_dim]
  void* k = nullptr;                           //!< [rows, num_kv_heads, head_dim]
  void* v = nullptr;                           //!< [rows, num_kv_heads, head_dim]
  float amplitude = 1.0f;                      //!< Multiplies cosines and sines.
  /*! \brief [num_frequencies], or null: the axis of the position that each frequency multiplies. */
  const uint8_t* axes = nullptr;
};

/*!
 * \brief Split a fused qkv tensor, and apply RoPE to queries and keys.
 *
 * Dimension i is rotated together with dimension i + num_frequencies, by the angle
 * float32(position) * inverse_frequencies[i]. Dimensions from 2 * num_frequencies on are copied.
 */
void SplitRotary(ThreadPool& pool, const RotaryCall& call);

/*! \brief Rows of elements of one type, of which some columns are read. */
struct ColumnRange {
  const void* rows = nullptr;  //!< [count, width]
  int64_t width = 0;
  int64_t begin = 0;
  int64_t size = 0;
};

/*! \brief Copy out[i] = the columns of a[i], then those of b[i]. `a` may have none. */
void ConcatColumns(ThreadPool& pool, const ColumnRange& a, const ColumnRange& b, int64_t count,
                   FloatType type, void* out);

/*! \brief Copy ids, with 0 in place of those that are not in [0, limit). */
void ReplaceUnknownIds(const int32_t* ids, int32_t limit, int64_t count, int32_t* out);

/*! \brief Copy out[i] = x[row_ids[i]], rows of `size`. Ids must be in range. */
void GatherRows(const float* x, const int32_t* row_ids, int64_t count, int64_t size, float* out);

/*!
 * \brief Copy out[i, k] = x[i, order[k]] for rows of `size` elements of `type`. The order must be
 * in range.
 */
void GatherColumns(ThreadPool& pool, const void* x, FloatType type, const int32_t* order,
                   int64_t rows, int64_t size, void* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ELEMENTWISE_ELEMENTWISE_H_
