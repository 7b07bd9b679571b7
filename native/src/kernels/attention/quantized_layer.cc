/*!
 * \file kernels/attention/quantized_layer.cc
 * \brief RoPE in the type of the queries, then quantization of keys and values.
 */
#include "kernels/attention/quantized_layer.h"

#include "platform/aligned_buffer.h"

namespace aiomlc {

/*! \brief The tensors of a layer before quantization; the memory is reused by later layers. */
struct QuantizedLayer::Buffers {
  AlignedBuffer queries, keys, values;
};

QuantizedLayer::QuantizedLayer() : buffers_(std::make_unique<Buffers>()) {}
QuantizedLayer::~QuantizedLayer() = default;

QuantizedLayer& QuantizedLayer::Current() {
  thread_local QuantizedLayer current;
  return current;
}

void QuantizedLayer::Split(ThreadPool& pool, RotaryCall call) {
  const HeadLayout& heads = call.heads;
  const size_t head_bytes = static_cast<size_t>(call.rows * heads.head_dim) * FloatBytes(call.type);
  auto* keys = static_cast<std::byte*>(call.k);
  auto* values = static_cast<std::byte*>(call.v);
  call.q = buffers_->queries.Reserve(heads.num_query_heads * head_bytes);
  call.k = buffers_->keys.Reserve(heads.num_kv_heads * head_bytes);
  call.v = buffers_->values.Reserve(heads.num_kv_heads * head_bytes);
  queries_ = call.q;
  SplitRotary(pool, call);
  const int64_t count = call.rows * heads.num_kv_heads;
  const auto store = stored_ == KvType::kBF16 ? RoundRowsToBFloat16 : QuantizeRows;
  store(pool, call.k, call.type, count, heads.head_dim, keys);
  store(pool, call.v, call.type, count, heads.head_dim, values);
}

}  // namespace aiomlc
