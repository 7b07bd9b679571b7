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
#include "kernels/elementwise/elementwise_rows.h"
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
    if (shape_.products == KvType::kBF16) shape.stored = KvType::kBF16;
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
    const size_t bytes = ShapeOf(heads_.num_query_heads, 0).PageBytes();
    const int64_t num_pages = (length_ + kPageSize - 1) / kPageSize;
    pages_.resize(static_cast<size_t>(num_pages) * bytes);
    addresses_.clear();
    for (int64_t page = 0; page < num_pages; ++page) {
      addresses_.push_back(pages_.data() + page * bytes);
    }
  }

  void WritePages(Order order) {
    const int64_t size = heads_.head_dim;
    const KvPages pages{pages_.data(), static_cast<int64_t>(addresses_.size()), heads_.num_kv_heads,
                        size, shape_.products};
    pool_.Run(static_cast<int>(heads_.num_kv_heads), [&](int head) {
      std::vector<uint16_t> rounded(static_cast<size_t>(size));
      for (int64_t i = 0; i < length_; ++i) {
        const int64_t slot = order == Order::kForward ? i : length_ - 1 - i;
        const int64_t offset = (begin_ + i) * inputs_.key_stride + head * size;
        pages.WriteKey(slot, head, AsStored(inputs_.keys + offset, rounded));
        pages.WriteValue(slot, head, AsStored(inputs_.values + offset, rounded));
      }
    });
  }

  /*! \return A head of a position in the type of the pages. \param rounded May hold it. */
  const std::byte* AsStored(const float* head, std::vector<uint16_t>& rounded) const {
    if (shape_.products == KvType::kF32) return reinterpret_cast<const std::byte*>(head);
    ActiveRowKernels().round_to_bf16(head, FloatType::kF32, heads_.head_dim, rounded.data());
    return reinterpret_cast<const std::byte*>(rounded.data());
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
  std::vector<float> queries_, outputs_;
  std::vector<std::byte> pages_;
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
        plane_(size_ * kTilePageSize),
        attend_(ActiveTileFunction(shape.products)),
        write_panel_(ActiveLinearKernels().write_panel),
        round_(ActiveRowKernels().round_to_bf16) {}

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
  static constexpr int64_t kFloatsPerLine = 16;  // Of a cache line.

  static int64_t CeilDivide(int64_t value, int64_t divisor) {
    return (value + divisor - 1) / divisor;
  }

  /*! \brief Compute tiles [begin, end) of the query heads that share a key-value head. */
  void AttendTiles(const WholeSequence& sequence, int64_t kv_head, int64_t begin,
                   int64_t end) const {
    thread_local AlignedBuffer buffer;
    thread_local std::vector<const void*> pages;
    const int64_t num_pages = CeilDivide(sequence.length, kTilePageSize);
    const auto page_bytes = static_cast<int64_t>(KvElementsBytes(shape_.products, 2 * plane_));
    std::byte* data = buffer.Reserve(static_cast<size_t>(num_pages * page_bytes));
    pages.clear();
    for (int64_t page = 0; page < num_pages; ++page) {
      WritePage(sequence, kv_head, page, data + page * page_bytes);
      pages.push_back(data + page * page_bytes);
    }
    AttentionTile tile = {};
    tile.num_rows = tile.num_kv_heads = 1;
    tile.query_head_stride = inputs_.query_stride;
    tile.output_head_stride = row_size_;
    tile.head_dim = static_cast<int>(size_);
    tile.first_position = tile.first_visible = tile.last_visible = sequence.length - 1;
    tile.pages = pages.data();
    tile.value_offset = plane_;
    tile.scale = shape_.scale;
    tile.type = FloatType::kF32;
    tile.stored = shape_.products;
    tile.soft_cap = shape_.soft_cap;
    for (int64_t index = begin; index < end; ++index) {
      const int64_t head = kv_head * group_ + index % group_;
      const int64_t first = index / group_ * kMaxTileQueries;
      const int64_t row = sequence.begin + first;
      tile.num_heads =
          static_cast<int>(std::min<int64_t>(kMaxTileQueries, sequence.length - first));
      if (shape_.biases != nullptr) {
        const TileBiases biases =
            shape_.biases->OfTile({sequence.begin, sequence.length, head, first, tile.num_heads});
        tile.biases = biases.values;
        tile.bias_stride = biases.stride;
      }
      tile.queries = inputs_.queries + row * inputs_.query_stride + head * size_;
      tile.output = output_ + row * row_size_ + head * size_;
      attend_(tile, {}, ThreadScratch(size_));
    }
  }

  /*! \brief Write one page of one head: its keys, then its values (see `KvPages`). */
  void WritePage(const WholeSequence& sequence, int64_t kv_head, int64_t page,
                 std::byte* data) const {
    const int64_t first = page * kTilePageSize;
    const int64_t slots = std::min<int64_t>(kTilePageSize, sequence.length - first);
    const int64_t offset = (sequence.begin + first) * inputs_.key_stride + kv_head * size_;
    const float* keys = inputs_.keys + offset;
    const float* values = inputs_.values + offset;
    if (shape_.products == KvType::kBF16) {
      return WritePairs(keys, values, slots, reinterpret_cast<uint16_t*>(data));
    }
    auto* floats = reinterpret_cast<float*>(data);
    WriteTransposed(keys, inputs_.key_stride, slots, size_, floats);
    for (int64_t slot = 0; slot < slots; ++slot) {
      std::copy_n(values + slot * inputs_.key_stride, size_, floats + plane_ + slot * size_);
    }
  }

  /*! \brief Write `slots` rows of `count` numbers as [count, 16]. */
  void WriteTransposed(const float* rows, int64_t stride, int64_t slots, int64_t count,
                       float* target) const {
    if (slots == kTilePageSize) {
      return write_panel_({rows, FloatType::kF32, stride, slots, count, target});
    }
    for (int64_t slot = 0; slot < slots; ++slot) {
      for (int64_t c = 0; c < count; ++c) {
        std::memcpy(target + c * kTilePageSize + slot, rows + slot * stride + c, sizeof(float));
      }
    }
  }

  /*! \brief Write a page of bf16: a pair of elements of a key is moved as a number of 32 bits. */
  void WritePairs(const float* keys, const float* values, int64_t slots, uint16_t* page) const {
    thread_local AlignedBuffer buffer;
    auto* rounded =
        reinterpret_cast<uint16_t*>(buffer.Reserve(static_cast<size_t>(plane_) * sizeof(uint16_t)));
    RoundRows(keys, slots, rounded);
    WriteTransposed(reinterpret_cast<const float*>(rounded), size_ / 2, slots, size_ / 2,
                    reinterpret_cast<float*>(page));
    RoundRows(values, slots, rounded);
    uint16_t* target = page + plane_;
    for (int64_t slot = 0; slot < slots; slot += 2) {
      const uint16_t* even = rounded + slot * size_;
      const uint16_t* odd = slot + 1 < slots ? even + size_ : even;  // Of the last one: not used.
      for (int64_t c = 0; c < size_; ++c) {
        target[slot * size_ + 2 * c] = even[c];
        target[slot * size_ + 2 * c + 1] = odd[c];
      }
    }
  }

  void RoundRows(const float* rows, int64_t count, uint16_t* rounded) const {
    for (int64_t row = 0; row < count; ++row) {
      // The rows of the next page are far apart, which the hardware does not predict.
      const float* ahead = rows + (row + kTilePageSize) * inputs_.key_stride;
      for (int64_t c = 0; c < size_; c += kFloatsPerLine) __builtin_prefetch(ahead + c);
      round_(rows + row * inputs_.key_stride, FloatType::kF32, size_, rounded + row * size_);
    }
  }

  const PackedAttentionShape& shape_;
  const PackedInputs& inputs_;
  float* output_;
  int64_t size_;
  int64_t group_;     //!< Query heads of a key-value head.
  int64_t row_size_;  //!< The elements of a row of output.
  int64_t plane_;     //!< The elements of the keys of a head in a page.
  TileFunction attend_;
  void (*write_panel_)(const PanelBlock&);  // A panel has as many rows as a page.
  void (*round_)(const void* x, FloatType type, int64_t size, uint16_t* out);
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
