/*!
 * \file ffi/cpu/streams.cc
 * \brief The kernels of residual streams as FFI globals for compiled libraries. Outputs come last.
 */
#include "kernels/elementwise/streams.h"

#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>

#include "ffi/tensor_arguments.h"
#include "kernels/attention/pass_pieces.h"

namespace aiomlc {
namespace {

namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \return The shape of rows of `count` streams. */
StreamShape ShapeOf(const TensorArguments& args, const TensorView& x, int64_t count,
                    const TensorView& out) {
  args.RequireShape(x, "x", {kAny, kAny});
  args.Require(count > 0 && x.size(1) > 0 && x.size(1) % count == 0, "x must have a multiple of ",
               count, " columns, got ", x.size(1));
  args.RequireShape(out, "out", {x.size(0), x.size(1)});
  return {x.size(0), count, x.size(1) / count};
}

void CallPredict(TensorView x, TensorView coefficients, int64_t count, TensorView out) {
  const TensorArguments args("aiomlc.cpu.predict_streams");
  const StreamShape shape = ShapeOf(args, x, count, out);
  args.RequireShape(coefficients, "coefficients", {shape.rows, count * count});
  PredictStreams(ThreadPool::Current(), shape, args.Data<float>(x, "x"),
                 args.Data<float>(coefficients, "coefficients"), args.Data<float>(out, "out"));
}

void CallCorrect(TensorView x, TensorView activated, TensorView coefficients, int64_t active,
                 TensorView out) {
  const TensorArguments args("aiomlc.cpu.correct_streams");
  args.RequireShape(coefficients, "coefficients", {kAny, kAny});
  const StreamShape shape = ShapeOf(args, x, coefficients.size(1), out);
  args.RequireShape(coefficients, "coefficients", {shape.rows, shape.count});
  args.RequireShape(activated, "activated", {shape.rows, shape.size});
  args.Require(active >= 0 && active < shape.count, "active must be in [0, ", shape.count,
               "), got ", active);
  CorrectStreams(ThreadPool::Current(), shape, active, args.Data<float>(x, "x"),
                 args.Data<float>(activated, "activated"),
                 args.Data<float>(coefficients, "coefficients"), args.Data<float>(out, "out"));
}

void CallAdd(TensorView x, TensorView update, TensorView out) {
  const TensorArguments args("aiomlc.cpu.add_to_later_streams");
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(update, "update", {x.size(0), kAny});
  args.Require(update.size(1) > 0, "update must have columns");
  const StreamShape shape = ShapeOf(args, x, x.size(1) / update.size(1), out);
  args.RequireShape(update, "update", {shape.rows, shape.size});
  AddToLaterStreams(ThreadPool::Current(), shape, args.Data<float>(x, "x"),
                    args.Data<float>(update, "update"), args.Data<float>(out, "out"));
}

void CallMatch(TensorView x, TensorView target, TensorView out) {
  const TensorArguments args("aiomlc.cpu.match_magnitude");
  const StreamShape shape = ShapeOf(args, x, 1, out);
  args.RequireShape(target, "target", {shape.rows, shape.size});
  MatchMagnitude(ThreadPool::Current(), args.Data<float>(x, "x"),
                 args.Data<float>(target, "target"), shape.rows, shape.size,
                 args.Data<float>(out, "out"));
}

void CallMultiply(TensorView x, TensorView weight, TensorView out) {
  const TensorArguments args("aiomlc.cpu.multiply_columns");
  const StreamShape shape = ShapeOf(args, x, 1, out);
  args.RequireShape(weight, "weight", {shape.size});
  MultiplyColumns(ThreadPool::Current(), args.Data<float>(x, "x"),
                  args.Data<float>(weight, "weight"), shape.rows, shape.size,
                  args.Data<float>(out, "out"));
}

void CallCutGates(TensorView gate_up, double deviations, TensorView out) {
  const TensorArguments args("aiomlc.cpu.cut_gates");
  const StreamShape shape = ShapeOf(args, gate_up, 2, out);
  CutGates(ThreadPool::Current(), args.Data<float>(gate_up, "gate_up"),
           static_cast<float>(deviations), shape.rows, shape.size, args.Data<float>(out, "out"));
}

/*! \brief Add one part of the pieces of the pass to their rows; copy the other rows. */
void CallAddPieceRows(TensorView x, int64_t part, TensorView out) {
  const TensorArguments args("aiomlc.cpu.add_piece_rows");
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(out, "out", {x.size(0), x.size(1)});
  const int64_t size = x.size(1);
  const float* source = args.Data<float>(x, "x");
  auto* target = args.Data<float>(out, "out");
  std::copy_n(source, x.size(0) * size, target);
  const PassPieces* const pass = PassPieces::Current();
  if (pass == nullptr) return;
  args.Require(pass->num_rows == x.size(0) && part >= 0 && part < pass->num_parts, "the pass has ",
               pass->num_rows, " rows of ", pass->num_parts, " parts, got ", x.size(0),
               " rows and part ", part);
  for (const PieceRows& piece : pass->pieces) {
    for (int64_t i = 0; i < piece.count; ++i) {
      const float* const added = piece.data + (i * pass->num_parts + part) * size;
      float* const row = target + (piece.begin + i) * size;
      for (int64_t k = 0; k < size; ++k) row[k] += added[k];
    }
  }
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef()
      .def("aiomlc.cpu.add_piece_rows", CallAddPieceRows)
      .def("aiomlc.cpu.predict_streams", CallPredict)
      .def("aiomlc.cpu.correct_streams", CallCorrect)
      .def("aiomlc.cpu.add_to_later_streams", CallAdd)
      .def("aiomlc.cpu.match_magnitude", CallMatch)
      .def("aiomlc.cpu.multiply_columns", CallMultiply)
      .def("aiomlc.cpu.cut_gates", CallCutGates);
}

}  // namespace
}  // namespace aiomlc
