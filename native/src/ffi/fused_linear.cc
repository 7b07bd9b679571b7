/*!
 * \file ffi/fused_linear.cc
 * \brief The fused linear kernels as FFI globals for compiled libraries. Outputs come last.
 */
#include "kernels/linear/fused_linear.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "ffi/tensor_arguments.h"
#include "kernels/linear/linear.h"

namespace aiomlc {
namespace {

namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

AddNormCall NormOf(const TensorArguments& args, const TensorView& x, const TensorView& residual,
                   const TensorView& weight, double eps, const TensorView& out_residual) {
  args.RequireShape(x, "x", {kAny, kAny});
  const int64_t size = x.size(1);
  args.Require(size > 0, "the last axis of x must not be empty");
  args.RequireShape(residual, "residual", {x.size(0), size});
  args.RequireShape(weight, "weight", {size});
  args.RequireShape(out_residual, "out_residual", {x.size(0), size});
  AddNormCall call;
  call.x = args.Data<float>(x, "x");
  call.residual = args.Data<float>(residual, "residual");
  call.weight = args.Data<float>(weight, "weight");
  call.eps = static_cast<float>(eps);
  call.rows = x.size(0);
  call.size = size;
  call.out_residual = args.Data<float>(out_residual, "out_residual");
  return call;
}

const void* MatrixOf(const TensorArguments& args, const TensorView& packed, const char* name,
                     int64_t outputs, int64_t inputs) {
  const auto bytes = static_cast<int64_t>(PackedMatrixBytes(WeightFormat::kQ4, outputs, inputs));
  args.RequireShape(packed, name, {bytes});
  return args.Data<uint8_t>(packed, name);
}

void CallLinear(const TensorArguments& args, const AddNormCall& norm, const TensorView& packed,
                const TensorView* bias, const TensorView& out) {
  args.RequireShape(out, "out", {norm.rows, kAny});
  const int64_t outputs = out.size(1);
  if (bias != nullptr) args.RequireShape(*bias, "bias", {outputs});
  const FloatType out_type = args.Type(out, "out");
  AddNormLinear(ThreadPool::Current(), norm, MatrixOf(args, packed, "packed", outputs, norm.size),
                outputs, bias == nullptr ? nullptr : args.Data<float>(*bias, "bias"),
                args.Floats(out, "out", out_type), out_type);
}

void CallAddNormLinear(TensorView x, TensorView residual, TensorView weight, double eps,
                       TensorView packed, TensorView out, TensorView out_residual) {
  const TensorArguments args("aiomlc.cpu.add_norm_linear_q4");
  const AddNormCall norm = NormOf(args, x, residual, weight, eps, out_residual);
  CallLinear(args, norm, packed, nullptr, out);
}

void CallAddNormLinearBias(TensorView x, TensorView residual, TensorView weight, double eps,
                           TensorView packed, TensorView bias, TensorView out,
                           TensorView out_residual) {
  const TensorArguments args("aiomlc.cpu.add_norm_linear_bias_q4");
  const AddNormCall norm = NormOf(args, x, residual, weight, eps, out_residual);
  CallLinear(args, norm, packed, &bias, out);
}

void CallFeedForward(const char* name, Activation activation, TensorView x, TensorView residual,
                     TensorView weight, double eps, TensorView gate_up, int64_t inner,
                     TensorView down, TensorView out, TensorView out_residual) {
  const TensorArguments args(name);
  const AddNormCall norm = NormOf(args, x, residual, weight, eps, out_residual);
  args.Require(inner > 0 && inner % kTileRows == 0, "inner must be a positive multiple of ",
               kTileRows, ", got ", inner);
  args.RequireShape(out, "out", {norm.rows, norm.size});
  AddNormFeedForward(ThreadPool::Current(), norm,
                     MatrixOf(args, gate_up, "gate_up", 2 * inner, norm.size), inner, activation,
                     MatrixOf(args, down, "down", norm.size, inner), args.Data<float>(out, "out"));
}

void DefineFeedForward(const char* name, Activation activation) {
  refl::GlobalDef().def(name, [=](TensorView x, TensorView residual, TensorView weight, double eps,
                                  TensorView gate_up, int64_t inner, TensorView down,
                                  TensorView out, TensorView out_residual) {
    CallFeedForward(name, activation, x, residual, weight, eps, gate_up, inner, down, out,
                    out_residual);
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  DefineFeedForward("aiomlc.cpu.add_norm_feed_forward_silu_q4", Activation::kSilu);
  DefineFeedForward("aiomlc.cpu.add_norm_feed_forward_gelu_tanh_q4", Activation::kGeluTanh);
  refl::GlobalDef()
      .def("aiomlc.cpu.add_norm_linear_q4", CallAddNormLinear)
      .def("aiomlc.cpu.add_norm_linear_bias_q4", CallAddNormLinearBias);
}

}  // namespace
}  // namespace aiomlc
