/*!
 * \file ffi/experts.cc
 * \brief The mixture-of-experts kernel as FFI globals for compiled libraries. Outputs come last.
 */
#include "kernels/moe/experts.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <string>

#include "ffi/tensor_arguments.h"

namespace aiomlc {
namespace {

namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

const void* MatricesOf(const TensorArguments& args, const ExpertsCall& call,
                       const TensorView& packed, const char* name, int64_t outputs,
                       int64_t inputs) {
  const auto bytes = static_cast<int64_t>(PackedMatrixBytes(call.format, outputs, inputs));
  args.RequireShape(packed, name, {call.routing.num_experts * bytes});
  return args.Data<uint8_t>(packed, name);
}

/*! \brief The tensor arguments of all functions. */
struct Tensors {
  TensorView x, logits, gate_up, down, out;
};

ExpertsCall CallOf(const TensorArguments& args, WeightFormat format, const Tensors& tensors,
                   int64_t inner, const ExpertRouting& routing) {
  const TensorView &x = tensors.x, &logits = tensors.logits;
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(logits, "logits", {x.size(0), kAny});
  args.RequireShape(tensors.out, "out", {x.size(0), x.size(1)});
  ExpertsCall call;
  call.format = format;
  call.routing = routing;
  call.routing.num_experts = logits.size(1);
  call.rows = x.size(0);
  call.size = x.size(1);
  call.inner = inner;
  args.Require(call.size > 0 && call.size % kTileRows == 0,
               "the last axis of x must be a positive multiple of ", kTileRows, ", got ",
               call.size);
  args.Require(inner > 0 && inner % kTileRows == 0, "inner must be a positive multiple of ",
               kTileRows, ", got ", inner);
  args.Require(routing.experts_per_row > 0 && routing.experts_per_row <= logits.size(1),
               "per_row must be between 1 and ", logits.size(1), ", got ", routing.experts_per_row);
  call.logits = args.Data<float>(logits, "logits");
  call.x = args.Data<float>(x, "x");
  call.gate_up = MatricesOf(args, call, tensors.gate_up, "gate_up", 2 * inner, call.size);
  call.down = MatricesOf(args, call, tensors.down, "down", call.size, inner);
  call.out = args.Data<float>(tensors.out, "out");
  return call;
}

void Define(const std::string& suffix, WeightFormat format) {
  const std::string plain = "aiomlc.cpu.mix_experts_" + suffix;
  const std::string with_shared = "aiomlc.cpu.mix_experts_shared_" + suffix;
  refl::GlobalDef()
      .def(plain.c_str(),
           [=](TensorView x, TensorView logits, TensorView gate_up, int64_t inner, TensorView down,
               int64_t per_row, int64_t normalize, TensorView out) {
             const TensorArguments args(plain.c_str());
             MixtureOfExperts(ThreadPool::Current(),
                              CallOf(args, format, {x, logits, gate_up, down, out}, inner,
                                     {0, per_row, normalize != 0}));
           })
      .def(with_shared.c_str(),
           [=](TensorView x, TensorView logits, TensorView gate_up, int64_t inner, TensorView down,
               int64_t per_row, int64_t normalize, TensorView shared, TensorView shared_gate,
               TensorView out) {
             const TensorArguments args(with_shared.c_str());
             ExpertsCall call = CallOf(args, format, {x, logits, gate_up, down, out}, inner,
                                       {0, per_row, normalize != 0});
             args.RequireShape(shared, "shared", {call.rows, call.size});
             args.RequireShape(shared_gate, "shared_gate", {call.rows, 1});
             call.shared = args.Data<float>(shared, "shared");
             call.shared_gate = args.Data<float>(shared_gate, "shared_gate");
             MixtureOfExperts(ThreadPool::Current(), call);
           });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  Define("q4", WeightFormat::kQ4);
  Define("bf16", WeightFormat::kBF16);
  Define("f32", WeightFormat::kF32);
}

}  // namespace
}  // namespace aiomlc
