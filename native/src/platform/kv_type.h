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
 * With kBF16 and kI4, attention multiplies bf16 by bf16: see attention_products.h.
 * With kI8, each head of each position is quantized to int8 with one float32 scale, which is 1/127
 * of its largest absolute value and is stored after its elements.
 * With kI4, it is multiplied by a Hadamard matrix before it is quantized: see quantized_rows.h.
 */
enum class KvType { kF32, kF16, kBF16, kI8, kI4 };

/*! \brief The storage of the rows of a type: a row is one head of one position. */
struct KvFormat {
  int bits;            //!< Of an element.
  size_t unit_bytes;   //!< Of an element of TVM's tensors, which for kI4 is a pair of elements.
  size_t scale_bytes;  //!< After the elements of a row.
  /*! \brief Adjacent elements of a key, and adjacent slots of values, that are stored together. */
  int inputs;
  int head_multiple;  //!< The head_dim must be a multiple of it.
};

/*! \return The format of a type. */
constexpr KvFormat FormatOf(KvType type) {
  switch (type) {
    case KvType::kF32:
      return {32, 4, 0, 1, 1};
    case KvType::kF16:
      return {16, 2, 0, 1, 1};
    case KvType::kBF16:
      return {16, 2, 0, 2, 16};
    case KvType::kI8:
      return {8, 1, sizeof(float), 1, 1};
    case KvType::kI4:
      break;
  }
  return {4, 1, sizeof(float), 2, 32};
}

/*! \return The KV type that stores floats without quantization. */
constexpr KvType KvTypeOf(FloatType type) {
  return type == FloatType::kF32 ? KvType::kF32 : KvType::kF16;
}

/*! \return Whether queries have another type than keys and values. */
constexpr bool IsConverted(KvType type) { return type != KvType::kF32 && type != KvType::kF16; }

/*! \return The bytes of `count` elements without a scale; `count` is even for kI4. */
constexpr size_t KvElementsBytes(KvType type, int64_t count) {
  return static_cast<size_t>(count) * FormatOf(type).bits / 8;
}

/*! \return The bytes of one head of one position, including its scale. */
constexpr size_t KvRowBytes(KvType type, int64_t head_dim) {
  return KvElementsBytes(type, head_dim) + FormatOf(type).scale_bytes;
}

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_KV_TYPE_H_
