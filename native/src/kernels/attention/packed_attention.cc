/*!
 * \file kernels/attention/packed_attention.cc
 * \brief Attention without a cache, computed with causal attention over temporary pages.
 *
 * Causal attention computes the rows that see all rows up to a position, which may be after their
 * own. In bidirectional attention, all rows are query heads of one row at the last position. With
 * windows, a row stands at the last position that it sees; rows whose window reaches beyond the end
 * of the sequence see the first positions of the reversed sequence.
 */
#include "kernels/attention/packed_attention.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_pages.h"

namespace aiomlc {
namespace {

/*! \brief Computes one sequence at a time. */
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
    if (shape_.window == 0 || length <= shape_.window + 1) return AttendAll(output);
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

  void AttendAll(float* output) {
    const int64_t size = heads_.head_dim;
    queries_.resize(length_ * row_size_);
    outputs_.resize(length_ * row_size_);
    pool_.Run(static_cast<int>(heads_.num_query_heads), [&](int head) {
      for (int64_t i = 0; i < length_; ++i) {
        Copy(Query(i) + head * size, size, queries_.data() + (head * length_ + i) * size);
      }
    });
    const AttentionRows rows{0, 1, length_ - 1, addresses_.data()};
    aiomlc::Attend(pool_, ShapeOf(length_ * heads_.num_query_heads, 0), {&rows, 1}, queries_.data(),
                   outputs_.data());
    for (int64_t head = 0; head < heads_.num_query_heads; ++head) {
      for (int64_t i = 0; i < length_; ++i) {
        Copy(outputs_.data() + (head * length_ + i) * size, size,
             output + i * row_size_ + head * size);
      }
    }
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

}  // namespace

void AttendPacked(ThreadPool& pool, const PackedAttentionShape& shape,
                  std::span<const int32_t> lengths, const PackedInputs& inputs, float* output) {
  PackedSequence sequence(pool, shape, inputs);
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    sequence.Attend(begin, length,
                    output + begin * shape.heads.num_query_heads * shape.heads.head_dim);
    begin += length;
  }
}

}  // namespace aiomlc
