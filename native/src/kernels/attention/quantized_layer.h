/*!
 * \file kernels/attention/quantized_layer.h
 * \brief RoPE and quantization of a layer's keys and values for a KV cache of another type.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_QUANTIZED_LAYER_H_
#define AIOMLC_KERNELS_ATTENTION_QUANTIZED_LAYER_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "kernels/elementwise/elementwise.h"
#include "platform/kv_type.h"

namespace aiomlc {

/*!
 * \brief The state of a layer whose KV cache has another type than its queries, which the calls by
 * TVM's cache do not contain.
 *
 * TVM's cache has one element type for all tensors, so the queries in float16 or float32 are kept
 * here. Keys and values are quantized once, in `Split`, so this step and all later steps read the
 * same bits.
 *
 * In a cache of 4 bits, keys and values are rotated: multiplied by a Hadamard matrix, which spreads
 * outliers. Queries are rotated alike, so that scores stay, and `Finish` rotates outputs back.
 */
class QuantizedLayer {
 public:
  QuantizedLayer();
  ~QuantizedLayer();
  QuantizedLayer(const QuantizedLayer&) = delete;
  QuantizedLayer& operator=(const QuantizedLayer&) = delete;

  /*! \return The instance of this thread; TVM makes all calls for a layer on one thread. */
  static QuantizedLayer& Current();

  /*! \brief Sets the type of queries and output for the layer computed during its lifetime. */
  class Scope {
   public:
    /*! \param stored Not a type of floats: see `IsConverted`. */
    Scope(QuantizedLayer& layer, FloatType type, KvType stored) : layer_(layer) {
      layer_.type_ = type;
      layer_.stored_ = stored;
    }
    ~Scope() { layer_.type_.reset(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    QuantizedLayer& layer_;
  };

  /*! \return The type of queries and output; empty outside of any scope. */
  std::optional<FloatType> type() const { return type_; }

  /*!
   * \brief Apply RoPE, split queries, keys and values, and quantize keys and values.
   * \param call Its `q` is not used; rows of the stored type are written to its `k` and `v`.
   */
  void Split(ThreadPool& pool, RotaryCall call);

  /*! \return The queries of the last `Split`, [rows, num_query_heads, head_dim]. */
  const void* queries() const { return queries_; }

  /*! \brief Complete the attention outputs of the last `Split`, with the shape of its queries. */
  void Finish(ThreadPool& pool, void* output) const;

 private:
  struct Buffers;

  std::optional<FloatType> type_;
  KvType stored_ = KvType::kI8;
  HeadLayout heads_;
  int64_t num_rows_ = 0;
  void* queries_ = nullptr;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_QUANTIZED_LAYER_H_
