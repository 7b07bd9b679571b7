/*!
 * \file kernels/attention/quantized_layer.cc
 * \brief RoPE in the type of the queries, then quantization of keys and values.
 */
#include "kernels/attention/quantized_layer.h"

#include "kernels/elementwise/quantized_rows.h"
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
  heads_ = heads;
  num_rows_ = call.rows;
  const int64_t size = heads.head_dim, count = call.rows * heads.num_kv_heads;
  switch (stored_) {
    case KvType::kI4: {
      // The factors keep rotated queries and outputs in the range of float16.
      const float factor = 1.0f / static_cast<float>(RotationBlock(size));
      RotateRows(pool, queries_, call.type, call.rows * heads.num_query_heads, size, factor,
                 queries_);
      QuantizeRowsTo4Bits(pool, call.k, call.type, count, size, 1.0f, keys);
      QuantizeRowsTo4Bits(pool, call.v, call.type, count, size, factor, values);
      break;
    }
    case KvType::kBF16:
      RoundRowsToBFloat16(pool, call.k, call.type, count, size, keys);
      RoundRowsToBFloat16(pool, call.v, call.type, count, size, values);
      break;
    default:
      QuantizeRows(pool, call.k, call.type, count, size, keys);
      QuantizeRows(pool, call.v, call.type, count, size, values);
  }
}

void QuantizedLayer::Finish(ThreadPool& pool, void* output) const {
  if (stored_ != KvType::kI4) return;
  RotateRows(pool, output, *type_, num_rows_ * heads_.num_query_heads, heads_.head_dim, 1.0f,
             output);
}

}  // namespace aiomlc
