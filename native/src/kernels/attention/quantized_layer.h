/*!
 * \file kernels/attention/quantized_layer.h
 * \brief A layer's queries, keys and values on their way to a KV cache of 8 bits.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_QUANTIZED_LAYER_H_
#define AIOMLC_KERNELS_ATTENTION_QUANTIZED_LAYER_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "kernels/elementwise/elementwise.h"

namespace aiomlc {

/*!
 * \brief What the calls of TVM's cache cannot say of a layer whose keys and values have 8 bits.
 *
 * The cache has one element type for everything. Rounding happens once, where queries, keys and
 * values are split: whoever reads a key later, in this step or another, reads the same bits.
 */
class QuantizedLayer {
 public:
  QuantizedLayer();
  ~QuantizedLayer();
  QuantizedLayer(const QuantizedLayer&) = delete;
  QuantizedLayer& operator=(const QuantizedLayer&) = delete;

  /*! \return The calling thread's: TVM makes all calls of a layer on one thread. */
  static QuantizedLayer& Current();

  /*! \brief A layer is computed while it lives, whose tensors outside of the cache are of `type`.
   */
  class Scope {
   public:
    Scope(QuantizedLayer& layer, FloatType type) : layer_(layer) { layer_.type_ = type; }
    ~Scope() { layer_.type_.reset(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    QuantizedLayer& layer_;
  };

  /*! \return The type of queries and output; nothing outside of every scope. */
  std::optional<FloatType> type() const { return type_; }

  /*!
   * \brief Rotate and split, and round keys and values.
   * \param call Its `q` is not used; its `k` and `v` take rows of KvType::kI8.
   */
  void Split(ThreadPool& pool, RotaryCall call);

  /*! \return The rotated queries of the last `Split`, [rows, num_query_heads, head_dim]. */
  const void* queries() const { return queries_; }

 private:
  struct Buffers;

  std::optional<FloatType> type_;
  const void* queries_ = nullptr;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_QUANTIZED_LAYER_H_
