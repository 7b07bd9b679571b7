/*!
 * \file platform/kv_type.h
 * \brief The element types of KV caches.
 */
#ifndef AIOMLC_PLATFORM_KV_TYPE_H_
#define AIOMLC_PLATFORM_KV_TYPE_H_

#include <cstddef>
#include <cstdint>

#include "platform/float_types.h"

namespace aiomlc {

/*!
 * \brief The element type of a KV cache.
 *
 * With kBF16, attention multiplies bf16 by bf16: see attention_products.h.
 * With kI8, each head of each position is quantized to int8 with one float32 scale, which is 1/127
 * of its largest absolute value and is stored after its elements.
 */
enum class KvType { kF32, kF16, kBF16, kI8 };

/*! \return The KV type that stores floats without quantization. */
constexpr KvType KvTypeOf(FloatType type) {
  return type == FloatType::kF32 ? KvType::kF32 : KvType::kF16;
}

/*! \return The bytes of one element. */
constexpr size_t KvElementBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kI8 ? 1 : 2;
}

/*! \return The bytes of a scale, which each head has at each position. */
constexpr size_t KvScaleBytes(KvType type) { return type == KvType::kI8 ? sizeof(float) : 0; }

/*! \return The bytes of one head of one position, including its scale. */
constexpr size_t KvRowBytes(KvType type, int64_t head_dim) {
  return static_cast<size_t>(head_dim) * KvElementBytes(type) + KvScaleBytes(type);
}

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_KV_TYPE_H_
