#include "kernels/elementwise/quantized_rows.h"

#include <cstring>

#include "kernels/elementwise/elementwise_parts.h"
#include "kernels/elementwise/elementwise_rows.h"
#include "platform/aligned_buffer.h"
#include "platform/kv_type.h"

namespace aiomlc {

void QuantizeRows(ThreadPool& pool, const void* x, FloatType type, int64_t rows, int64_t size,
                  std::byte* out) {
  const RowKernels kernels = ActiveRowKernels();
  const auto* source = static_cast<const std::byte*>(x);
  const size_t source_bytes = static_cast<size_t>(size) * FloatBytes(type);
  const size_t row_bytes = KvRowBytes(KvType::kI8, size);
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* target = out + row * row_bytes;
      const float scale = kernels.quantize(source + row * source_bytes, type, size,
                                           reinterpret_cast<int8_t*>(target));
      std::memcpy(target + size, &scale, sizeof(scale));
    }
  });
}

void RoundRowsToBFloat16(ThreadPool& pool, const void* x, FloatType type, int64_t rows,
                         int64_t size, std::byte* out) {
  const RowKernels kernels = ActiveRowKernels();
  const auto* source = static_cast<const std::byte*>(x);
  const size_t source_bytes = static_cast<size_t>(size) * FloatBytes(type);
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    kernels.round_to_bf16(source + begin * source_bytes, type, (end - begin) * size,
                          reinterpret_cast<uint16_t*>(out) + begin * size);
  });
}

namespace {

/*! \brief Call `function(row, its rotated elements)` for each row. */
template <typename Function>
void ForRotatedRows(ThreadPool& pool, const void* x, FloatType type, int64_t rows, int64_t size,
                    float factor, Function function) {
  const RowKernels kernels = ActiveRowKernels();
  const auto* source = static_cast<const std::byte*>(x);
  const size_t source_bytes = static_cast<size_t>(size) * FloatBytes(type);
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    thread_local AlignedBuffer buffer;
    auto* const rotated = reinterpret_cast<float*>(buffer.Reserve(sizeof(float) * size));
    for (int64_t row = begin; row < end; ++row) {
      kernels.rotate_blocks(source + row * source_bytes, type, size, RotationBlock(size), factor,
                            rotated);
      function(row, rotated);
    }
  });
}

}  // namespace

void RotateRows(ThreadPool& pool, const void* x, FloatType type, int64_t rows, int64_t size,
                float factor, void* out) {
  const RowKernels kernels = ActiveRowKernels();
  auto* target = static_cast<std::byte*>(out);
  const size_t row_bytes = static_cast<size_t>(size) * FloatBytes(type);
  ForRotatedRows(pool, x, type, rows, size, factor, [&](int64_t row, const float* rotated) {
    kernels.convert(rotated, size, target + row * row_bytes, type);
  });
}

void QuantizeRowsTo4Bits(ThreadPool& pool, const void* x, FloatType type, int64_t rows,
                         int64_t size, float factor, std::byte* out) {
  const RowKernels kernels = ActiveRowKernels();
  const size_t row_bytes = KvRowBytes(KvType::kI4, size);
  ForRotatedRows(pool, x, type, rows, size, 1.0f, [&](int64_t row, const float* rotated) {
    std::byte* target = out + row * row_bytes;
    const float scale =
        factor * kernels.quantize_to_4_bits(rotated, size, reinterpret_cast<uint8_t*>(target));
    std::memcpy(target + KvElementsBytes(KvType::kI4, size), &scale, sizeof(scale));
  });
}

}  // namespace aiomlc
