/*!
 * \file kernels/linear/format/matrix_format.h
 * \brief The storage formats of weight matrices, and the packing of grouped ones.
 *
 * `aiomlc/models/parameters/matrix_format.py` has the same names, codes and sizes for Python; a
 * test compares them.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_MATRIX_FORMAT_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_MATRIX_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace aiomlc {

/*! \brief The families of formats; only kGrouped has further fields. */
enum class WeightFormat : uint8_t {
  kF32,
  kBF16,
  kQ4,       //!< 4 bits, with one float16 scale per 32 inputs (MLC LLM's `q4f16_1`).
  kGrouped,  //!< Few bits, with a scale and a zero point or minimum per group of inputs.
  kF16,
  kChannel,  //!< int8 with a float32 scale per output; activations have one scale per row.
  //! 4 bits with integer scales and offsets per 32 inputs and a float32 scale per output, for
  //! activations that are rotated and have one scale per row.
  kProgressive,
  kRotated  //!< kChannel, for activations that are rotated first.
};

/*! \brief The meaning of the stored codes of a grouped format. */
enum class CodeType : uint8_t {
  kUnsigned,  //!< Unsigned integers of 2, 3, 4, 5, 6 or 8 bits.
  kE2M1,      //!< 4 bits: twice the value of an FP4 number (MXFP4), an integer in [-12, 12].
  kIQ4NL      //!< 4 bits: an entry of GGUF's table IQ4_NL, an integer in [-127, 113].
};

/*! \brief The type of the scales of a grouped format. */
enum class ScaleType : uint8_t {
  kF16,
  kBF16,
  kF32,
  kK8,  //!< A float16 per 256 inputs, times a uint8 per group.
  kK8S  //!< A float16 per 256 inputs, times an int8 per group.
};

/*! \brief The kind of zero that a grouped format subtracts. */
enum class ZeroType : uint8_t {
  kConstant,  //!< The same zero point in the whole matrix: scale * (code - zero).
  kPoints,    //!< A uint8 zero point per group: scale * (code - zero point).
  kMinima     //!< A minimum of the scale's type per group: scale * code - minimum.
};

/*! \brief The inputs of a block with one pair of float16 in the k8 scale types. */
inline constexpr int64_t kSuperGroupSize = 256;
/*! \brief The value of each code of CodeType::kE2M1, and of CodeType::kIQ4NL. */
constexpr int8_t kE2M1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int8_t kIQ4NLValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

/*!
 * \brief The storage format of a weight matrix.
 *
 * The name of a grouped format is `u{bits}g{group}{scale}{zero}`, with the scale f16, bf16, f32, k8
 * or k8s, and the zero `z{constant}`, `zp` or `m`. `e2m1` and `iq4nl` in place of `u{bits}` have no
 * zero. The other names are `f32`, `f16`, `bf16`, `q4`, `i8channel` and `i4progressive`.
 */
struct MatrixFormat {
  WeightFormat family = WeightFormat::kF32;
  CodeType code = CodeType::kUnsigned;
  ScaleType scale = ScaleType::kF16;
  ZeroType zero = ZeroType::kConstant;
  uint8_t bits = 0;
  uint8_t constant = 0;  //!< The zero point of ZeroType::kConstant.
  uint16_t group = 0;    //!< The number of consecutive inputs with the same scale.

  constexpr MatrixFormat() = default;
  /*! \brief Implicit, because a family other than kGrouped is a format. */
  constexpr MatrixFormat(WeightFormat family) : family(family) {}  // NOLINT(*-explicit-*)

  /*! \throws std::invalid_argument if there is no such format. */
  static MatrixFormat Parse(std::string_view name);

  /*! \throws std::invalid_argument if `packed` was not returned by `Packed`. */
  static MatrixFormat FromPacked(int64_t packed);

  /*! \return The fields as one positive integer, by which compiled libraries name the format. */
  int64_t Packed() const;

  std::string Name() const;

  bool operator==(const MatrixFormat&) const = default;
};

/*! \return The bytes of a packed matrix of `rows` outputs and `cols` inputs. */
size_t PackedMatrixBytes(MatrixFormat format, int64_t rows, int64_t cols);

/*! \brief Consecutive rows of a matrix that are stored in one format, padded to whole tiles. */
struct MatrixSegment {
  MatrixFormat format;
  int64_t rows;
};

/*! \brief A matrix: its segments in the order of their rows. Their packed bytes are adjacent. */
using MatrixLayout = std::span<const MatrixSegment>;

/*! \return The number of outputs of a matrix. */
int64_t RowsOf(MatrixLayout layout);

/*! \return The bytes of a packed matrix of `cols` inputs. */
size_t PackedMatrixBytes(MatrixLayout layout, int64_t cols);

/*! \brief The maximum inputs of matrices whose sums are int32: kChannel, kProgressive and kRotated.
 */
inline constexpr int64_t kMaxChannelInputs = int64_t{1} << 16;

/*! \return Element `index` of scales or minima, without the float16 of its super group. */
float ScaleNumber(ScaleType type, const uint8_t* numbers, int64_t index);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_MATRIX_FORMAT_H_
