/*!
 * \file kernels/attention/packed_attention.cc
 * \brief Attention without a cache, computed with causal attention over temporary pages.
 *
 * Causal attention computes the rows that see all rows up to a position, which may be after their
 * own. In bidirectional attention, all rows are query heads of one row at the last position; each
 * head of a sequence is a task, whose pages stay in the cache of its thread. With windows, a row
 * stands at the last position that it sees; rows whose window reaches beyond the end of the
 * sequence see the first positions of the reversed sequence.
 */
#include "kernels/attention/packed_attention.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_tasks.h"
#include "kernels/attention/attention_types.h"
#include "kernels/attention/kv_pages.h"
#include "kernels/linear/linear_tasks.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {
namespace {

/*! \brief Computes one sequence at a time, whose rows do not all see all rows. */
class PackedSequence {
 public:
  PackedSequence(ThreadPool& pool, const PackedAttentionShape& shape, const PackedInputs& inputs)
      : pool_(pool),
        shape_(shape),
        heads_(shape.heads),
        inputs_(inputs),
        row_size_(heads_.num_query_heads * heads_.head_dim) {}

  /*! \brief Compute the rows from `begin` on. */
  void Attend(int64_t begin, int64_t length, float* output) {
    begin_ = begin;
    length_ = length;
    ResizePages();
    WritePages(Order::kForward);
    if (shape_.is_causal) return AttendCausal(output);
    AttendWindows(output);
  }

 private:
  enum class Order { kForward, kReversed };

  AttentionShape ShapeOf(int64_t num_query_heads, int64_t window) const {
    AttentionShape shape{num_query_heads, heads_.num_kv_heads, heads_.head_dim, FloatType::kF32,
                         shape_.scale};
    shape.window.size = window;
    shape.soft_cap = shape_.soft_cap;
    return shape;
  }

  void AttendCausal(float* output) {
    CopyQueries(0, length_, Order::kForward);
    const int64_t window = shape_.window == 0 ? 0 : shape_.window + 1;
    const AttentionRows rows{0, length_, 0, addresses_.data()};
    aiomlc::Attend(pool_, ShapeOf(heads_.num_query_heads, window), {&rows, 1}, queries_.data(),
                   output);
  }

  void AttendWindows(float* output) {
    const int64_t window = shape_.window;
    const AttentionRows first{0, length_ - window, window, addresses_.data()};
    CopyQueries(0, first.num_rows, Order::kForward);
    aiomlc::Attend(pool_, ShapeOf(heads_.num_query_heads, 2 * window + 1), {&first, 1},
                   queries_.data(), output);

    WritePages(Order::kReversed);
    CopyQueries(first.num_rows, window, Order::kReversed);
    outputs_.resize(window * row_size_);
    const int64_t in_window = std::min(window, length_ - window);
    std::vector<AttentionRows> rows{{0, in_window, window, addresses_.data()}};
    for (int64_t row = in_window; row < window; ++row) {  // These see the whole sequence.
      rows.push_back({row, 1, length_ - 1, addresses_.data()});
    }
    aiomlc::Attend(pool_, ShapeOf(heads_.num_query_heads, 0), rows, queries_.data(),
                   outputs_.data());
    for (int64_t row = 0; row < window; ++row) {
      Copy(outputs_.data() + row * row_size_, row_size_, output + (length_ - 1 - row) * row_size_);
    }
  }

  void ResizePages() {
    const int64_t elements = ShapeOf(heads_.num_query_heads, 0).PageElements();
    const int64_t num_pages = (length_ + kPageSize - 1) / kPageSize;
    pages_.resize(num_pages * elements);
    addresses_.clear();
    for (int64_t page = 0; page < num_pages; ++page) {
      addresses_.push_back(pages_.data() + page * elements);
    }
  }

  void WritePages(Order order) {
    const int64_t size = heads_.head_dim;
    const KvPages pages{reinterpret_cast<std::byte*>(pages_.data()),
                        static_cast<int64_t>(addresses_.size()), heads_.num_kv_heads, size,
                        KvType::kF32};
    pool_.Run(static_cast<int>(heads_.num_kv_heads), [&](int head) {
      for (int64_t i = 0; i < length_; ++i) {
        const int64_t slot = order == Order::kForward ? i : length_ - 1 - i;
        const int64_t offset = (begin_ + i) * inputs_.key_stride + head * size;
        pages.WriteKey(slot, head, reinterpret_cast<const std::byte*>(inputs_.keys + offset));
        pages.WriteValue(slot, head, reinterpret_cast<const std::byte*>(inputs_.values + offset));
      }
    });
  }

  /*! \brief Copy the queries of `count` rows from `first` on, in this order. */
  void CopyQueries(int64_t first, int64_t count, Order order) {
    queries_.resize(count * row_size_);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = order == Order::kForward ? i : count - 1 - i;
      Copy(Query(first + i), row_size_, queries_.data() + row * row_size_);
    }
  }

  const float* Query(int64_t row) const {
    return inputs_.queries + (begin_ + row) * inputs_.query_stride;
  }

  static void Copy(const float* source, int64_t size, float* target) {
    std::memcpy(target, source, sizeof(float) * size);
  }

  ThreadPool& pool_;
  const PackedAttentionShape& shape_;
  const HeadLayout& heads_;
  const PackedInputs& inputs_;
  int64_t row_size_;  //!< The elements of one row of queries.
  int64_t begin_ = 0;
  int64_t length_ = 0;
  std::vector<float> queries_, outputs_, pages_;
  std::vector<const void*> addresses_;
};

/*! \brief A sequence whose rows all see all rows. */
struct WholeSequence {
  int64_t begin;
  int64_t length;
};

/*! \brief Computes sequences whose rows all see all rows: a task for each of their heads. */
class WholeSequences {
 public:
  WholeSequences(const PackedAttentionShape& shape, const PackedInputs& inputs, float* output)
      : shape_(shape),
        inputs_(inputs),
        output_(output),
        size_(shape.heads.head_dim),
        group_(shape.heads.num_query_heads / shape.heads.num_kv_heads),
        row_size_(shape.heads.num_query_heads * size_),
        attend_(ActiveTileFunction(KvType::kF32)),
        write_panel_(ActiveLinearKernels().write_panel) {}

  void Attend(ThreadPool& pool, std::span<const WholeSequence> sequences) const {
    const auto kv_heads = shape_.heads.num_kv_heads;
    const auto heads = static_cast<int64_t>(sequences.size()) * kv_heads;
    // Few heads are divided, and each of their tasks writes its own pages.
    const int64_t parts = heads == 0 ? 0 : CeilDivide(kTasksPerThread * pool.num_threads(), heads);
    pool.Run(static_cast<int>(heads * parts), [&](int task) {
      const WholeSequence& sequence = sequences[task / (kv_heads * parts)];
      const int64_t tiles = group_ * CeilDivide(sequence.length, kMaxTileQueries);
      const int64_t part = task % parts;
      const int64_t begin = tiles * part / parts;
      const int64_t end = tiles * (part + 1) / parts;
      if (begin < end) AttendTiles(sequence, task / parts % kv_heads, begin, end);
    });
  }

 private:
  static constexpr int64_t kTasksPerThread = 4;

  static int64_t CeilDivide(int64_t value, int64_t divisor) {
    return (value + divisor - 1) / divisor;
  }

  /*! \brief Compute tiles [begin, end) of the query heads that share a key-value head. */
  void AttendTiles(const WholeSequence& sequence, int64_t kv_head, int64_t begin,
                   int64_t end) const {
    thread_local AlignedBuffer buffer;
    thread_local std::vector<const void*> pages;
    const int64_t plane = size_ * kTilePageSize;
    const int64_t num_pages = CeilDivide(sequence.length, kTilePageSize);
    auto* data = reinterpret_cast<float*>(buffer.Reserve(sizeof(float) * num_pages * 2 * plane));
    pages.clear();
    for (int64_t page = 0; page < num_pages; ++page) {
      WritePage(sequence, kv_head, page, data + page * 2 * plane);
      pages.push_back(data + page * 2 * plane);
    }
    AttentionTile tile = {};
    tile.num_rows = 1;
    tile.query_head_stride = inputs_.query_stride;
    tile.output_head_stride = row_size_;
    tile.head_dim = static_cast<int>(size_);
    tile.first_position = tile.first_visible = tile.last_visible = sequence.length - 1;
    tile.pages = pages.data();
    tile.value_offset = plane;
    tile.scale = shape_.scale;
    tile.type = FloatType::kF32;
    tile.stored = KvType::kF32;
    tile.soft_cap = shape_.soft_cap;
    for (int64_t index = begin; index < end; ++index) {
      const int64_t head = kv_head * group_ + index % group_;
      const int64_t first = index / group_ * kMaxTileQueries;
      const int64_t row = sequence.begin + first;
      tile.biases = shape_.biases == nullptr ? nullptr : shape_.biases->head(head) + first;
      tile.num_heads =
          static_cast<int>(std::min<int64_t>(kMaxTileQueries, sequence.length - first));
      tile.queries = inputs_.queries + row * inputs_.query_stride + head * size_;
      tile.output = output_ + row * row_size_ + head * size_;
      attend_(tile, {}, ThreadScratch(size_));
    }
  }

  /*! \brief Write one page of one head: its keys as [head_dim, 16], then its values. */
  void WritePage(const WholeSequence& sequence, int64_t kv_head, int64_t page, float* data) const {
    const int64_t first = page * kTilePageSize;
    const int64_t slots = std::min<int64_t>(kTilePageSize, sequence.length - first);
    const int64_t offset = (sequence.begin + first) * inputs_.key_stride + kv_head * size_;
    const float* keys = inputs_.keys + offset;
    const float* values = inputs_.values + offset;
    float* const value_plane = data + size_ * kTilePageSize;
    if (slots == kTilePageSize) {
      write_panel_({keys, FloatType::kF32, inputs_.key_stride, slots, size_, data});
    } else {
      for (int64_t slot = 0; slot < slots; ++slot) {
        for (int64_t c = 0; c < size_; ++c) {
          data[c * kTilePageSize + slot] = keys[slot * inputs_.key_stride + c];
        }
      }
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      std::copy_n(values + slot * inputs_.key_stride, size_, value_plane + slot * size_);
    }
  }

  const PackedAttentionShape& shape_;
  const PackedInputs& inputs_;
  float* output_;
  int64_t size_;
  int64_t group_;     //!< Query heads of a key-value head.
  int64_t row_size_;  //!< The elements of a row of output.
  TileFunction attend_;
  void (*write_panel_)(const PanelBlock&);  // A panel has as many rows as a page.
};
static_assert(kPanelRows == kTilePageSize);

}  // namespace

void AttendPacked(ThreadPool& pool, const PackedAttentionShape& shape,
                  std::span<const int32_t> lengths, const PackedInputs& inputs, float* output) {
  PackedSequence others(pool, shape, inputs);
  std::vector<WholeSequence> whole;
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    if (!shape.is_causal && (shape.window == 0 || length <= shape.window + 1)) {
      whole.push_back({begin, length});
    } else {
      others.Attend(begin, length,
                    output + begin * shape.heads.num_query_heads * shape.heads.head_dim);
    }
    begin += length;
  }
  WholeSequences(shape, inputs, output).Attend(pool, whole);
}

}  // namespace aiomlc
