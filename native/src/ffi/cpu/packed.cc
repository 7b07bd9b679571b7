/*!
 * \file ffi/cpu/packed.cc
 * \brief The kernels of encoders as FFI globals: functions of packed sequences. Outputs come last.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ffi/tensor_arguments.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/disentangled_biases.h"
#include "kernels/attention/packed_attention.h"
#include "kernels/attention/relative_biases.h"
#include "kernels/elementwise/elementwise.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \brief The rows of each sequence, which must be all rows. */
std::span<const int32_t> LengthsOf(const TensorArguments& args, const TensorView& lengths,
                                   int64_t num_rows) {
  args.RequireShape(lengths, "lengths", {kAny});
  const std::span<const int32_t> sizes(args.Data<int32_t>(lengths, "lengths"), lengths.size(0));
  int64_t rows = 0;
  for (const int32_t size : sizes) {
    args.Require(size > 0, "lengths must be > 0, got ", size);
    rows += size;
  }
  args.Require(rows == num_rows, "lengths must sum to ", num_rows, ", got ", rows);
  return sizes;
}

/*! \brief The settings of attention as a graph passes them. */
PackedAttentionShape ShapeOf(const TensorArguments& args, const TensorView& qkv,
                             const ffi::Shape& heads, double scale, double soft_cap) {
  args.RequireShape(qkv, "qkv", {kAny, kAny});
  args.Require(heads.size() == 5,
               "heads must be query heads, key heads, window, causality and rounding");
  args.Require(heads[0] > 0 && heads[1] > 0 && heads[0] % heads[1] == 0,
               "query heads must be a multiple of key heads, got ", heads[0], " and ", heads[1]);
  args.Require(heads[2] >= 0, "the window must be >= 0, got ", heads[2]);
  const int64_t all = heads[0] + 2 * heads[1];
  args.Require(qkv.size(1) > 0 && qkv.size(1) % all == 0,
               "the last axis of qkv must be a multiple of ", all, ", got ", qkv.size(1));
  PackedAttentionShape shape;
  shape.heads = {heads[0], heads[1], qkv.size(1) / all};
  shape.scale = static_cast<float>(scale);
  shape.window = heads[2];
  shape.is_causal = heads[3] != 0;
  shape.soft_cap = static_cast<float>(soft_cap);
  if (heads[4] != 0) {
    args.Require(shape.heads.head_dim % kPageSize == 0,
                 "attention in bf16 needs heads of a multiple of 16 elements, got ",
                 shape.heads.head_dim);
    shape.products = KvType::kBF16;
  }
  return shape;
}

/*! \brief Queries, keys and values side by side. */
PackedInputs FusedInputs(const TensorArguments& args, const TensorView& qkv,
                         const PackedAttentionShape& shape) {
  const int64_t queries = shape.heads.num_query_heads * shape.heads.head_dim;
  const int64_t keys = shape.heads.num_kv_heads * shape.heads.head_dim;
  const float* data = args.Data<float>(qkv, "qkv");
  return {data, data + queries, data + queries + keys, qkv.size(1), qkv.size(1)};
}

/*! \brief Compute attention of rows with queries, keys and values side by side. */
void AttendFused(const TensorArguments& args, const TensorView& qkv,
                 std::span<const int32_t> lengths, const PackedAttentionShape& shape,
                 const TensorView& out) {
  args.RequireShape(out, "out", {qkv.size(0), shape.heads.num_query_heads * shape.heads.head_dim});
  AttendPacked(ThreadPool::Current(), shape, lengths, FusedInputs(args, qkv, shape),
               args.Data<float>(out, "out"));
}

void CallAttention(TensorView qkv, TensorView lengths, ffi::Shape heads, double scale,
                   double soft_cap, TensorView out) {
  const TensorArguments args("aiomlc.cpu.packed_attention");
  const PackedAttentionShape shape = ShapeOf(args, qkv, heads, scale, soft_cap);
  AttendFused(args, qkv, LengthsOf(args, lengths, qkv.size(0)), shape, out);
}

/*! \brief The settings of attention with biases, which sees whole sequences. */
PackedAttentionShape BiasedShapeOf(const TensorArguments& args, const TensorView& qkv,
                                   const ffi::Shape& heads, double scale, double soft_cap) {
  const PackedAttentionShape shape = ShapeOf(args, qkv, heads, scale, soft_cap);
  args.Require(shape.window == 0 && !shape.is_causal,
               "attention with biases must have no window and not be causal");
  return shape;
}

int64_t LongestOf(std::span<const int32_t> lengths) {
  return lengths.empty() ? 1 : *std::max_element(lengths.begin(), lengths.end());
}

/*!
 * \param biases float32[2 * distances - 1, query heads], by the position of the key less that of
 * the query, from 1 - distances on.
 */
void CallBiasedAttention(TensorView qkv, TensorView lengths, TensorView biases, ffi::Shape heads,
                         double scale, double soft_cap, TensorView out) {
  const TensorArguments args("aiomlc.cpu.packed_biased_attention");
  PackedAttentionShape shape = BiasedShapeOf(args, qkv, heads, scale, soft_cap);
  const std::span<const int32_t> sizes = LengthsOf(args, lengths, qkv.size(0));
  args.RequireShape(biases, "biases", {kAny, heads[0]});
  const int64_t distances = (biases.size(0) + 1) / 2;
  const int64_t longest = LongestOf(sizes);
  args.Require(biases.size(0) % 2 == 1 && longest <= distances, "biases must have at least ",
               2 * longest - 1, " rows, an odd number, got ", biases.size(0));
  const auto relative =
      RelativeBiases::FromTable(args.Data<float>(biases, "biases"), distances, heads[0], longest);
  shape.biases = &relative;
  AttendFused(args, qkv, sizes, shape, out);
}

/*! \param slopes float32[query heads]. */
void CallAlibiAttention(TensorView qkv, TensorView lengths, TensorView slopes, ffi::Shape heads,
                        double scale, double soft_cap, TensorView out) {
  const TensorArguments args("aiomlc.cpu.packed_alibi_attention");
  PackedAttentionShape shape = BiasedShapeOf(args, qkv, heads, scale, soft_cap);
  const std::span<const int32_t> sizes = LengthsOf(args, lengths, qkv.size(0));
  args.RequireShape(slopes, "slopes", {heads[0]});
  const std::span<const float> factors(args.Data<float>(slopes, "slopes"), heads[0]);
  const auto relative = RelativeBiases::Alibi(factors, LongestOf(sizes));
  shape.biases = &relative;
  AttendFused(args, qkv, sizes, shape, out);
}

/*!
 * \param tiles float32[layers, 2, heads, n, head_dim, 16]: the queries of relative positions, and
 * their keys (see `PositionTiles`).
 * \param relative int32[2 * distances - 1] (see `DisentangledBiases`).
 */
void CallDisentangledAttention(TensorView qkv, TensorView lengths, TensorView tiles,
                               TensorView relative, int64_t layer, ffi::Shape heads, double scale,
                               TensorView out) {
  const TensorArguments args("aiomlc.cpu.packed_disentangled_attention");
  PackedAttentionShape shape = BiasedShapeOf(args, qkv, heads, scale, 0.0);
  args.Require(heads[0] == heads[1], "each query head must have a key head");
  const std::span<const int32_t> sizes = LengthsOf(args, lengths, qkv.size(0));
  args.RequireShape(tiles, "tiles", {kAny, 2, heads[0], kAny, shape.heads.head_dim, kPageSize});
  args.Require(layer >= 0 && layer < tiles.size(0), "layer must be in [0, ", tiles.size(0),
               "), got ", layer);
  args.RequireShape(relative, "relative", {kAny});
  const std::span<const int32_t> positions(args.Data<int32_t>(relative, "relative"),
                                           relative.size(0));
  const int64_t longest = LongestOf(sizes);
  args.Require(positions.size() % 2 == 1 && 2 * longest - 1 <= relative.size(0),
               "relative must have at least ", 2 * longest - 1, " numbers, an odd number, got ",
               relative.size(0));
  args.Require(std::is_sorted(positions.begin(), positions.end()) && positions.front() >= 0 &&
                   positions.back() < tiles.size(3) * kPageSize,
               "relative must be ascending positions of the tiles");
  const int64_t plane = tiles.size(2) * tiles.size(3) * tiles.size(4) * tiles.size(5);
  const float* data = args.Data<float>(tiles, "tiles") + 2 * layer * plane;
  const DisentangledBiases biases(shape, FusedInputs(args, qkv, shape),
                                  {data, data + plane, tiles.size(3)}, positions);
  shape.biases = &biases;
  AttendFused(args, qkv, sizes, shape, out);
}

/*!
 * \brief Write the tiles of `packed_disentangled_attention`.
 *
 * The arguments are the queries and keys of relative positions of each layer, side by side in the
 * first columns of float32[positions, columns]; the number of heads; and the tiles.
 */
void CallPositionTiles(ffi::PackedArgs arguments, ffi::Any* /*result*/) {
  const TensorArguments args("aiomlc.cpu.position_tiles");
  const int num_layers = arguments.size() - 2;
  args.Require(num_layers > 0, "there must be a layer");
  const auto heads = arguments[num_layers].cast<int64_t>();
  const auto out = arguments[num_layers + 1].cast<TensorView>();
  args.RequireShape(out, "out", {num_layers, 2, heads, kAny, kAny, kPageSize});
  const int64_t head_dim = out.size(4), size = heads * head_dim;
  const int64_t plane = size * out.size(3) * kPageSize;
  auto* target = args.Data<float>(out, "out");
  for (int layer = 0; layer < num_layers; ++layer) {
    const auto x = arguments[layer].cast<TensorView>();
    args.RequireShape(x, "x", {kAny, kAny});
    args.Require(x.size(1) >= 2 * size && PositionTilesOf(x.size(0)) == out.size(3),
                 "x and out must have the same positions, heads and sizes");
    const float* rows = args.Data<float>(x, "x");
    for (int which = 0; which < 2; ++which, target += plane) {
      WritePositionTiles(ThreadPool::Current(), rows + which * size, x.size(1), x.size(0), heads,
                         head_dim, target);
    }
  }
}

/*! \brief Attention to all rows of a sequence, of separate queries, keys and values. */
void CallSplitAttention(TensorView queries, TensorView keys, TensorView values, TensorView lengths,
                        int64_t num_heads, double scale, TensorView out) {
  const TensorArguments args("aiomlc.cpu.packed_split_attention");
  args.RequireShape(queries, "queries", {kAny, kAny});
  const int64_t rows = queries.size(0), size = queries.size(1);
  args.Require(num_heads > 0 && size > 0 && size % num_heads == 0,
               "the last axis of queries must be a multiple of ", num_heads, ", got ", size);
  args.RequireShape(keys, "keys", {rows, size});
  args.RequireShape(values, "values", {rows, size});
  args.RequireShape(out, "out", {rows, size});
  PackedAttentionShape shape;
  shape.heads = {num_heads, num_heads, size / num_heads};
  shape.scale = static_cast<float>(scale);
  const PackedInputs inputs{args.Data<float>(queries, "queries"), args.Data<float>(keys, "keys"),
                            args.Data<float>(values, "values"), size, size};
  AttendPacked(ThreadPool::Current(), shape, LengthsOf(args, lengths, rows), inputs,
               args.Data<float>(out, "out"));
}

/*! \brief The axis of the position that each frequency multiplies. */
std::vector<uint8_t> AxesOf(const TensorArguments& args, const TensorView& axes, int64_t count) {
  args.RequireShape(axes, "axes", {count});
  const int32_t* data = args.Data<int32_t>(axes, "axes");
  args.Require(std::all_of(data, data + count, [](int32_t axis) { return axis >= 0 && axis < 3; }),
               "axes must be in [0, 3)");
  return {data, data + count};
}

/*!
 * \param positions [rows]; with axes, [3, rows].
 * \param rope Inverse frequencies, already scaled, then the factor on cosines and sines.
 * \param axes Null if a position has one number.
 */
void AttendRotated(const TensorArguments& args, const TensorView& qkv, const TensorView& lengths,
                   const TensorView& positions, const TensorView& rope, const TensorView* axes,
                   const ffi::Shape& heads, double scale, double soft_cap, const TensorView& out) {
  const PackedAttentionShape shape = ShapeOf(args, qkv, heads, scale, soft_cap);
  const int64_t rows = qkv.size(0);
  const int64_t queries = shape.heads.num_query_heads * shape.heads.head_dim;
  const int64_t keys = shape.heads.num_kv_heads * shape.heads.head_dim;
  if (axes == nullptr) {
    args.RequireShape(positions, "positions", {rows});
  } else {
    args.RequireShape(positions, "positions", {3, rows});
  }
  args.RequireShape(rope, "rope", {kAny});
  args.RequireShape(out, "out", {rows, queries});
  RotaryCall call;
  call.num_frequencies = rope.size(0) - 1;
  args.Require(call.num_frequencies > 0 && 2 * call.num_frequencies <= shape.heads.head_dim,
               "rope must have 1 to ", shape.heads.head_dim / 2, " frequencies, got ",
               call.num_frequencies);
  const float* table = args.Data<float>(rope, "rope");
  std::vector<float> split(rows * (queries + 2 * keys));
  float* const key_rows = split.data() + rows * queries;
  call.heads = shape.heads;
  call.type = FloatType::kF32;
  call.rows = rows;
  call.qkv = args.Data<float>(qkv, "qkv");
  call.positions = args.Data<int32_t>(positions, "positions");
  call.inverse_frequencies = table;
  call.amplitude = table[call.num_frequencies];
  call.q = split.data();
  call.k = key_rows;
  call.v = key_rows + rows * keys;
  std::vector<uint8_t> pair_axes;
  if (axes != nullptr) {
    pair_axes = AxesOf(args, *axes, call.num_frequencies);
    call.axes = pair_axes.data();
  }
  SplitRotary(ThreadPool::Current(), call);
  const PackedInputs inputs{split.data(), key_rows, key_rows + rows * keys, queries, keys};
  AttendPacked(ThreadPool::Current(), shape, LengthsOf(args, lengths, rows), inputs,
               args.Data<float>(out, "out"));
}

void CallRotaryAttention(TensorView qkv, TensorView lengths, TensorView positions, TensorView rope,
                         ffi::Shape heads, double scale, double soft_cap, TensorView out) {
  AttendRotated(TensorArguments("aiomlc.cpu.packed_rotary_attention"), qkv, lengths, positions,
                rope, nullptr, heads, scale, soft_cap, out);
}

/*! \param axes int32[frequencies], of positions in time, height and width. */
void CallAxialAttention(TensorView qkv, TensorView lengths, TensorView positions, TensorView rope,
                        TensorView axes, ffi::Shape heads, double scale, double soft_cap,
                        TensorView out) {
  AttendRotated(TensorArguments("aiomlc.cpu.packed_axial_attention"), qkv, lengths, positions, rope,
                &axes, heads, scale, soft_cap, out);
}

/*! \brief Compute out = max(x, 0), of the few rows of a classifier's head. */
void CallRelu(TensorView x, TensorView out) {
  const TensorArguments args("aiomlc.cpu.relu");
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(out, "out", {x.size(0), x.size(1)});
  const float* source = args.Data<float>(x, "x");
  std::transform(source, source + x.size(0) * x.size(1), args.Data<float>(out, "out"),
                 [](float value) { return std::max(value, 0.0f); });
}

/*! \return int32[rows, count], indices of rows of `x`. */
const int32_t* OrderOf(const TensorArguments& args, const TensorView& order, const TensorView& x) {
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(order, "order", {kAny, kAny});
  const int32_t* ids = args.Data<int32_t>(order, "order");
  for (int64_t i = 0; i < order.size(0) * order.size(1); ++i) {
    args.Require(ids[i] >= 0 && ids[i] < x.size(0), "order must be in [0, ", x.size(0), "), got ",
                 ids[i]);
  }
  return ids;
}

/*! \brief Copy out[i] = the rows x[order[i, 0]], x[order[i, 1]], ..., one after the other. */
void CallMergeRows(TensorView x, TensorView order, TensorView out) {
  const TensorArguments args("aiomlc.cpu.merge_rows");
  const int32_t* ids = OrderOf(args, order, x);
  args.RequireShape(out, "out", {order.size(0), order.size(1) * x.size(1)});
  GatherRows(args.Data<float>(x, "x"), ids, order.size(0) * order.size(1), x.size(1),
             args.Data<float>(out, "out"));
}

/*! \brief Compute out[i] = the mean of the rows x[order[i, k]] over all k. */
void CallPoolRows(TensorView x, TensorView order, TensorView out) {
  const TensorArguments args("aiomlc.cpu.pool_rows");
  const int32_t* ids = OrderOf(args, order, x);
  const int64_t size = x.size(1), count = order.size(1);
  args.Require(count > 0, "order must have columns");
  args.RequireShape(out, "out", {order.size(0), size});
  const float* rows = args.Data<float>(x, "x");
  auto* target = args.Data<float>(out, "out");
  for (int64_t i = 0; i < order.size(0); ++i, ids += count, target += size) {
    std::copy_n(rows + ids[0] * size, size, target);
    for (int64_t k = 1; k < count; ++k) {
      const float* row = rows + ids[k] * size;
      for (int64_t c = 0; c < size; ++c) target[c] += row[c];
    }
    for (int64_t c = 0; c < size; ++c) target[c] /= static_cast<float>(count);
  }
}

/*! \brief Compute out[i] = the sum of weights[i, k] * x[i, k] over all k. */
void CallWeighRows(TensorView x, TensorView weights, TensorView out) {
  const TensorArguments args("aiomlc.cpu.weigh_rows");
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(weights, "weights", {kAny, kAny});
  const int64_t size = x.size(1), count = weights.size(1);
  args.RequireShape(x, "x", {weights.size(0) * count, size});
  args.RequireShape(out, "out", {weights.size(0), size});
  const float* row = args.Data<float>(x, "x");
  const float* weight = args.Data<float>(weights, "weights");
  auto* target = args.Data<float>(out, "out");
  for (int64_t i = 0; i < weights.size(0); ++i, target += size) {
    std::fill_n(target, size, 0.0f);
    for (int64_t k = 0; k < count; ++k, ++weight, row += size) {
      for (int64_t c = 0; c < size; ++c) target[c] += *weight * row[c];
    }
  }
}

/*! \brief Compute out = (x - bias) * scale for each row. */
void CallStandardize(TensorView x, TensorView bias, TensorView scale, TensorView out) {
  const TensorArguments args("aiomlc.cpu.standardize");
  args.RequireShape(x, "x", {kAny, kAny});
  const int64_t size = x.size(1);
  args.RequireShape(bias, "bias", {size});
  args.RequireShape(scale, "scale", {size});
  args.RequireShape(out, "out", {x.size(0), size});
  const float* rows = args.Data<float>(x, "x");
  const float* biases = args.Data<float>(bias, "bias");
  const float* scales = args.Data<float>(scale, "scale");
  auto* target = args.Data<float>(out, "out");
  for (int64_t i = 0; i < x.size(0) * size; i += size) {
    for (int64_t c = 0; c < size; ++c) target[i + c] = (rows[i + c] - biases[c]) * scales[c];
  }
}

/*! \brief Copy the first row of each sequence, or the last one. */
void PickRows(const TensorArguments& args, const TensorView& x, const TensorView& lengths,
              bool is_last, const TensorView& out) {
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(out, "out", {lengths.size(0), x.size(1)});
  const int64_t size = x.size(1);
  const float* row = args.Data<float>(x, "x");
  float* target = args.Data<float>(out, "out");
  for (const int32_t length : LengthsOf(args, lengths, x.size(0))) {
    std::copy_n(row + (is_last ? length - 1 : 0) * size, size, target);
    row += length * size;
    target += size;
  }
}

void CallMeanRows(TensorView x, TensorView lengths, TensorView out) {
  const TensorArguments args("aiomlc.cpu.mean_rows");
  args.RequireShape(x, "x", {kAny, kAny});
  args.RequireShape(out, "out", {lengths.size(0), x.size(1)});
  const int64_t size = x.size(1);
  const float* row = args.Data<float>(x, "x");
  float* target = args.Data<float>(out, "out");
  std::vector<double> sums(size);
  for (const int32_t length : LengthsOf(args, lengths, x.size(0))) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int32_t i = 0; i < length; ++i, row += size) {
      for (int64_t c = 0; c < size; ++c) sums[c] += row[c];
    }
    for (int64_t c = 0; c < size; ++c) *target++ = static_cast<float>(sums[c] / length);
  }
}

void DefinePicker(const char* name, bool is_last) {
  refl::GlobalDef().def(name, [=](TensorView x, TensorView lengths, TensorView out) {
    PickRows(TensorArguments(name), x, lengths, is_last, out);
  });
}

TVM_FFI_STATIC_INIT_BLOCK() {
  DefinePicker("aiomlc.cpu.first_rows", false);
  DefinePicker("aiomlc.cpu.last_rows", true);
  refl::GlobalDef()
      .def("aiomlc.cpu.packed_attention", CallAttention)
      .def("aiomlc.cpu.packed_split_attention", CallSplitAttention)
      .def("aiomlc.cpu.packed_rotary_attention", CallRotaryAttention)
      .def("aiomlc.cpu.packed_axial_attention", CallAxialAttention)
      .def("aiomlc.cpu.packed_biased_attention", CallBiasedAttention)
      .def("aiomlc.cpu.packed_alibi_attention", CallAlibiAttention)
      .def("aiomlc.cpu.packed_disentangled_attention", CallDisentangledAttention)
      .def_packed("aiomlc.cpu.position_tiles", CallPositionTiles)
      .def("aiomlc.cpu.relu", CallRelu)
      .def("aiomlc.cpu.merge_rows", CallMergeRows)
      .def("aiomlc.cpu.pool_rows", CallPoolRows)
      .def("aiomlc.cpu.standardize", CallStandardize)
      .def("aiomlc.cpu.weigh_rows", CallWeighRows)
      .def("aiomlc.cpu.mean_rows", CallMeanRows);
}

}  // namespace
}  // namespace aiomlc
