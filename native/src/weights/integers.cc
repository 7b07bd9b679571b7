#include "weights/integers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace aiomlc {

namespace {

constexpr int kWordBits = 32;

/*! \brief The position of an integer on the packed axis. */
struct BitField {
  int64_t unit;
  int shift;
};

BitField FieldAt(const IntegerTensor& tensor, int64_t index) {
  constexpr std::array<int, 8> kAwqOrder = {0, 4, 1, 5, 2, 6, 3, 7};
  if (tensor.per_unit == 0) {
    const int64_t bit = index * tensor.bits;
    const int64_t unit_bits = int64_t{8} * tensor.unit_bytes;
    return {bit / unit_bits, static_cast<int>(bit % unit_bits)};
  }
  const auto position = static_cast<size_t>(index % tensor.per_unit);
  const int in_unit = tensor.is_awq_order ? kAwqOrder.at(position) : static_cast<int>(position);
  return {index / tensor.per_unit, in_unit * tensor.bits};
}

uint32_t Word(const uint8_t* unit) {
  uint32_t word;
  std::memcpy(&word, unit, sizeof(word));
  return word;
}

/*!
 * \brief Copy one position of the packed axis for `count` positions of the other axis.
 * \param units The unit of the first one. \param stride The bytes to that of the next one.
 * \param next The bytes to the unit that holds the rest of an integer.
 */
void CopyPacked(const IntegerTensor& tensor, int shift, const uint8_t* units, int64_t stride,
                int64_t next, int64_t count, uint8_t* out, int64_t out_stride) {
  const uint32_t mask = (1u << tensor.bits) - 1;
  if (tensor.unit_bytes == 1) {
    const int flip = tensor.is_signed ? 0x80 : 0;
    for (int64_t i = 0; i < count; ++i) {
      out[i * out_stride] = static_cast<uint8_t>(((units[i * stride] ^ flip) >> shift) & mask);
    }
    return;
  }
  if (shift + tensor.bits <= kWordBits) {
    for (int64_t i = 0; i < count; ++i) {
      out[i * out_stride] = static_cast<uint8_t>((Word(units + i * stride) >> shift) & mask);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t low = Word(units + i * stride) >> shift;
    const uint32_t high = Word(units + i * stride + next) << (kWordBits - shift);
    out[i * out_stride] = static_cast<uint8_t>((low | high) & mask);
  }
}

/*! \return Whether each output is bytes of two inputs, of which the lower bits are the first. */
bool AreNibbles(const IntegerTensor& tensor) {
  return tensor.unit_bytes == 1 && tensor.bits == 4 && tensor.per_unit == 2 &&
         !tensor.along_outputs && !tensor.is_transposed && !tensor.is_awq_order;
}

void UnpackNibbles(const Strip& strip, int64_t begin, int64_t end, int64_t inputs, uint8_t* out) {
  for (int64_t row = begin; row < end; ++row) {
    const uint8_t* bytes = strip.At(row, 0);
    for (int64_t k = 0; k < inputs; ++k) *out++ = (bytes[k / 2] >> (4 * (k % 2))) & 15;
  }
}

}  // namespace

std::string Strip::Read(const File& file, uint64_t offset, int64_t width, int64_t element_bytes,
                        int64_t first_row, int64_t rows, int64_t begin, int64_t end) {
  first_row_ = first_row;
  begin_ = begin;
  count_ = end - begin;
  element_bytes_ = element_bytes;
  const int64_t bytes = count_ * element_bytes;
  data_.resize(static_cast<size_t>(rows * bytes));
  const auto at = [&](int64_t row) {
    return offset + static_cast<uint64_t>((row * width + begin) * element_bytes);
  };
  if (count_ == width) return file.ReadAt(at(first_row), data_.data(), data_.size());
  for (int64_t row = 0; row < rows; ++row) {
    std::string error =
        file.ReadAt(at(first_row + row), data_.data() + row * bytes, static_cast<uint64_t>(bytes));
    if (!error.empty()) return error;
  }
  return {};
}

void Strip::Transpose() {
  constexpr int64_t kBlock = 64;  // Rows and elements that fit into the cache together.
  const int64_t bytes = element_bytes_;
  const int64_t rows = count_ == 0 ? 0 : static_cast<int64_t>(data_.size()) / row_bytes();
  std::vector<uint8_t> transposed(data_.size());
  for (int64_t top = 0; top < rows; top += kBlock) {
    for (int64_t left = 0; left < count_; left += kBlock) {
      for (int64_t i = left; i < std::min(count_, left + kBlock); ++i) {
        for (int64_t row = top; row < std::min(rows, top + kBlock); ++row) {
          std::memcpy(&transposed[static_cast<size_t>((i * rows + row) * bytes)],
                      &data_[static_cast<size_t>((row * count_ + i) * bytes)],
                      static_cast<size_t>(bytes));
        }
      }
    }
  }
  data_.swap(transposed);
  std::swap(first_row_, begin_);
  count_ = rows;
}

std::string ReadIntegers(const IntegerTensor& tensor, const File& file, int64_t outputs,
                         int64_t inputs, int64_t begin, int64_t end, Strip* strip) {
  const auto [rows, width] = tensor.Shape(outputs, inputs);
  if (tensor.along_outputs) {
    begin = FieldAt(tensor, begin).unit;
    end = tensor.Units(end);
  }
  if (tensor.is_transposed) {
    return strip->Read(file, tensor.tensor.offset, width, tensor.unit_bytes, 0, rows, begin, end);
  }
  return strip->Read(file, tensor.tensor.offset, width, tensor.unit_bytes, begin, end - begin, 0,
                     width);
}

void UnpackIntegers(const IntegerTensor& tensor, const Strip& strip, int64_t begin, int64_t end,
                    int64_t inputs, uint8_t* out) {
  if (AreNibbles(tensor)) return UnpackNibbles(strip, begin, end, inputs, out);
  const int64_t element = strip.element_bytes();
  // The stored rows are the units of the packed axis, or the other axis.
  const bool by_unit = tensor.along_outputs != tensor.is_transposed;
  const int64_t next = by_unit ? strip.row_bytes() : element;
  const int64_t stride = by_unit ? element : strip.row_bytes();
  if (tensor.along_outputs) {
    for (int64_t n = begin; n < end; ++n) {
      const BitField field = FieldAt(tensor, n);
      const uint8_t* units = by_unit ? strip.At(field.unit, 0) : strip.At(0, field.unit);
      CopyPacked(tensor, field.shift, units, stride, next, inputs, out + (n - begin) * inputs, 1);
    }
    return;
  }
  for (int64_t k = 0; k < inputs; ++k) {
    const BitField field = FieldAt(tensor, k);
    const uint8_t* units = by_unit ? strip.At(field.unit, begin) : strip.At(begin, field.unit);
    CopyPacked(tensor, field.shift, units, stride, next, end - begin, out + k, inputs);
  }
}

}  // namespace aiomlc
