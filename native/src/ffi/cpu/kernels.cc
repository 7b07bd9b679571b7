/*!
 * \file ffi/cpu/kernels.cc
 * \brief The kernels as FFI globals for compiled libraries. Outputs come last.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ffi/cpu/matrix_arguments.h"
#include "ffi/tensor_arguments.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \brief The shape of a tensor, viewed as rows along its last axis. */
struct RowShape {
  int64_t rows;
  int64_t size;
};

RowShape RowsOf(const TensorArguments& args, const TensorView& tensor, const char* name) {
  args.Require(tensor.ndim() > 0 && tensor.size(-1) > 0, name, " must have a non-empty last axis");
  return {tensor.numel() / tensor.size(-1), tensor.size(-1)};
}

void RequireRows(const TensorArguments& args, const TensorView& tensor, const char* name,
                 RowShape expected) {
  const RowShape actual = RowsOf(args, tensor, name);
  args.Require(actual.rows == expected.rows && actual.size == expected.size, name, " has ",
               actual.rows, " rows of ", actual.size, ", expected ", expected.rows, " of ",
               expected.size);
}

void CallEmbed(TensorView ids, TensorView packed, ffi::Shape layout, TensorView out) {
  const TensorArguments args("aiomlc.cpu.embed");
  const LayoutArgument table(args, "layout", layout);
  args.RequireShape(ids, "ids", {kAny});
  args.RequireShape(out, "out", {ids.size(0), kAny});
  const int64_t hidden = out.size(1);
  args.Require(hidden > 0, "the last axis of out must not be empty");
  try {
    EmbedRows(ThreadPool::Current(), table.layout(), table.Packed(packed, "packed", hidden), hidden,
              args.Data<int32_t>(ids, "ids"), ids.size(0), args.Data<float>(out, "out"));
  } catch (const std::out_of_range& error) {
    TVM_FFI_THROW(ValueError) << "aiomlc.cpu.embed: " << error.what();
  }
}

void CallLinear(const char* name, const TensorView& x, const TensorView& packed,
                const ffi::Shape& layout, const TensorView* bias, const TensorView& out) {
  const TensorArguments args(name);
  const LayoutArgument matrix(args, "layout", layout);
  const RowShape in_shape = RowsOf(args, x, "x");
  RequireRows(args, out, "out", {in_shape.rows, matrix.rows()});
  if (bias != nullptr) args.RequireShape(*bias, "bias", {matrix.rows()});
  const FloatType x_type = args.Type(x, "x");
  const FloatType out_type = args.Type(out, "out");
  Linear(ThreadPool::Current(), matrix.layout(), matrix.Packed(packed, "packed", in_shape.size),
         in_shape.size, args.Floats(x, "x", x_type), x_type, in_shape.rows,
         bias == nullptr ? nullptr : args.Data<float>(*bias, "bias"),
         args.Floats(out, "out", out_type), out_type);
}

GatedColumns ColumnsOf(const TensorArguments& args, const TensorView& projected, int64_t size) {
  args.RequireShape(projected, "projected", {kAny, kAny});
  args.Require(size > 0 && 2 * size <= projected.size(1), "the gate must have at most ",
               projected.size(1) / 2, " columns, got ", size);
  return {args.Data<float>(projected, "projected"), projected.size(0), projected.size(1), size};
}

void CallDropGate(TensorView projected, int64_t size, TensorView out) {
  const TensorArguments args("aiomlc.cpu.drop_gate");
  const GatedColumns columns = ColumnsOf(args, projected, size);
  args.RequireShape(out, "out", {columns.count, columns.width - size});
  DropGate(ThreadPool::Current(), columns, args.Data<float>(out, "out"));
}

void CallSigmoidGate(TensorView x, TensorView projected, TensorView out) {
  const TensorArguments args("aiomlc.cpu.sigmoid_gate");
  args.RequireShape(x, "x", {kAny, kAny});
  const GatedColumns columns = ColumnsOf(args, projected, x.size(1));
  args.RequireShape(x, "x", {columns.count, columns.size});
  args.RequireShape(out, "out", {columns.count, columns.size});
  const FloatType type = args.Type(x, "x");
  SigmoidGate(ThreadPool::Current(), args.Floats(x, "x", type), type, columns,
              args.Data<float>(out, "out"));
}

void CallRmsNorm(TensorView x, TensorView weight, double eps, TensorView out) {
  const TensorArguments args("aiomlc.cpu.rms_norm");
  const RowShape shape = RowsOf(args, x, "x");
  args.RequireShape(weight, "weight", {shape.size});
  RequireRows(args, out, "out", shape);
  RmsNorm(ThreadPool::Current(), args.Data<float>(x, "x"), args.Data<float>(weight, "weight"),
          static_cast<float>(eps), shape.rows, shape.size, args.Data<float>(out, "out"));
}

void CallAddRmsNorm(TensorView x, TensorView residual, TensorView weight, double eps,
                    TensorView out, TensorView out_residual) {
  const TensorArguments args("aiomlc.cpu.add_rms_norm");
  const RowShape shape = RowsOf(args, x, "x");
  RequireRows(args, residual, "residual", shape);
  args.RequireShape(weight, "weight", {shape.size});
  RequireRows(args, out, "out", shape);
  RequireRows(args, out_residual, "out_residual", shape);
  AddRmsNorm(ThreadPool::Current(), args.Data<float>(x, "x"),
             args.Data<float>(residual, "residual"), args.Data<float>(weight, "weight"),
             static_cast<float>(eps), shape.rows, shape.size, args.Data<float>(out, "out"),
             args.Data<float>(out_residual, "out_residual"));
}

void CallLayerNorm(const char* name, const TensorView& x, const TensorView& weight,
                   const TensorView* bias, double eps, const TensorView& out) {
  const TensorArguments args(name);
  const RowShape shape = RowsOf(args, x, "x");
  args.RequireShape(weight, "weight", {shape.size});
  if (bias != nullptr) args.RequireShape(*bias, "bias", {shape.size});
  RequireRows(args, out, "out", shape);
  LayerNorm(ThreadPool::Current(), args.Data<float>(x, "x"), args.Data<float>(weight, "weight"),
            bias == nullptr ? nullptr : args.Data<float>(*bias, "bias"), static_cast<float>(eps),
            shape.rows, shape.size, args.Data<float>(out, "out"));
}

void CallAddLayerNorm(const char* name, const TensorView& x, const TensorView& residual,
                      const TensorView& weight, const TensorView* bias, double eps,
                      const TensorView& out, const TensorView& out_residual) {
  const TensorArguments args(name);
  const RowShape shape = RowsOf(args, x, "x");
  RequireRows(args, residual, "residual", shape);
  args.RequireShape(weight, "weight", {shape.size});
  if (bias != nullptr) args.RequireShape(*bias, "bias", {shape.size});
  RequireRows(args, out, "out", shape);
  RequireRows(args, out_residual, "out_residual", shape);
  AddLayerNorm(ThreadPool::Current(), args.Data<float>(x, "x"),
               args.Data<float>(residual, "residual"), args.Data<float>(weight, "weight"),
               bias == nullptr ? nullptr : args.Data<float>(*bias, "bias"), static_cast<float>(eps),
               shape.rows, shape.size, args.Data<float>(out, "out"),
               args.Data<float>(out_residual, "out_residual"));
}

void DefineLayerNorms() {
  constexpr const char* kPlain = "aiomlc.cpu.layer_norm";
  constexpr const char* kBias = "aiomlc.cpu.layer_norm_bias";
  constexpr const char* kAdd = "aiomlc.cpu.add_layer_norm";
  constexpr const char* kAddBias = "aiomlc.cpu.add_layer_norm_bias";
  refl::GlobalDef()
      .def(kPlain, [](TensorView x, TensorView weight, double eps,
                      TensorView out) { CallLayerNorm(kPlain, x, weight, nullptr, eps, out); })
      .def(kBias, [](TensorView x, TensorView weight, TensorView bias, double eps,
                     TensorView out) { CallLayerNorm(kBias, x, weight, &bias, eps, out); })
      .def(kAdd,
           [](TensorView x, TensorView residual, TensorView weight, double eps, TensorView out,
              TensorView out_residual) {
             CallAddLayerNorm(kAdd, x, residual, weight, nullptr, eps, out, out_residual);
           })
      .def(kAddBias, [](TensorView x, TensorView residual, TensorView weight, TensorView bias,
                        double eps, TensorView out, TensorView out_residual) {
        CallAddLayerNorm(kAddBias, x, residual, weight, &bias, eps, out, out_residual);
      });
}

void DefineActivation(const char* name,
                      void (*function)(ThreadPool&, const float*, int64_t, float*)) {
  refl::GlobalDef().def(name, [=](TensorView x, TensorView out) {
    const TensorArguments args(name);
    RequireRows(args, out, "out", RowsOf(args, x, "x"));
    function(ThreadPool::Current(), args.Data<float>(x, "x"), x.numel(),
             args.Data<float>(out, "out"));
  });
}

void CallAdd(TensorView a, TensorView b, TensorView out) {
  const TensorArguments args("aiomlc.cpu.add");
  const RowShape shape = RowsOf(args, a, "a");
  RequireRows(args, b, "b", shape);
  RequireRows(args, out, "out", shape);
  Add(ThreadPool::Current(), args.Data<float>(a, "a"), args.Data<float>(b, "b"), a.numel(),
      args.Data<float>(out, "out"));
}

void CallScale(TensorView x, double factor, TensorView out) {
  const TensorArguments args("aiomlc.cpu.scale");
  RequireRows(args, out, "out", RowsOf(args, x, "x"));
  Scale(ThreadPool::Current(), args.Data<float>(x, "x"), static_cast<float>(factor), x.numel(),
        args.Data<float>(out, "out"));
}

void CallScaleBy(TensorView x, TensorView factor, TensorView out) {
  const TensorArguments args("aiomlc.cpu.scale_by");
  RequireRows(args, out, "out", RowsOf(args, x, "x"));
  args.RequireShape(factor, "factor", {1});
  Scale(ThreadPool::Current(), args.Data<float>(x, "x"), *args.Data<float>(factor, "factor"),
        x.numel(), args.Data<float>(out, "out"));
}

void CallScaleColumns(TensorView x, TensorView factors, TensorView out) {
  const TensorArguments args("aiomlc.cpu.scale_columns");
  const RowShape shape = RowsOf(args, x, "x");
  RequireRows(args, out, "out", shape);
  args.RequireShape(factors, "factors", {shape.size});
  ScaleColumns(ThreadPool::Current(), args.Data<float>(x, "x"),
               args.Data<float>(factors, "factors"), shape.rows, shape.size,
               args.Data<float>(out, "out"));
}

void CallSoftCap(TensorView x, double cap, TensorView out) {
  const TensorArguments args("aiomlc.cpu.soft_cap");
  RequireRows(args, out, "out", RowsOf(args, x, "x"));
  args.Require(cap > 0, "cap must be > 0, got ", cap);
  SoftCap(ThreadPool::Current(), args.Data<float>(x, "x"), static_cast<float>(cap), x.numel(),
          args.Data<float>(out, "out"));
}

void CallGatedMul(const char* name, Activation activation, const TensorView& gate_up,
                  const TensorView& out) {
  const TensorArguments args(name);
  const RowShape shape = RowsOf(args, out, "out");
  RequireRows(args, gate_up, "gate_up", {shape.rows, 2 * shape.size});
  GatedMul(ThreadPool::Current(), activation, args.Data<float>(gate_up, "gate_up"), shape.rows,
           shape.size, args.Data<float>(out, "out"));
}

void DefineGatedMul(const char* name, Activation activation) {
  refl::GlobalDef().def(name, [=](TensorView gate_up, TensorView out) {
    CallGatedMul(name, activation, gate_up, out);
  });
}

void CallQkNorm(TensorView qkv, TensorView q_weight, TensorView k_weight, double eps,
                int64_t num_q_heads, int64_t num_kv_heads, TensorView out) {
  const TensorArguments args("aiomlc.cpu.qk_norm");
  args.Require(qkv.ndim() >= 2 && qkv.ndim() == out.ndim(),
               "qkv and out must have the shape [..., heads, head_dim]");
  const RowShape shape = RowsOf(args, qkv, "qkv");
  const HeadLayout heads{num_q_heads, num_kv_heads, shape.size};
  args.Require(num_q_heads >= 0 && num_kv_heads >= 0 && qkv.size(-2) == heads.num_heads() &&
                   out.size(-2) == heads.num_heads(),
               "qkv and out must have ", heads.num_heads(), " heads");
  RequireRows(args, out, "out", shape);
  args.RequireShape(q_weight, "q_weight", {kAny});
  const QkSpan span = q_weight.size(0) == shape.size ? QkSpan::kHead : QkSpan::kAllHeads;
  const auto spanned = [&](int64_t all) {
    return span == QkSpan::kHead ? shape.size : all * shape.size;
  };
  args.RequireShape(q_weight, "q_weight", {spanned(num_q_heads)});
  args.RequireShape(k_weight, "k_weight", {spanned(num_kv_heads)});
  const FloatType out_type = args.Type(out, "out");
  const int64_t rows = heads.num_heads() == 0 ? 0 : shape.rows / heads.num_heads();
  QkNorm(ThreadPool::Current(), heads, span, args.Data<float>(qkv, "qkv"),
         args.Data<float>(q_weight, "q_weight"), args.Data<float>(k_weight, "k_weight"),
         static_cast<float>(eps), rows, args.Floats(out, "out", out_type), out_type);
}

void CallQkvNorm(TensorView qkv, TensorView q_weight, TensorView k_weight, double eps,
                 int64_t num_q_heads, int64_t num_kv_heads, TensorView out) {
  const TensorArguments args("aiomlc.cpu.qkv_norm");
  args.Require(num_q_heads >= 0 && num_kv_heads > 0, "there must be heads of keys");
  args.RequireShape(qkv, "qkv", {kAny, kAny, kAny});
  const HeadLayout heads{num_q_heads, num_kv_heads, qkv.size(2)};
  const int64_t keys = num_q_heads + num_kv_heads;
  args.Require(qkv.size(1) == heads.num_heads() || qkv.size(1) == keys, "qkv must have ",
               heads.num_heads(), " or ", keys, " heads, got ", qkv.size(1));
  args.RequireShape(q_weight, "q_weight", {heads.head_dim});
  args.RequireShape(k_weight, "k_weight", {heads.head_dim});
  args.RequireShape(out, "out", {qkv.size(0), heads.num_heads(), heads.head_dim});
  const FloatType out_type = args.Type(out, "out");
  QkvNorm(ThreadPool::Current(), heads,
          qkv.size(1) == keys ? ValueSource::kKeys : ValueSource::kValues,
          args.Data<float>(qkv, "qkv"), args.Data<float>(q_weight, "q_weight"),
          args.Data<float>(k_weight, "k_weight"), static_cast<float>(eps), qkv.size(0),
          args.Floats(out, "out", out_type), out_type);
}

/*! \return Columns of `x`, whose elements are those of `type`. */
ColumnRange RangeOf(const TensorArguments& args, const TensorView& x, const char* name,
                    FloatType type, int64_t begin, int64_t size) {
  args.RequireShape(x, name, {kAny, kAny});
  args.Require(begin >= 0 && size >= 0 && begin + size <= x.size(1), name, " must have ",
               begin + size, " columns, got ", x.size(1));
  return {args.Floats(x, name, type), x.size(1), begin, size};
}

void CallConcatColumns(TensorView a, TensorView b, int64_t begin, TensorView out) {
  const TensorArguments args("aiomlc.cpu.concat_columns");
  args.RequireShape(a, "a", {kAny, kAny});
  args.RequireShape(b, "b", {a.size(0), kAny});
  args.RequireShape(out, "out", {a.size(0), kAny});
  const FloatType type = args.Type(out, "out");
  ConcatColumns(ThreadPool::Current(), RangeOf(args, a, "a", type, 0, a.size(1)),
                RangeOf(args, b, "b", type, begin, out.size(1) - a.size(1)), out.size(0), type,
                args.Floats(out, "out", type));
}

void CallKnownIds(TensorView ids, int64_t limit, TensorView out) {
  const TensorArguments args("aiomlc.cpu.known_ids");
  args.RequireShape(ids, "ids", {kAny});
  args.RequireShape(out, "out", {ids.size(0)});
  args.Require(limit > 0 && limit <= INT32_MAX, "limit must be > 0, got ", limit);
  ReplaceUnknownIds(args.Data<int32_t>(ids, "ids"), static_cast<int32_t>(limit), ids.size(0),
                    args.Data<int32_t>(out, "out"));
}

void CallSliceColumns(TensorView x, int64_t begin, TensorView out) {
  const TensorArguments args("aiomlc.cpu.slice_columns");
  args.RequireShape(out, "out", {kAny, kAny});
  args.RequireShape(x, "x", {out.size(0), kAny});
  const FloatType type = args.Type(out, "out");
  const ColumnRange range = RangeOf(args, x, "x", type, begin, out.size(1));
  ConcatColumns(ThreadPool::Current(), {.rows = range.rows}, range, out.size(0), type,
                args.Floats(out, "out", type));
}

void CallGatherRows(TensorView x, TensorView rows, TensorView out) {
  const TensorArguments args("aiomlc.cpu.gather_rows");
  args.RequireShape(x, "x", {1, kAny, kAny});
  args.RequireShape(rows, "rows", {kAny});
  args.RequireShape(out, "out", {1, rows.size(0), x.size(2)});
  const int32_t* ids = args.Data<int32_t>(rows, "rows");
  for (int64_t i = 0; i < rows.size(0); ++i) {
    args.Require(ids[i] >= 0 && ids[i] < x.size(1), "rows must be in [0, ", x.size(1), "), got ",
                 ids[i]);
  }
  GatherRows(args.Data<float>(x, "x"), ids, rows.size(0), x.size(2), args.Data<float>(out, "out"));
}

void CallGatherColumns(TensorView x, TensorView order, TensorView out) {
  const TensorArguments args("aiomlc.cpu.gather_columns");
  const RowShape shape = RowsOf(args, x, "x");
  args.RequireShape(order, "order", {shape.size});
  RequireRows(args, out, "out", shape);
  const int32_t* inputs = args.Data<int32_t>(order, "order");
  for (int64_t k = 0; k < shape.size; ++k) {
    args.Require(inputs[k] >= 0 && inputs[k] < shape.size, "order must be in [0, ", shape.size,
                 "), got ", inputs[k]);
  }
  const FloatType type = args.Type(x, "x");
  GatherColumns(ThreadPool::Current(), args.Floats(x, "x", type), type, inputs, shape.rows,
                shape.size, args.Floats(out, "out", type));
}

void DefineLinear() {
  constexpr const char* kPlain = "aiomlc.cpu.linear";
  constexpr const char* kBias = "aiomlc.cpu.linear_bias";
  refl::GlobalDef()
      .def(kPlain, [](TensorView x, TensorView packed, ffi::Shape layout,
                      TensorView out) { CallLinear(kPlain, x, packed, layout, nullptr, out); })
      .def(kBias, [](TensorView x, TensorView packed, ffi::Shape layout, TensorView bias,
                     TensorView out) { CallLinear(kBias, x, packed, layout, &bias, out); });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  DefineLinear();
  DefineLayerNorms();
  DefineActivation("aiomlc.cpu.gelu", Gelu);
  DefineActivation("aiomlc.cpu.gelu_tanh", GeluTanh);
  DefineActivation("aiomlc.cpu.quick_gelu", QuickGelu);
  DefineActivation("aiomlc.cpu.relu_square", SquaredRelu);
  DefineGatedMul("aiomlc.cpu.silu_mul", Activation::kSilu);
  DefineGatedMul("aiomlc.cpu.gelu_mul", Activation::kGelu);
  DefineGatedMul("aiomlc.cpu.gelu_tanh_mul", Activation::kGeluTanh);
  refl::GlobalDef()
      .def("aiomlc.matrix_format_code",
           [](const ffi::String& name) { return MatrixFormatOf(name).Packed(); })
      .def("aiomlc.cpu.embed", CallEmbed)
      .def("aiomlc.cpu.drop_gate", CallDropGate)
      .def("aiomlc.cpu.sigmoid_gate", CallSigmoidGate)
      .def("aiomlc.cpu.rms_norm", CallRmsNorm)
      .def("aiomlc.cpu.add_rms_norm", CallAddRmsNorm)
      .def("aiomlc.cpu.add", CallAdd)
      .def("aiomlc.cpu.scale", CallScale)
      .def("aiomlc.cpu.scale_by", CallScaleBy)
      .def("aiomlc.cpu.scale_columns", CallScaleColumns)
      .def("aiomlc.cpu.soft_cap", CallSoftCap)
      .def("aiomlc.cpu.qk_norm", CallQkNorm)
      .def("aiomlc.cpu.qkv_norm", CallQkvNorm)
      .def("aiomlc.cpu.concat_columns", CallConcatColumns)
      .def("aiomlc.cpu.slice_columns", CallSliceColumns)
      .def("aiomlc.cpu.known_ids", CallKnownIds)
      .def("aiomlc.cpu.gather_rows", CallGatherRows)
      .def("aiomlc.cpu.gather_columns", CallGatherColumns);
}

}  // namespace
}  // namespace aiomlc
