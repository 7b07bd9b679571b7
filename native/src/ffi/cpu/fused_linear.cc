/*!
 * \file ffi/cpu/fused_linear.cc
 * \brief The fused linear kernels as FFI globals for compiled libraries. Outputs come last.
 */
#include "kernels/linear/fused_linear.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "ffi/cpu/matrix_arguments.h"
#include "ffi/tensor_arguments.h"
#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/linear/linear.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
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

/*! \brief The tensor arguments of the fused norms. */
struct NormTensors {
  TensorView x, residual, weight;
  double eps;
  TensorView out_residual;
};

void CallLinear(const char* name, const NormTensors& norm_tensors, const TensorView& packed,
                const ffi::Shape& layout, const TensorView* bias, const TensorView& out) {
  const TensorArguments args(name);
  const AddNormCall norm = NormOf(args, norm_tensors.x, norm_tensors.residual, norm_tensors.weight,
                                  norm_tensors.eps, norm_tensors.out_residual);
  const LayoutArgument matrix(args, "layout", layout);
  matrix.RequireQuantized();
  args.RequireShape(out, "out", {norm.rows, matrix.rows()});
  if (bias != nullptr) args.RequireShape(*bias, "bias", {matrix.rows()});
  const FloatType out_type = args.Type(out, "out");
  AddNormLinear(ThreadPool::Current(), norm,
                {matrix.layout(), matrix.Packed(packed, "packed", norm.size)},
                bias == nullptr ? nullptr : args.Data<float>(*bias, "bias"),
                args.Floats(out, "out", out_type), out_type);
}

void DefineLinear() {
  constexpr const char* kPlain = "aiomlc.cpu.add_norm_linear";
  constexpr const char* kBias = "aiomlc.cpu.add_norm_linear_bias";
  refl::GlobalDef()
      .def(kPlain,
           [](TensorView x, TensorView residual, TensorView weight, double eps, TensorView packed,
              ffi::Shape layout, TensorView out, TensorView out_residual) {
             CallLinear(kPlain, {x, residual, weight, eps, out_residual}, packed, layout, nullptr,
                        out);
           })
      .def(kBias, [](TensorView x, TensorView residual, TensorView weight, double eps,
                     TensorView packed, ffi::Shape layout, TensorView bias, TensorView out,
                     TensorView out_residual) {
        CallLinear(kBias, {x, residual, weight, eps, out_residual}, packed, layout, &bias, out);
      });
}

void DefineFeedForward(const char* name, Activation activation) {
  refl::GlobalDef().def(name, [=](TensorView x, TensorView residual, TensorView weight, double eps,
                                  TensorView gate_up, ffi::Shape gate_up_layout, TensorView down,
                                  ffi::Shape down_layout, TensorView out, TensorView out_residual) {
    const TensorArguments args(name);
    const AddNormCall norm = NormOf(args, x, residual, weight, eps, out_residual);
    const LayoutArgument first(args, "gate_up_layout", gate_up_layout);
    const LayoutArgument second(args, "down_layout", down_layout);
    first.RequireQuantized();
    second.RequireQuantized();
    args.Require(first.rows() % (2 * kTileRows) == 0, "gate_up must have a multiple of ",
                 2 * kTileRows, " rows, got ", first.rows());
    args.Require(second.rows() == norm.size, "down must have ", norm.size, " rows, got ",
                 second.rows());
    args.RequireShape(out, "out", {norm.rows, norm.size});
    AddNormFeedForward(ThreadPool::Current(), norm,
                       {first.layout(), first.Packed(gate_up, "gate_up", norm.size)}, activation,
                       {second.layout(), second.Packed(down, "down", first.rows() / 2)},
                       args.Data<float>(out, "out"));
  });
}

void DefinePlainFeedForward(const char* name, ActivationKernel RowKernels::* activation) {
  refl::GlobalDef().def(
      name, [=](TensorView x, TensorView up, ffi::Shape up_layout, TensorView up_bias,
                TensorView down, ffi::Shape down_layout, TensorView down_bias, TensorView out) {
        const TensorArguments args(name);
        args.RequireShape(x, "x", {kAny, kAny});
        const int64_t rows = x.size(0), size = x.size(1);
        args.Require(size > 0, "the last axis of x must not be empty");
        const LayoutArgument first(args, "up_layout", up_layout);
        const LayoutArgument second(args, "down_layout", down_layout);
        first.RequireOneForm();
        first.RequireWholeTiles();
        second.RequireOneForm();
        args.RequireShape(up_bias, "up_bias", {first.rows()});
        args.RequireShape(down_bias, "down_bias", {second.rows()});
        args.Require(second.rows() == size, "down must have ", size, " rows, got ", second.rows());
        args.RequireShape(out, "out", {rows, size});
        FeedForward(
            ThreadPool::Current(), args.Data<float>(x, "x"), rows, size,
            {{first.layout(), first.Packed(up, "up", size)}, args.Data<float>(up_bias, "up_bias")},
            ActiveRowKernels().*activation,
            {{second.layout(), second.Packed(down, "down", first.rows())},
             args.Data<float>(down_bias, "down_bias")},
            args.Data<float>(out, "out"));
      });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  DefinePlainFeedForward("aiomlc.cpu.feed_forward_gelu", &RowKernels::gelu);
  DefinePlainFeedForward("aiomlc.cpu.feed_forward_gelu_tanh", &RowKernels::gelu_tanh);
  DefinePlainFeedForward("aiomlc.cpu.feed_forward_quick_gelu", &RowKernels::quick_gelu);
  DefineLinear();
  DefineFeedForward("aiomlc.cpu.add_norm_feed_forward_silu", Activation::kSilu);
  DefineFeedForward("aiomlc.cpu.add_norm_feed_forward_gelu", Activation::kGelu);
  DefineFeedForward("aiomlc.cpu.add_norm_feed_forward_gelu_tanh", Activation::kGeluTanh);
}

}  // namespace
}  // namespace aiomlc
