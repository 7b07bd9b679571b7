/*!
 * \file src/ffi/experts.cc
 * \brief The mixture of experts that a compiled library calls, as FFI globals. Outputs come last.
 */
#include "aiomlc/experts.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "tensor_arguments.h"

namespace aiomlc {
namespace {

namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

const void* MatricesOf(const TensorArguments& args, const ExpertsCall& call,
                       const TensorView& packed, const char* name, int64_t outputs,
                       int64_t inputs) {
  const auto bytes = static_cast<int64_t>(PackedMatrixBytes(call.format, outputs, inputs));
  args.RequireShape(packed, name, {call.choice.num_experts * bytes});
  return args.Data<uint8_t>(packed, name);
}

/*! \brief Make a function of one format of the matrices. */
auto MixExpertsOf(const char* name, WeightFormat format) {
  return [name, format](TensorView x, TensorView logits, TensorView gate_up, int64_t inner,
                        TensorView down, int64_t per_row, int64_t normalize, TensorView out) {
    const TensorArguments args(name);
    args.RequireShape(x, "x", {kAny, kAny});
    args.RequireShape(logits, "logits", {x.size(0), kAny});
    args.RequireShape(out, "out", {x.size(0), x.size(1)});
    ExpertsCall call;
    call.format = format;
    call.choice = {logits.size(1), per_row, normalize != 0};
    call.rows = x.size(0);
    call.size = x.size(1);
    call.inner = inner;
    args.Require(call.size > 0 && call.size % kTileRows == 0, "x has rows of ", call.size,
                 ", not a multiple of ", kTileRows);
    args.Require(inner > 0 && inner % kTileRows == 0, "inner is ", inner, ", not a multiple of ",
                 kTileRows);
    args.Require(per_row > 0 && per_row <= logits.size(1), "per_row is ", per_row, " of ",
                 logits.size(1), " experts");
    call.logits = args.Data<float>(logits, "logits");
    call.x = args.Data<float>(x, "x");
    call.gate_up = MatricesOf(args, call, gate_up, "gate_up", 2 * inner, call.size);
    call.down = MatricesOf(args, call, down, "down", call.size, inner);
    call.out = args.Data<float>(out, "out");
    MixExperts(ThreadPool::Current(), call);
  };
}

TVM_FFI_STATIC_INIT_BLOCK() {
  constexpr const char* kQ4 = "aiomlc.cpu.mix_experts_q4";
  constexpr const char* kBF16 = "aiomlc.cpu.mix_experts_bf16";
  constexpr const char* kF32 = "aiomlc.cpu.mix_experts_f32";
  refl::GlobalDef()
      .def(kQ4, MixExpertsOf(kQ4, WeightFormat::kQ4))
      .def(kBF16, MixExpertsOf(kBF16, WeightFormat::kBF16))
      .def(kF32, MixExpertsOf(kF32, WeightFormat::kF32));
}

}  // namespace
}  // namespace aiomlc
