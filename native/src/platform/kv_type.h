/*!
 * \file platform/kv_type.h
 * \brief How a KV cache holds keys and values.
 */
#ifndef AIOMLC_PLATFORM_KV_TYPE_H_
#define AIOMLC_PLATFORM_KV_TYPE_H_

#include <cstddef>
#include <cstdint>

#include "platform/float_types.h"

namespace aiomlc {

/*!
 * \brief The elements of a KV cache.
 *
 * With kI8 one head of one position is its elements, each the nearest multiple of 1/127 of the
 * largest, and after them a float32 with the size of that step.
 */
enum class KvType { kF32, kF16, kI8 };

/*! \return The type that holds floats as they are. */
constexpr KvType KvTypeOf(FloatType type) {
  return type == FloatType::kF32 ? KvType::kF32 : KvType::kF16;
}

/*! \return Bytes of one element. */
constexpr size_t KvElementBytes(KvType type) {
  return type == KvType::kF32 ? 4 : type == KvType::kF16 ? 2 : 1;
}

/*! \return Bytes of the scale of one head of one position. */
constexpr size_t KvScaleBytes(KvType type) { return type == KvType::kI8 ? sizeof(float) : 0; }

/*! \return Bytes of one head of one position. */
constexpr size_t KvRowBytes(KvType type, int64_t head_dim) {
  return static_cast<size_t>(head_dim) * KvElementBytes(type) + KvScaleBytes(type);
}

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_KV_TYPE_H_
