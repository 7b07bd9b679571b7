/*!
 * \file ffi/cpu/kv_layer.cc
 * \brief Attention layers with settings that TVM's paged KV cache does not support: functions
 * around the cache's own, which calls back those of ffi/cpu/kv_cache.cc.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <iterator>

#include "ffi/tensor_arguments.h"
#include "kernels/attention/layer_attention.h"
#include "kernels/attention/quantized_layer.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \brief The arguments of an attention layer with settings that the KV cache does not support. */
class LayerArguments {
 public:
  LayerArguments(const char* name, const ffi::PackedArgs& args) : checked_(name), args_(args) {
    const bool has_cache_heads = args.size() >= kCacheHeads + 11;
    checked_.Require(args.size() == 11 || args.size() == 12 || args.size() == kCacheHeads + 11 ||
                         args.size() == kCacheHeads + 12,
                     "expected 11, 12, 14 or 15 arguments, got ", args.size());
    if (has_cache_heads) {
      qkv_ = 9 + kCacheHeads;
      cache_ = {args[9].cast<int64_t>(), args[10].cast<int64_t>(), args[11].cast<int64_t>()};
      SetHeads();
    }
    settings_.window = {args[3].cast<int64_t>(), args[4].cast<int64_t>()};
    settings_.soft_cap = static_cast<float>(args[5].cast<double>());
    settings_.rotation_begin = args[6].cast<int64_t>();
    settings_.rotation_size = args[7].cast<int64_t>();
    settings_.sees_whole_pieces = args[8].cast<int64_t>() != 0;
    const AttentionWindow& window = settings_.window;
    checked_.Require(window.size >= 0 && window.sinks >= 0,
                     "window size and sinks must be >= 0, got ", window.size, " and ",
                     window.sinks);
    checked_.Require(settings_.soft_cap >= 0, "soft_cap must be >= 0, got ", settings_.soft_cap);
    checked_.Require(settings_.rotation_begin >= 0 && settings_.rotation_size >= 0,
                     "rotation begin and size must be >= 0, got ", settings_.rotation_begin,
                     " and ", settings_.rotation_size);
    if (args.size() == qkv_ + 3) {
      const auto sinks = args[qkv_ + 1].cast<TensorView>();
      checked_.RequireShape(sinks, "sink_scores", {kAny});
      settings_.sink_scores = checked_.Data<float>(sinks, "sink_scores");
      settings_.num_sink_scores = sinks.size(0);
    }
  }

  const TensorArguments& checked() const { return checked_; }
  ffi::AnyView qkv() const { return args_[qkv_]; }
  ffi::AnyView output() const { return args_[args_.size() - 1]; }
  /*! \return The heads of the cache's tensors, if the layer has others; else none. */
  const HeadLayout& cache() const { return cache_; }

  /*! \brief Run the attention of the KV cache with these settings. */
  void Attend(const ffi::AnyView& qkv, const ffi::AnyView& output, ffi::Any* result) const {
    static const auto& attend = *new ffi::Function(
        ffi::Function::GetGlobalRequired("vm.builtin.attention_kv_cache_attention_with_fused_qkv"));
    const ffi::AnyView forwarded[] = {args_[0], args_[1], args_[2], qkv, output};
    const LayerAttention::SettingsScope scope(LayerAttention::Current(), settings_);
    attend.CallPacked(forwarded, std::size(forwarded), result);
  }

 private:
  /*! \brief The number of arguments that describe the heads of the cache. */
  static constexpr int kCacheHeads = 3;

  /*! \brief Take the layer's heads from the shapes of qkv and output. */
  void SetHeads() {
    const auto qkv = args_[qkv_].cast<TensorView>();
    const auto output = args_[args_.size() - 1].cast<TensorView>();
    checked_.RequireShape(output, "output", {kAny, kAny, kAny});
    checked_.RequireShape(qkv, "qkv", {output.size(0), kAny, output.size(2)});
    const int64_t others = qkv.size(1) - output.size(1);
    checked_.Require(others > 0 && others % 2 == 0 && output.size(2) > 0,
                     "qkv must have as many key as value heads after its ", output.size(1),
                     " query heads, got ", qkv.size(1), " heads");
    checked_.Require(cache_.num_query_heads > 0 && cache_.num_kv_heads > 0 && cache_.head_dim > 0,
                     "the cache must have heads");
    settings_.heads = {output.size(1), others / 2, output.size(2)};
  }

  TensorArguments checked_;
  const ffi::PackedArgs& args_;
  int qkv_ = 9;
  HeadLayout cache_;
  LayerSettings settings_;
};

/*!
 * \brief View a tensor [rows, ...] with the shape [rows, heads, row] that the cache checks.
 *
 * The cache itself reads no elements, so the view may be larger than the tensor's memory.
 */
ffi::Tensor View(const ffi::Tensor& tensor, int64_t heads, int64_t row, DLDataType dtype) {
  int64_t shape[] = {tensor.size(0), heads, row};
  int64_t strides[] = {heads * row, row, 1};
  DLTensor view_tensor = *tensor.GetDLTensorPtr();
  view_tensor.dtype = dtype;
  view_tensor.shape = shape;
  view_tensor.strides = strides;
  using ffi::detail::ObjectUnsafe;
  TVMFFIObjectHandle view;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFITensorCreateUnsafeView(
      ObjectUnsafe::TVMFFIObjectPtrFromObjectRef(tensor), &view_tensor, &view));
  return ffi::Tensor(
      ObjectUnsafe::ObjectPtrFromOwned<ffi::TensorObj>(static_cast<TVMFFIObject*>(view)));
}

/*!
 * \brief Run attention with per-layer settings. The arguments are: cache, layer, scale, window
 * size, sinks, soft cap, rotation begin, rotation size, whether the rows of a piece see each other,
 * the cache's query heads, key-value heads and head_dim (optional), qkv, sink scores (optional),
 * output. A window size, soft cap or rotation size of 0 disables the setting.
 *
 * If the layer has other heads than the cache, its keys and values take a part of the memory of the
 * cache's, and the cache gets its tensors with the shapes that it expects.
 *
 * The cache keeps all tokens, also for layers with a sliding window. In the cache's own sliding
 * window mode, all tokens of a chunk would see the window of its first token, and sequences could
 * not be forked.
 */
void CallLayer(ffi::PackedArgs args, ffi::Any* result) {
  const LayerArguments layer("aiomlc.cpu.kv_layer_attention", args);
  const HeadLayout& cache = layer.cache();
  if (cache.head_dim == 0) return layer.Attend(layer.qkv(), layer.output(), result);
  const auto qkv = layer.qkv().cast<ffi::Tensor>();
  const auto output = layer.output().cast<ffi::Tensor>();
  layer.Attend(View(qkv, cache.num_heads(), cache.head_dim, qkv.dtype()),
               View(output, cache.num_query_heads, cache.head_dim, output.dtype()), result);
}

/*! \brief A type of stored keys and values, and the tensors by which TVM's cache knows it. */
struct StoredType {
  KvType type;
  DLDataType dtype;
  const char* name;

  int64_t RowSize(int64_t head_dim) const {
    return static_cast<int64_t>(KvRowBytes(type, head_dim) / FormatOf(type).unit_bytes);
  }
};

/*!
 * \brief View [rows, heads, head_dim] floats as [rows, heads, row] of stored elements.
 *
 * The cache checks only shapes, and this is the shape that it expects.
 */
ffi::Tensor ViewAs(const TensorArguments& args, StoredType stored, const ffi::Tensor& tensor,
                   const char* name, FloatType type, const HeadLayout& cache, int64_t cache_heads) {
  args.RequireShape(tensor, name, {kAny, kAny, kAny});
  args.Floats(tensor, name, type);
  const int64_t head_dim = tensor.size(2);
  const int multiple = FormatOf(stored.type).head_multiple;
  args.Require(head_dim % multiple == 0, "head_dim of ", name, " must be a multiple of ", multiple,
               " for a KV cache of ", stored.name, ", got ", head_dim);
  args.Require(KvRowBytes(stored.type, head_dim) <= head_dim * FloatBytes(type), "head_dim of ",
               name, " is too small for a KV cache of ", stored.name, ", got ", head_dim);
  if (cache.head_dim == 0) {
    return View(tensor, tensor.size(1), stored.RowSize(head_dim), stored.dtype);
  }
  return View(tensor, cache_heads, stored.RowSize(cache.head_dim), stored.dtype);
}

/*!
 * \brief Run attention over a cache that stores another type than that of the queries. The
 * arguments are those of `CallLayer`.
 */
void CallStored(const char* name, StoredType stored, ffi::PackedArgs args, ffi::Any* result) {
  const LayerArguments layer(name, args);
  const auto qkv = layer.qkv().cast<ffi::Tensor>();
  const auto output = layer.output().cast<ffi::Tensor>();
  const FloatType type = layer.checked().Type(qkv, "qkv");
  QuantizedLayer& quantized = QuantizedLayer::Current();
  const QuantizedLayer::Scope scope(quantized, type, stored.type);
  const HeadLayout& cache = layer.cache();
  const auto view = [&](const ffi::Tensor& tensor, const char* of, int64_t heads) {
    return ViewAs(layer.checked(), stored, tensor, of, type, cache, heads);
  };
  layer.Attend(view(qkv, "qkv", cache.num_heads()), view(output, "output", cache.num_query_heads),
               result);
  quantized.Finish(ThreadPool::Current(), layer.checked().Floats(output, "output", type));
}

void CallBFloat16(ffi::PackedArgs args, ffi::Any* result) {
  CallStored("aiomlc.cpu.kv_bfloat16_attention", {KvType::kBF16, {kDLUInt, 16, 1}, "bfloat16"},
             args, result);
}

void CallInt8(ffi::PackedArgs args, ffi::Any* result) {
  CallStored("aiomlc.cpu.kv_int8_attention", {KvType::kI8, {kDLInt, 8, 1}, "int8"}, args, result);
}

void CallInt4(ffi::PackedArgs args, ffi::Any* result) {
  CallStored("aiomlc.cpu.kv_int4_attention", {KvType::kI4, {kDLUInt, 8, 1}, "int4"}, args, result);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef()
      .def_packed("aiomlc.cpu.kv_layer_attention", CallLayer)
      .def_packed("aiomlc.cpu.kv_bfloat16_attention", CallBFloat16)
      .def_packed("aiomlc.cpu.kv_int8_attention", CallInt8)
      .def_packed("aiomlc.cpu.kv_int4_attention", CallInt4);
}

}  // namespace
}  // namespace aiomlc
