/*!
 * \file ffi/cpu/kv_cache.cc
 * \brief The kernels that TVM's paged KV cache calls, with the signatures that TVM expects.
 *
 * Except for the copies of pages and slots, TVM calls them in this order, once per layer and step.
 * A depth is a level of the page tables: TVM puts pages that forks share into lower depths.
 *
 *   called by TVM                           LayerAttention      LayerAttention::State afterwards
 *
 *   kv_split_rotary                         Begin               kStarted
 *     |
 *     +-- a sequence appends several tokens:
 *     |     attention_ragged                AddNewTokens        kGathering   (*)
 *     |     for each depth with pages:
 *     |       attention_prefill or _decode  AddPages            kGathering   (*)
 *     |       attention_merge               CheckMerge          unchanged
 *     |     kv_append                       CheckAppend         kComplete
 *     |
 *     +-- every sequence appends one token:
 *           kv_append                       CheckAppend         kStarted
 *           for each depth with pages:
 *             attention_prefill or _decode  AddPages            kGathering   (*)
 *             attention_merge (if d > 0)    CheckMerge          unchanged
 *
 *   (*) The call that completes the history of every row computes the layer; the state is then
 *       kComplete. In the first case this may be attention_ragged, if no sequence has a history.
 *
 * While rows are imported, kv_split_rotary and kv_append store them, and the other calls return at
 * once. A call in another order throws and resets the state to kIdle. The log-sum-exp tensors are
 * neither written nor read, because there are no partial results to merge.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include "ffi/tensor_arguments.h"
#include "kernels/attention/imported_rows.h"
#include "kernels/attention/kv_pages.h"
#include "kernels/attention/layer_attention.h"
#include "kernels/attention/pass_pieces.h"
#include "kernels/attention/quantized_layer.h"
#include "kernels/elementwise/elementwise.h"
#include "platform/huge_pages.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \return The elements of a head, whose row has `size` elements of TVM's tensors. */
int64_t HeadDim(KvType type, int64_t size) {
  const KvFormat format = FormatOf(type);
  const int64_t bytes = size * static_cast<int64_t>(format.unit_bytes);
  return (bytes - static_cast<int64_t>(format.scale_bytes)) * 8 / format.bits;
}

/*!
 * \brief The heads of the layer that is computed: those of its settings, or the cache's.
 * \param cache The heads of the cache's tensors, whose memory must suffice; without query heads for
 *     a tensor that has none.
 */
HeadLayout LayerHeads(const TensorArguments& args, KvType type, const HeadLayout& cache) {
  const HeadLayout& own = LayerAttention::Current().settings().heads;
  if (own.head_dim == 0) return cache;
  const auto fits = [&](int64_t heads, int64_t cache_heads) {
    return static_cast<size_t>(heads) * KvRowBytes(type, own.head_dim) <=
           static_cast<size_t>(cache_heads) * KvRowBytes(type, cache.head_dim);
  };
  const bool has_queries = cache.num_query_heads > 0;
  args.Require(fits(own.num_kv_heads, cache.num_kv_heads) &&
                   (!has_queries || fits(own.num_query_heads, cache.num_query_heads)),
               "the heads of the layer do not fit into those of the KV cache");
  return own;
}

KvPages PagesOf(const TensorArguments& args, const TensorView& pages) {
  args.RequireShape(pages, "pages", {kAny, 2, kAny, kPageSize, kAny});
  const KvType type = args.TypeOfKv(pages, "pages");
  const int64_t head_dim = HeadDim(type, pages.size(4));
  args.Require(head_dim > 0, "pages must have a positive head_dim, got ", head_dim);
  const HeadLayout heads = LayerHeads(args, type, {0, pages.size(2), head_dim});
  const size_t page_stride =
      2 * static_cast<size_t>(pages.size(2) * kPageSize) * KvRowBytes(type, head_dim);
  return {static_cast<std::byte*>(args.Kv(pages, "pages", type)),
          pages.size(0),
          heads.num_kv_heads,
          heads.head_dim,
          type,
          page_stride};
}

/*! \return The type of queries and output for keys and values of `type`. */
FloatType QueryType(const TensorArguments& args, KvType type) {
  if (type == KvType::kF32) return FloatType::kF32;
  if (type == KvType::kF16) return FloatType::kF16;
  const std::optional<FloatType> outer = QuantizedLayer::Current().type();
  args.Require(outer.has_value(), "a KV cache of ", FormatOf(type).bits,
               " bits must be called through the attention of its type");
  return *outer;
}

void RequireSlots(const TensorArguments& args, const int32_t* slot_ids, int64_t count,
                  int64_t lowest, const KvPages& pages) {
  for (int64_t i = 0; i < count; ++i) {
    args.Require(slot_ids[i] >= lowest && slot_ids[i] < pages.num_pages * kPageSize,
                 "slot ids must be in [", lowest, ", ", pages.num_pages * kPageSize, "), got ",
                 slot_ids[i]);
  }
}

/*! \brief Copy imported keys and values to the tensors that the cache will append to its pages. */
void TakeImportedRows(const TensorArguments& args, const ImportedRows& rows, const TensorView& k,
                      const TensorView& v) {
  const KvType type = args.TypeOfKv(k, "k");
  args.RequireShape(k, "k", {rows.num_tokens, kAny, kAny});
  args.RequireShape(v, "v", {rows.num_tokens, k.size(1), k.size(2)});
  args.Require(
      static_cast<size_t>(k.size(1) * k.size(2)) * FormatOf(type).unit_bytes == rows.token_bytes,
      "an imported token must have ", rows.token_bytes, " bytes per layer");
  const size_t size = static_cast<size_t>(rows.num_tokens) * rows.token_bytes;
  std::copy_n(rows.keys, size, static_cast<std::byte*>(args.Kv(k, "k", type)));
  std::copy_n(rows.values, size, static_cast<std::byte*>(args.Kv(v, "v", type)));
}

/*! \param rotation The inverse frequencies, followed by the amplitude, for each kind of layer. */
void CallSplitRotary(TensorView qkv, TensorView positions, TensorView q, TensorView k, TensorView v,
                     TensorView rotation) {
  const TensorArguments args("aiomlc.cpu.kv_split_rotary");
  if (const ImportedRows* rows = ImportedRows::Current()) {
    return TakeImportedRows(args, *rows, k, v);
  }
  LayerAttention::Current().Begin();
  args.RequireShape(q, "q", {kAny, kAny, kAny});
  const int64_t rows = q.size(0);
  const KvType type = args.TypeOfKv(qkv, "qkv");
  const int64_t head_dim = HeadDim(type, q.size(2));
  args.RequireShape(k, "k", {rows, kAny, q.size(2)});
  args.RequireShape(v, "v", {rows, k.size(1), q.size(2)});
  RotaryCall call;
  args.RequireShape(qkv, "qkv", {rows, q.size(1) + 2 * k.size(1), q.size(2)});
  call.heads = LayerHeads(args, type, {q.size(1), k.size(1), head_dim});
  args.RequireShape(positions, "positions", {rows});
  args.RequireShape(rotation, "rotation", {kAny});
  const LayerSettings& layer = LayerAttention::Current().settings();
  const int64_t size = layer.rotation_size > 0 ? layer.rotation_size : rotation.size(0);
  args.Require(size > 0 && layer.rotation_begin + size <= rotation.size(0),
               "rotation must have at least ", layer.rotation_begin + std::max<int64_t>(1, size),
               " floats, got ", rotation.size(0));
  call.num_frequencies = size - 1;
  args.Require(2 * call.num_frequencies <= call.heads.head_dim, "rotation must have at most ",
               call.heads.head_dim / 2, " inverse frequencies, got ", call.num_frequencies);
  call.type = QueryType(args, type);
  call.rows = rows;
  call.qkv = args.Kv(qkv, "qkv", type);
  call.positions = args.Data<int32_t>(positions, "positions");
  call.inverse_frequencies = args.Data<float>(rotation, "rotation") + layer.rotation_begin;
  call.amplitude = call.inverse_frequencies[call.num_frequencies];
  if (const PassPieces* pass = PassPieces::Current();
      pass != nullptr && pass->rope_positions != nullptr) {
    args.Require(pass->num_rows == rows, "the pass has ", pass->num_rows, " rows, got ", rows);
    const auto num_axes = static_cast<int64_t>(pass->rope_axes.size());
    args.Require(num_axes == call.num_frequencies, "rotation must have ", num_axes,
                 " inverse frequencies, one for each axis, got ", call.num_frequencies);
    call.positions = pass->rope_positions;
    call.axes = pass->rope_axes.data();
  }
  call.q = args.Kv(q, "q", type);
  call.k = args.Kv(k, "k", type);
  call.v = args.Kv(v, "v", type);
  if (IsConverted(type)) {
    QuantizedLayer::Current().Split(ThreadPool::Current(), call);
  } else {
    SplitRotary(ThreadPool::Current(), call);
  }
}

void CallAppend(TensorView pages, TensorView k, TensorView v, TensorView slot_ids) {
  const TensorArguments args("aiomlc.cpu.kv_append");
  if (ImportedRows::Current() == nullptr) LayerAttention::Current().CheckAppend();
  const KvPages target = PagesOf(args, pages);
  if (HugePages* huge_pages = HugePages::Current(); huge_pages != nullptr) {
    huge_pages->Request(target.data, static_cast<size_t>(target.num_pages) * target.PageBytes());
  }
  args.RequireShape(k, "k", {kAny, pages.size(2), pages.size(4)});
  args.RequireShape(v, "v", {k.size(0), pages.size(2), pages.size(4)});
  args.RequireShape(slot_ids, "position_map", {k.size(0)});
  const int32_t* ids = args.Data<int32_t>(slot_ids, "position_map");
  RequireSlots(args, ids, k.size(0), -1, target);
  AppendToPages(target, args.Kv(k, "k", target.type), args.Kv(v, "v", target.type), ids, k.size(0));
}

/*! \brief Convert the arguments that all attention functions have. */
AttentionCall CallOf(const TensorArguments& args, const TensorView& q, const TensorView& positions,
                     const TensorView& output, int64_t num_kv_heads, int64_t rotary_mode,
                     double scale) {
  args.Require(rotary_mode == 0, "rotary_mode must be 0, got ", rotary_mode);
  args.RequireShape(q, "q", {kAny, kAny, kAny});
  args.RequireShape(output, "output", {q.size(0), q.size(1), q.size(2)});
  args.RequireShape(positions, "q_rope_position", {q.size(0)});
  AttentionCall call;
  const KvType type = args.TypeOfKv(q, "q");
  const HeadLayout heads =
      LayerHeads(args, type, {q.size(1), num_kv_heads, HeadDim(type, q.size(2))});
  args.Require(heads.num_kv_heads > 0 && heads.num_query_heads % heads.num_kv_heads == 0,
               "the number of query heads must be a multiple of the ", heads.num_kv_heads,
               " key-value heads, got ", heads.num_query_heads);
  call.shape = {heads.num_query_heads, heads.num_kv_heads, heads.head_dim, QueryType(args, type),
                static_cast<float>(scale)};
  if (IsConverted(type)) {
    call.shape.stored = type;
    call.queries = QuantizedLayer::Current().queries();
  } else {
    call.queries = args.Kv(q, "q", type);
  }
  call.output = args.Kv(output, "output", type);
  call.num_rows = q.size(0);
  call.positions = args.Data<int32_t>(positions, "q_rope_position");
  return call;
}

void CallRagged(TensorView q, TensorView q_indptr, TensorView k, TensorView v, TensorView kv_indptr,
                TensorView q_rope_position, TensorView k_rope_pos_offset, TensorView output,
                TensorView /*lse*/, int64_t causal, int64_t rotary_mode, double /*rope_scale*/,
                double /*rope_theta*/, double scale) {
  if (ImportedRows::Current() != nullptr) return;
  const TensorArguments args("aiomlc.cpu.attention_ragged");
  args.Require(causal == 1, "causal must be 1, got ", causal);
  args.RequireShape(k, "k", {q.size(0), kAny, q.size(2)});
  args.RequireShape(v, "v", {q.size(0), k.size(1), q.size(2)});
  const AttentionCall call =
      CallOf(args, q, q_rope_position, output, k.size(1), rotary_mode, scale);
  NewTokens tokens;
  args.RequireShape(k_rope_pos_offset, "k_rope_pos_offset", {kAny});
  tokens.num_sequences = k_rope_pos_offset.size(0);
  args.RequireShape(q_indptr, "q_indptr", {tokens.num_sequences + 1});
  args.RequireShape(kv_indptr, "kv_indptr", {tokens.num_sequences + 1});
  tokens.row_indptr = args.Data<int32_t>(q_indptr, "q_indptr");
  tokens.history_lengths = args.Data<int32_t>(k_rope_pos_offset, "k_rope_pos_offset");
  const int32_t* kv_rows = args.Data<int32_t>(kv_indptr, "kv_indptr");
  for (int64_t i = 0; i <= tokens.num_sequences; ++i) {
    args.Require(kv_rows[i] == tokens.row_indptr[i], "q_indptr and kv_indptr must be equal");
  }
  tokens.keys = args.Kv(k, "k", call.shape.kv_type());
  tokens.values = args.Kv(v, "v", call.shape.kv_type());
  LayerAttention::Current().AddNewTokens(ThreadPool::Current(), call, tokens);
}

/*! \brief Convert the page tables of a prefill or decode call. */
PageSegments SegmentsOf(const TensorArguments& args, const TensorView& pages,
                        const TensorView& page_indptr, const TensorView& page_values,
                        const TensorView& length_info, const TensorView& k_rope_pos_offset,
                        const AttentionShape& shape) {
  const KvPages all = PagesOf(args, pages);
  args.Require(all.num_kv_heads == shape.num_kv_heads && all.head_dim == shape.head_dim &&
                   all.type == shape.kv_type(),
               "pages must have the key-value heads, the head_dim and the dtype of the call");
  args.RequireShape(page_indptr, "page_indptr", {kAny});
  args.Require(page_indptr.size(0) > 0, "page_indptr must not be empty");
  args.RequireShape(page_values, "page_values", {kAny});
  PageSegments segments;
  segments.num_groups = page_indptr.size(0) - 1;
  args.RequireShape(length_info, "length_info", {segments.num_groups});
  args.RequireShape(k_rope_pos_offset, "k_rope_pos_offset", {segments.num_groups});
  segments.pages = all.data;
  segments.num_pages = all.num_pages;
  segments.page_stride = all.PageBytes();
  segments.page_indptr = args.Data<int32_t>(page_indptr, "page_indptr");
  segments.page_ids = args.Data<int32_t>(page_values, "page_values");
  segments.num_page_ids = page_values.size(0);
  segments.last_page_lengths = args.Data<int32_t>(length_info, "length_info");
  segments.first_positions = args.Data<int32_t>(k_rope_pos_offset, "k_rope_pos_offset");
  return segments;
}

void CallPrefill(TensorView q, TensorView q_indptr, TensorView pages, TensorView page_indptr,
                 TensorView page_values, TensorView length_info, TensorView k_rope_pos_offset,
                 TensorView q_rope_position, TensorView output, TensorView /*lse*/,
                 int64_t /*causal*/, int64_t rotary_mode, double /*rope_scale*/,
                 double /*rope_theta*/, double scale) {
  if (ImportedRows::Current() != nullptr) return;
  const TensorArguments args("aiomlc.cpu.attention_prefill");
  args.RequireShape(pages, "pages", {kAny, 2, kAny, kPageSize, kAny});
  const AttentionCall call =
      CallOf(args, q, q_rope_position, output, pages.size(2), rotary_mode, scale);
  PageSegments segments =
      SegmentsOf(args, pages, page_indptr, page_values, length_info, k_rope_pos_offset, call.shape);
  args.RequireShape(q_indptr, "q_indptr", {segments.num_groups + 1});
  segments.row_indptr = args.Data<int32_t>(q_indptr, "q_indptr");
  LayerAttention::Current().AddPages(ThreadPool::Current(), call, segments);
}

void CallDecode(TensorView q, TensorView pages, TensorView page_indptr, TensorView page_values,
                TensorView length_info, TensorView k_rope_pos_offset, TensorView q_rope_position,
                TensorView output, TensorView /*lse*/, int64_t rotary_mode, double /*rope_scale*/,
                double /*rope_theta*/, double scale) {
  if (ImportedRows::Current() != nullptr) return;
  const TensorArguments args("aiomlc.cpu.attention_decode");
  args.RequireShape(pages, "pages", {kAny, 2, kAny, kPageSize, kAny});
  const AttentionCall call =
      CallOf(args, q, q_rope_position, output, pages.size(2), rotary_mode, scale);
  const PageSegments segments =
      SegmentsOf(args, pages, page_indptr, page_values, length_info, k_rope_pos_offset, call.shape);
  args.Require(segments.num_groups == call.num_rows, "page_indptr must have ", call.num_rows + 1,
               " elements, got ", segments.num_groups + 1);
  LayerAttention::Current().AddPages(ThreadPool::Current(), call, segments);
}

void CallMerge(TensorView /*output*/, TensorView /*lse*/, TensorView /*other*/,
               TensorView /*other_lse*/) {
  if (ImportedRows::Current() == nullptr) LayerAttention::Current().CheckMerge();
}

void CallCopyPage(TensorView pages, int64_t source, int64_t target, int64_t num_slots) {
  const TensorArguments args("aiomlc.cpu.kv_copy_page");
  const KvPages all = PagesOf(args, pages);
  args.Require(source >= 0 && source < all.num_pages && target >= 0 && target < all.num_pages,
               "page ids must be in [0, ", all.num_pages, "), got ", source, " and ", target);
  args.Require(num_slots >= 0 && num_slots <= kPageSize, "num_slots must be in [0, ", kPageSize,
               "], got ", num_slots);
  if (source != target) CopyPage(all, source, target, num_slots);
}

/*! \brief Copy a page of a cache whose layers have unequal heads, so that no slot is a fixed part.
 */
void CallCopyWholePage(TensorView pages, int64_t source, int64_t target, int64_t /*num_slots*/) {
  const TensorArguments args("aiomlc.cpu.kv_copy_whole_page");
  const KvPages all = PagesOf(args, pages);
  args.Require(source >= 0 && source < all.num_pages && target >= 0 && target < all.num_pages,
               "page ids must be in [0, ", all.num_pages, "), got ", source, " and ", target);
  if (source != target) CopyWholePage(all, source, target);
}

void CallDebugGet(TensorView pages, TensorView slot_ids, TensorView k_data, TensorView v_data,
                  int64_t layer_id) {
  const TensorArguments args("aiomlc.cpu.kv_debug_get");
  const KvPages source = PagesOf(args, pages);
  args.RequireShape(slot_ids, "position_map", {kAny});
  const int64_t count = slot_ids.size(0);
  args.RequireShape(k_data, "k_data", {kAny, count, pages.size(2), pages.size(4)});
  args.RequireShape(v_data, "v_data", {k_data.size(0), count, pages.size(2), pages.size(4)});
  args.Require(layer_id >= 0 && layer_id < k_data.size(0), "layer_id must be in [0, ",
               k_data.size(0), "), got ", layer_id);
  const int32_t* ids = args.Data<int32_t>(slot_ids, "position_map");
  RequireSlots(args, ids, count, 0, source);
  const size_t layer_bytes = static_cast<size_t>(count * source.num_kv_heads) * source.RowBytes();
  auto* keys = static_cast<std::byte*>(args.Kv(k_data, "k_data", source.type));
  auto* values = static_cast<std::byte*>(args.Kv(v_data, "v_data", source.type));
  ReadFromPages(source, ids, count, keys + layer_id * layer_bytes, values + layer_id * layer_bytes);
}

void CallCompactCopy(TensorView pages, TensorView copy_length_indptr, TensorView copy_src_dst_pos,
                     int64_t batch_size) {
  const TensorArguments args("aiomlc.cpu.kv_compact_copy");
  const KvPages all = PagesOf(args, pages);
  args.RequireShape(copy_length_indptr, "copy_length_indptr", {batch_size + 1});
  args.RequireShape(copy_src_dst_pos, "copy_src_dst_pos", {2, kAny});
  const int64_t capacity = copy_src_dst_pos.size(1);
  const int32_t* indptr = args.Data<int32_t>(copy_length_indptr, "copy_length_indptr");
  const int32_t* sources = args.Data<int32_t>(copy_src_dst_pos, "copy_src_dst_pos");
  const int64_t count = indptr[batch_size];
  args.Require(indptr[0] == 0 && count >= 0 && count <= capacity,
               "copy_length_indptr must start at 0 and end between 0 and ", capacity);
  RequireSlots(args, sources, count, 0, all);
  RequireSlots(args, sources + capacity, count, 0, all);
  CopySlots(all, sources, sources + capacity, count);
}

void CallUnsupported(ffi::PackedArgs /*args*/, ffi::Any* /*result*/) {
  TVM_FFI_THROW(RuntimeError) << "aiomlc.cpu.attention_unsupported: sliding windows of the KV "
                                 "cache, token trees and multi-head latent attention are not "
                                 "supported on the CPU";
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef()
      .def("aiomlc.cpu.kv_split_rotary", CallSplitRotary)
      .def("aiomlc.cpu.kv_append", CallAppend)
      .def("aiomlc.cpu.attention_ragged", CallRagged)
      .def("aiomlc.cpu.attention_prefill", CallPrefill)
      .def("aiomlc.cpu.attention_decode", CallDecode)
      .def("aiomlc.cpu.attention_merge", CallMerge)
      .def("aiomlc.cpu.kv_copy_page", CallCopyPage)
      .def("aiomlc.cpu.kv_copy_whole_page", CallCopyWholePage)
      .def("aiomlc.cpu.kv_debug_get", CallDebugGet)
      .def("aiomlc.cpu.kv_compact_copy", CallCompactCopy)
      .def_packed("aiomlc.cpu.attention_unsupported", CallUnsupported);
}

}  // namespace
}  // namespace aiomlc
