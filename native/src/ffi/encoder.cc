/*!
 * \file ffi/encoder.cc
 * \brief The encoder as FFI globals.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>
#include <tvm/ffi/tvm_ffi.h>

#include <memory>
#include <utility>

#include "model/tvm_encoder.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

class EncoderObj : public ffi::Object {
 public:
  explicit EncoderObj(std::unique_ptr<TvmEncoder> encoder) : encoder(std::move(encoder)) {}
  std::unique_ptr<TvmEncoder> encoder;
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.Encoder", EncoderObj, ffi::Object);
};

class EncoderRef : public ffi::ObjectRef {
 public:
  explicit EncoderRef(std::unique_ptr<TvmEncoder> encoder)
      : ObjectRef(ffi::make_object<EncoderObj>(std::move(encoder))) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(EncoderRef, ffi::ObjectRef, EncoderObj);
};

EncoderRef OpenEncoder(const ffi::Module& library, const ffi::Array<ffi::Tensor>& params,
                       int num_threads) {
  return EncoderRef(std::make_unique<TvmEncoder>(library, params, num_threads));
}

ffi::Tensor Forward(const EncoderRef& encoder, const ffi::String& function,
                    const ffi::Array<ffi::Tensor>& inputs) {
  return encoder->encoder->Forward(function, inputs);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<EncoderObj>();
  refl::GlobalDef().def("aiomlc.encoder_open", OpenEncoder).def("aiomlc.encoder_forward", Forward);
}

}  // namespace
}  // namespace aiomlc
