/*!
 * \file ffi/cpu/experts.cc
 * \brief The mixture-of-experts kernel as FFI globals for compiled libraries. Outputs come last.
 */
#include "kernels/moe/experts.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "ffi/cpu/matrix_arguments.h"
#include "ffi/tensor_arguments.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \brief The matrices of all experts; `layout` is that of one expert. */
struct Matrices {
  TensorView packed;
  ffi::Shape layout;
};

/*! \brief The tensor arguments of all functions. */
struct Tensors {
  TensorView x, logits;
  Matrices gate_up, down;
  TensorView out;
};

/*! \brief Validates the arguments of all functions, and calls the kernel. */
class Call {
 public:
  Call(const char* name, const Tensors& tensors, int64_t per_row, bool normalize)
      : args_(name),
        gate_up_(args_, "gate_up_layout", tensors.gate_up.layout),
        down_(args_, "down_layout", tensors.down.layout) {
    const TensorView &x = tensors.x, &logits = tensors.logits;
    args_.RequireShape(x, "x", {kAny, kAny});
    args_.RequireShape(logits, "logits", {x.size(0), kAny});
    args_.RequireShape(tensors.out, "out", {x.size(0), x.size(1)});
    args_.Require(per_row > 0 && per_row <= logits.size(1), "per_row must be between 1 and ",
                  logits.size(1), ", got ", per_row);
    call_.routing.num_experts = logits.size(1);
    call_.routing.experts_per_row = per_row;
    call_.routing.normalize = normalize;
    call_.rows = x.size(0);
    call_.size = x.size(1);
    call_.inner = gate_up_.rows() / 2;
    RequireMatrices();
    call_.logits = args_.Data<float>(logits, "logits");
    call_.x = args_.Data<float>(x, "x");
    call_.gate_up_layout = gate_up_.layout();
    call_.gate_up = gate_up_.Packed(tensors.gate_up.packed, "gate_up", call_.size, logits.size(1));
    call_.down_layout = down_.layout();
    call_.down = down_.Packed(tensors.down.packed, "down", call_.inner, logits.size(1));
    call_.out = args_.Data<float>(tensors.out, "out");
  }

  void SetShared(const TensorView& shared, const TensorView& gate) {
    args_.RequireShape(shared, "shared", {call_.rows, call_.size});
    args_.RequireShape(gate, "shared_gate", {call_.rows, 1});
    call_.shared = args_.Data<float>(shared, "shared");
    call_.shared_gate = args_.Data<float>(gate, "shared_gate");
  }

  /*! \param gate_up [experts, 2 * inner]. \param down [experts, size]. */
  void SetBiases(const TensorView& gate_up, const TensorView& down) {
    const int64_t experts = call_.routing.num_experts;
    args_.RequireShape(gate_up, "gate_up_bias", {experts, 2 * call_.inner});
    args_.RequireShape(down, "down_bias", {experts, call_.size});
    call_.gate_up_bias = args_.Data<float>(gate_up, "gate_up_bias");
    call_.down_bias = args_.Data<float>(down, "down_bias");
  }

  /*! \param bias [experts], which are added for the selection; may be null. */
  void UseSigmoid(const TensorView* bias, double epsilon, double scale) {
    ExpertRouting& routing = call_.routing;
    routing.scores = ExpertRouting::Scores::kSigmoid;
    routing.epsilon = static_cast<float>(epsilon);
    routing.scale = static_cast<float>(scale);
    if (bias == nullptr) return;
    args_.RequireShape(*bias, "selection_bias", {routing.num_experts});
    routing.selection_bias = args_.Data<float>(*bias, "selection_bias");
  }

  /*! \param scales [experts]. */
  void SetScales(const TensorView& scales) {
    args_.RequireShape(scales, "expert_scales", {call_.routing.num_experts});
    call_.routing.expert_scales = args_.Data<float>(scales, "expert_scales");
  }

  void SetActivation(Activation activation) { call_.activation = activation; }

  void Run() const { MixtureOfExperts(ThreadPool::Current(), call_); }

 private:
  void RequireMatrices() const {
    args_.Require(call_.size > 0 && call_.size % kTileRows == 0,
                  "the last axis of x must be a positive multiple of ", kTileRows, ", got ",
                  call_.size);
    args_.Require(gate_up_.rows() % (2 * kTileRows) == 0, "gate_up must have a multiple of ",
                  2 * kTileRows, " rows, got ", gate_up_.rows());
    args_.Require(down_.rows() == call_.size, "down must have ", call_.size, " rows, got ",
                  down_.rows());
    for (const LayoutArgument* matrix : {&gate_up_, &down_}) {
      matrix->RequireWholeTiles();
      args_.Require(HasOneRowForm(matrix->layout()),
                    "the segments of a matrix must have the same kind of activations");
    }
  }

  TensorArguments args_;
  LayoutArgument gate_up_, down_;
  ExpertsCall call_;
};

TVM_FFI_STATIC_INIT_BLOCK() {
  constexpr const char* kPlain = "aiomlc.cpu.mix_experts";
  constexpr const char* kShared = "aiomlc.cpu.mix_experts_shared";
  constexpr const char* kSigmoid = "aiomlc.cpu.mix_experts_sigmoid";
  constexpr const char* kBiasedSigmoid = "aiomlc.cpu.mix_experts_biased_sigmoid";
  constexpr const char* kScaledGeluTanh = "aiomlc.cpu.mix_experts_scaled_gelu_tanh";
  constexpr const char* kClampedSwiGlu = "aiomlc.cpu.mix_experts_clamped_swiglu";
  refl::GlobalDef()
      .def(kPlain,
           [](TensorView x, TensorView logits, TensorView gate_up, ffi::Shape gate_up_layout,
              TensorView down, ffi::Shape down_layout, int64_t per_row, int64_t normalize,
              TensorView out) {
             Call(kPlain, {x, logits, {gate_up, gate_up_layout}, {down, down_layout}, out}, per_row,
                  normalize != 0)
                 .Run();
           })
      .def(kShared,
           [](TensorView x, TensorView logits, TensorView gate_up, ffi::Shape gate_up_layout,
              TensorView down, ffi::Shape down_layout, int64_t per_row, int64_t normalize,
              TensorView shared, TensorView shared_gate, TensorView out) {
             Call call(kShared, {x, logits, {gate_up, gate_up_layout}, {down, down_layout}, out},
                       per_row, normalize != 0);
             call.SetShared(shared, shared_gate);
             call.Run();
           })
      .def(kSigmoid,
           [](TensorView x, TensorView logits, TensorView gate_up, ffi::Shape gate_up_layout,
              TensorView down, ffi::Shape down_layout, int64_t per_row, int64_t normalize,
              double epsilon, double scale, TensorView out) {
             Call call(kSigmoid, {x, logits, {gate_up, gate_up_layout}, {down, down_layout}, out},
                       per_row, normalize != 0);
             call.UseSigmoid(nullptr, epsilon, scale);
             call.Run();
           })
      .def(kBiasedSigmoid,
           [](TensorView x, TensorView logits, TensorView gate_up, ffi::Shape gate_up_layout,
              TensorView down, ffi::Shape down_layout, int64_t per_row, int64_t normalize,
              double epsilon, double scale, TensorView bias, TensorView out) {
             Call call(kBiasedSigmoid,
                       {x, logits, {gate_up, gate_up_layout}, {down, down_layout}, out}, per_row,
                       normalize != 0);
             call.UseSigmoid(&bias, epsilon, scale);
             call.Run();
           })
      .def(kScaledGeluTanh,
           [](TensorView x, TensorView logits, TensorView gate_up, ffi::Shape gate_up_layout,
              TensorView down, ffi::Shape down_layout, int64_t per_row, int64_t normalize,
              TensorView expert_scales, TensorView out) {
             Call call(kScaledGeluTanh,
                       {x, logits, {gate_up, gate_up_layout}, {down, down_layout}, out}, per_row,
                       normalize != 0);
             call.SetScales(expert_scales);
             call.SetActivation(Activation::kGeluTanh);
             call.Run();
           })
      .def(kClampedSwiGlu, [](TensorView x, TensorView logits, TensorView gate_up,
                              ffi::Shape gate_up_layout, TensorView gate_up_bias, TensorView down,
                              ffi::Shape down_layout, TensorView down_bias, int64_t per_row,
                              int64_t normalize, TensorView out) {
        Call call(kClampedSwiGlu, {x, logits, {gate_up, gate_up_layout}, {down, down_layout}, out},
                  per_row, normalize != 0);
        call.SetBiases(gate_up_bias, down_bias);
        call.SetActivation(Activation::kClampedSwiGlu);
        call.Run();
      });
}

}  // namespace
}  // namespace aiomlc
