/*!
 * \file ffi/cpu/recurrent.cc
 * \brief The recurrent layers as FFI globals for compiled libraries. Outputs come last.
 */
#include "kernels/recurrent/recurrent.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "ffi/tensor_arguments.h"
#include "kernels/recurrent/state_memory.h"

namespace aiomlc {
namespace {

namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

void CallShortConv(const char* name, int64_t layer, const TensorView& inputs,
                   const TensorView& weight, const TensorView* bias, const TensorView& out) {
  const TensorArguments args(name);
  args.RequireShape(out, "out", {kAny, kAny});
  ShortConvCall call;
  call.channels = out.size(1);
  args.RequireShape(inputs, "inputs", {out.size(0), 3 * call.channels});
  args.RequireShape(weight, "weight", {kAny});
  args.Require(call.channels > 0 && weight.size(0) % call.channels == 0 && weight.size(0) > 0,
               "weight must have a multiple of ", call.channels, " elements, got ", weight.size(0));
  call.width = weight.size(0) / call.channels;
  if (bias != nullptr) args.RequireShape(*bias, "bias", {call.channels});
  call.inputs = args.Data<float>(inputs, "inputs");
  call.weight = args.Data<float>(weight, "weight");
  call.bias = bias == nullptr ? nullptr : args.Data<float>(*bias, "bias");
  call.out = args.Data<float>(out, "out");
  StateMemory::Current().Run(layer, call);
}

/*! \param inputs Queries, keys, values and the output gate of each row; `gates` b and a. */
void CallGatedDelta(int64_t layer, TensorView inputs, TensorView gates, TensorView conv_weight,
                    TensorView rates, TensorView dt_bias, TensorView norm_weight,
                    int64_t num_key_heads, int64_t key_dim, double eps, int64_t has_log_rates,
                    int64_t is_tiled, TensorView out) {
  const TensorArguments args("aiomlc.cpu.gated_delta");
  GatedDeltaCall call;
  args.RequireShape(rates, "rates", {kAny});
  args.RequireShape(norm_weight, "norm_weight", {kAny});
  call.num_key_heads = num_key_heads;
  call.num_value_heads = rates.size(0);
  call.key_dim = key_dim;
  call.value_dim = norm_weight.size(0);
  args.Require(
      num_key_heads > 0 && call.num_value_heads > 0 && call.num_value_heads % num_key_heads == 0,
      "the value heads must be a multiple of the ", num_key_heads, " key heads, got ",
      call.num_value_heads);
  args.Require(key_dim > 0 && call.value_dim > 0, "heads must not be empty");
  args.RequireShape(inputs, "inputs", {kAny, call.row_size()});
  args.RequireShape(out, "out", {inputs.size(0), call.num_values()});
  args.RequireShape(gates, "gates", {inputs.size(0), 2 * call.num_value_heads});
  args.RequireShape(dt_bias, "dt_bias", {call.num_value_heads});
  args.RequireShape(conv_weight, "conv_weight", {kAny});
  call.width = conv_weight.size(0) / call.channels();
  args.RequireShape(conv_weight, "conv_weight", {call.width * call.channels()});
  args.Require(call.width > 0, "conv_weight must not be empty");
  call.eps = static_cast<float>(eps);
  call.has_log_rates = has_log_rates != 0;
  call.is_tiled = is_tiled != 0;
  call.inputs = args.Data<float>(inputs, "inputs");
  call.gates = args.Data<float>(gates, "gates");
  call.conv_weight = args.Data<float>(conv_weight, "conv_weight");
  call.rates = args.Data<float>(rates, "rates");
  call.dt_bias = args.Data<float>(dt_bias, "dt_bias");
  call.norm_weight = args.Data<float>(norm_weight, "norm_weight");
  call.out = args.Data<float>(out, "out");
  StateMemory::Current().Run(layer, call);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  constexpr const char* kPlain = "aiomlc.cpu.short_conv";
  constexpr const char* kBias = "aiomlc.cpu.short_conv_bias";
  refl::GlobalDef()
      .def(kPlain,
           [](int64_t layer, TensorView inputs, TensorView weight, TensorView out) {
             CallShortConv(kPlain, layer, inputs, weight, nullptr, out);
           })
      .def(kBias, [](int64_t layer, TensorView inputs, TensorView weight, TensorView bias,
                     TensorView out) { CallShortConv(kBias, layer, inputs, weight, &bias, out); })
      .def("aiomlc.cpu.gated_delta", CallGatedDelta);
}

}  // namespace
}  // namespace aiomlc
