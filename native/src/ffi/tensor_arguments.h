/*!
 * \file ffi/tensor_arguments.h
 * \brief Validation of the tensor arguments of a kernel.
 */
#ifndef AIOMLC_FFI_TENSOR_ARGUMENTS_H_
#define AIOMLC_FFI_TENSOR_ARGUMENTS_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "platform/float_types.h"
#include "platform/kv_type.h"

namespace aiomlc {

/*! \brief Validates the arguments of a call. Errors are ValueErrors with the function's name. */
class TensorArguments {
 public:
  using TensorView = tvm::ffi::TensorView;
  /*! \brief Matches a dimension of any size. */
  static constexpr int64_t kAny = -1;

  /*! \param function The name of the function; must outlive this object. */
  explicit TensorArguments(const char* function) : function_(function) {}

  /*! \brief Require a condition. The message is formatted only if it does not hold. */
  template <typename... Parts>
  void Require(bool holds, const Parts&... message) const {
    if (!holds) (TVM_FFI_THROW(ValueError) << function_ << ": " << ... << message);
  }

  void RequireShape(const TensorView& tensor, const char* name,
                    std::initializer_list<int64_t> shape) const {
    bool fits = tensor.ndim() == static_cast<int64_t>(shape.size());
    int64_t axis = 0;
    for (const int64_t size : shape) {
      fits = fits && (size == kAny || tensor.size(axis) == size);
      ++axis;
    }
    if (!fits) ThrowShape(tensor, name, shape);
  }

  /*! \return The elements of a float, int32_t or uint8_t tensor. */
  template <typename Element>
  Element* Data(const TensorView& tensor, const char* name) const {
    static_assert(std::is_same_v<Element, float> || std::is_same_v<Element, int32_t> ||
                  std::is_same_v<Element, uint8_t>);
    constexpr uint8_t kCode = std::is_same_v<Element, float>     ? kDLFloat
                              : std::is_same_v<Element, int32_t> ? kDLInt
                                                                 : kDLUInt;
    constexpr const char* kDtype = std::is_same_v<Element, float>     ? "float32"
                                   : std::is_same_v<Element, int32_t> ? "int32"
                                                                      : "uint8";
    Require(HasType(tensor, kCode, 8 * sizeof(Element)), name, " must be ", kDtype);
    return static_cast<Element*>(Bytes(tensor, name));
  }

  /*! \return The element type of a float32 or float16 tensor. */
  FloatType Type(const TensorView& tensor, const char* name) const {
    if (HasType(tensor, kDLFloat, 16)) return FloatType::kF16;
    Require(HasType(tensor, kDLFloat, 32), name, " must be float32 or float16");
    return FloatType::kF32;
  }

  /*! \return The elements of a tensor of this float type. */
  void* Floats(const TensorView& tensor, const char* name, FloatType type) const {
    Require(Type(tensor, name) == type, name, " must be ",
            type == FloatType::kF16 ? "float16" : "float32");
    return Bytes(tensor, name);
  }

  /*! \return The type of a key or value tensor, by the dtype as which TVM's cache knows it. */
  KvType TypeOfKv(const TensorView& tensor, const char* name) const {
    if (HasType(tensor, kDLInt, 8)) return KvType::kI8;
    if (HasType(tensor, kDLUInt, 8)) return KvType::kI4;
    if (HasType(tensor, kDLUInt, 16)) return KvType::kBF16;
    return KvTypeOf(Type(tensor, name));
  }

  /*! \return The elements of a key or value tensor of this type. */
  void* Kv(const TensorView& tensor, const char* name, KvType type) const {
    Require(TypeOfKv(tensor, name) == type, name,
            " must have the same dtype as the other keys and values");
    return Bytes(tensor, name);
  }

 private:
  [[noreturn]] void ThrowShape(const TensorView& tensor, const char* name,
                               std::initializer_list<int64_t> shape) const {
    std::string expected;
    for (const int64_t size : shape) {
      expected += (expected.empty() ? "" : ", ") + (size == kAny ? "*" : std::to_string(size));
    }
    std::string actual;
    for (int64_t i = 0; i < tensor.ndim(); ++i) {
      actual += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
    }
    TVM_FFI_THROW(ValueError) << function_ << ": " << name << " has shape [" << actual
                              << "], expected [" << expected << "]";
  }

  static bool HasType(const TensorView& tensor, uint8_t code, size_t bits) {
    const DLDataType type = tensor.dtype();
    return type.code == code && type.bits == bits && type.lanes == 1;
  }

  void* Bytes(const TensorView& tensor, const char* name) const {
    Require(tensor.device().device_type == kDLCPU, name, " must be on the CPU");
    Require(tensor.IsContiguous(), name, " must be contiguous");
    return static_cast<std::byte*>(tensor.data_ptr()) + tensor.byte_offset();
  }

  const char* function_;
};

}  // namespace aiomlc

#endif  // AIOMLC_FFI_TENSOR_ARGUMENTS_H_
