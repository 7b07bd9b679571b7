/*!
 * \file ffi/group_quantizer.cc
 * \brief The quantizer of the converter to MLC directories as FFI globals.
 */
#include "weights/group_quantizer.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <string>

#include "ffi/tensor_arguments.h"
#include "kernels/linear/format/pack.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
using ffi::TensorView;

ModelDtype ParseDtype(const TensorArguments& args, const ffi::String& name) {
  if (name == "float16") return ModelDtype::kF16;
  if (name == "bfloat16") return ModelDtype::kBF16;
  args.Require(name == "float32", "dtype must be float16, bfloat16 or float32, got ", name);
  return ModelDtype::kF32;
}

/*!
 * \brief Quantize float32[rows, cols]; words and scales are their bytes, uint8[rows, *].
 *
 * Importances, float32[cols], make it search for the scales of least error.
 */
bool Quantize(TensorView weights, int bits, const ffi::String& dtype,
              const ffi::Optional<TensorView>& importance, TensorView words, TensorView scales) {
  const TensorArguments args("quantize_groups");
  args.Require(bits == 3 || bits == 4, "bits must be 3 or 4, got ", bits);
  const GroupFormat format{bits, bits == 4 ? 32 : 40, ParseDtype(args, dtype)};
  args.RequireShape(weights, "weights", {TensorArguments::kAny, TensorArguments::kAny});
  const int64_t rows = weights.size(0);
  const int64_t cols = weights.size(1);
  const int64_t scale_bytes = format.dtype == ModelDtype::kF32 ? 4 : 2;
  args.RequireShape(words, "words", {rows, 4 * format.words(cols)});
  args.RequireShape(scales, "scales", {rows, scale_bytes * format.groups(cols)});
  const float* values = args.Data<float>(weights, "weights");
  if (!FitsDtype(format.dtype, values, rows * cols)) return false;
  auto* packed = reinterpret_cast<uint32_t*>(args.Data<uint8_t>(words, "words"));
  auto* stored = args.Data<uint8_t>(scales, "scales");
  if (!importance) {
    QuantizeGroups(format, values, rows, cols, packed, stored);
    return true;
  }
  args.RequireShape(*importance, "importance", {cols});
  SearchGroups(format, values, rows, cols, args.Data<float>(*importance, "importance"), packed,
               stored);
  return true;
}

/*! \brief Round float32[count] to the bytes of a 16-bit dtype, uint8[2 * count]. */
bool Round(TensorView values, const ffi::String& dtype, TensorView out) {
  const TensorArguments args("round_floats");
  const ModelDtype type = ParseDtype(args, dtype);
  args.Require(type != ModelDtype::kF32, "dtype must have 16 bits, got ", dtype);
  args.RequireShape(values, "values", {TensorArguments::kAny});
  args.RequireShape(out, "out", {2 * values.size(0)});
  const float* floats = args.Data<float>(values, "values");
  if (!FitsDtype(type, floats, values.size(0))) return false;
  RoundFloats(type, floats, values.size(0),
              reinterpret_cast<uint16_t*>(args.Data<uint8_t>(out, "out")));
  return true;
}

/*! \brief Quantize float32[rows, cols] to the stored rows of pack.h, uint8[rows, bytes]. */
bool QuantizeProgressive(TensorView weights, TensorView stored) {
  const TensorArguments args("quantize_progressive");
  args.RequireShape(weights, "weights", {TensorArguments::kAny, TensorArguments::kAny});
  const int64_t rows = weights.size(0);
  const int64_t cols = weights.size(1);
  const int64_t bytes = ProgressiveRowBytes(cols);
  args.RequireShape(stored, "stored", {rows, bytes});
  const float* values = args.Data<float>(weights, "weights");
  if (!FitsDtype(ModelDtype::kF32, values, rows * cols)) return false;
  auto* out = args.Data<uint8_t>(stored, "stored");
  for (int64_t row = 0; row < rows; ++row) {
    QuantizeProgressiveRow(values + row * cols, cols, out + row * bytes);
  }
  return true;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("aiomlc.weights.quantize_groups", Quantize,
           "Quantize rows; return whether all weights are in the range of the dtype.")
      .def("aiomlc.weights.quantize_progressive", QuantizeProgressive,
           "Quantize rows with progressive scales; return whether all weights are finite.")
      .def("aiomlc.weights.round_floats", Round,
           "Round to a 16-bit dtype; return whether all values are in its range.");
}

}  // namespace
}  // namespace aiomlc
