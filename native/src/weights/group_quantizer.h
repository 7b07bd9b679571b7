/*!
 * \file weights/group_quantizer.h
 * \brief Group quantization as MLC LLM stores it: words of small unsigned integers, and a scale per
 * group of consecutive columns.
 */
#ifndef AIOMLC_WEIGHTS_GROUP_QUANTIZER_H_
#define AIOMLC_WEIGHTS_GROUP_QUANTIZER_H_

#include <cstdint>

namespace aiomlc {

/*! \brief The dtype of a model's scales and of its tensors that are not quantized. */
enum class ModelDtype { kF16, kBF16, kF32 };

/*!
 * \brief A format `W = scale * (u - zero)` with `zero = 2^(bits - 1) - 1`.
 *
 * A word of 32 bits has `32 / bits` values, the first one in the lowest bits. A group has whole
 * words; the values after the last column are 0.
 */
struct GroupFormat {
  int bits = 4; /*!< 3 or 4. */
  int64_t group_size = 32;
  ModelDtype dtype = ModelDtype::kF16;

  int64_t values_per_word() const { return 32 / bits; }
  int64_t groups(int64_t cols) const { return (cols + group_size - 1) / group_size; }
  int64_t words(int64_t cols) const { return groups(cols) * (group_size / values_per_word()); }
};

/*!
 * \brief Quantize rows with the arithmetic of MLC LLM's converter on a CPU, bit by bit.
 *
 * The weights are rounded to the model's dtype first. The scale is the largest magnitude divided by
 * `zero`. With float16, the division by the scale and the addition of `zero` are rounded to
 * float16; with bfloat16, they are in float32, as TVM computes them on a CPU.
 *
 * \param format A supported format: 4 bits in groups of 32, or 3 bits in groups of 40.
 * \param weights [rows, cols], finite and in the range of the model's dtype.
 * \param words [rows, format.words(cols)].
 * \param scales [rows, format.groups(cols)], float32 or the bits of a 16-bit float.
 */
void QuantizeGroups(const GroupFormat& format, const float* weights, int64_t rows, int64_t cols,
                    uint32_t* words, void* scales);

/*!
 * \brief Quantize rows with the scales of least squared error, in the same format.
 *
 * The error of a group is never larger than with `QuantizeGroups`. It is usually smaller, because
 * all `2^bits` values are used (a scale may be negative) and large weights may be clipped.
 *
 * \param importance [cols], factors >= 0 of the squared errors of each column.
 */
void SearchGroups(const GroupFormat& format, const float* weights, int64_t rows, int64_t cols,
                  const float* importance, uint32_t* words, void* scales);

/*! \brief The largest magnitude of the codes of `QuantizeBytes`, and its group. */
constexpr float kLargestByte = 127;
constexpr int64_t kByteGroup = 32;

/*!
 * \brief Quantize a row as llama.cpp's Q8_0, bit by bit.
 *
 * The scale of a group of 32 columns is the largest magnitude divided by 127. Codes are divided by
 * the scale before it is rounded to float16, and rounded to the nearest integer, halves away from
 * zero.
 *
 * \param weights [cols], finite, of magnitudes below 127 times the largest float16.
 * \param codes [cols], the integers plus 128.
 * \param scales The bits of float16[ceil(cols / 32)], at any address.
 */
void QuantizeBytes(const float* weights, int64_t cols, uint8_t* codes, uint8_t* scales);

/*! \return Whether all values are finite, also after they are rounded to `dtype`. */
bool FitsDtype(ModelDtype dtype, const float* values, int64_t count);

/*! \brief Round to a 16-bit dtype, ties to even. */
void RoundFloats(ModelDtype dtype, const float* values, int64_t count, uint16_t* out);

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_GROUP_QUANTIZER_H_
