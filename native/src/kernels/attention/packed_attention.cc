/*!
 * \file kernels/attention/packed_attention.cc
 * \brief Bidirectional attention computed with causal attention.
 *
 * In causal attention, the query heads of the last row see the whole sequence. So all rows of a
 * sequence are passed to `Attend` as query heads of one row at the last position.
 */
#include "kernels/attention/packed_attention.h"

#include <cstddef>
#include <cstring>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/kv_pages.h"

namespace aiomlc {
namespace {

/*! \brief Computes one sequence at a time; its tensors have the layout of `Attend`. */
class PackedSequence {
 public:
  PackedSequence(ThreadPool& pool, const HeadLayout& heads, float scale)
      : pool_(pool),
        heads_(heads),
        scale_(scale),
        row_stride_(heads.num_query_heads * heads.head_dim) {}

  void Attend(const float* qkv, int64_t length, float* output) {
    const int64_t num_pages = (length + kPageSize - 1) / kPageSize;
    const AttentionShape shape{length * heads_.num_query_heads, heads_.num_query_heads,
                               heads_.head_dim, FloatType::kF32, scale_};
    queries_.resize(length * row_stride_);
    outputs_.resize(length * row_stride_);
    pages_.resize(num_pages * shape.PageElements());
    addresses_.clear();
    for (int64_t page = 0; page < num_pages; ++page) {
      addresses_.push_back(pages_.data() + page * shape.PageElements());
    }
    pool_.Run(static_cast<int>(heads_.num_query_heads),
              [&](int head) { Gather(qkv, length, head); });
    const AttentionRows rows{0, 1, length - 1, addresses_.data()};
    aiomlc::Attend(pool_, shape, {&rows, 1}, queries_.data(), outputs_.data());
    for (int64_t head = 0; head < heads_.num_query_heads; ++head) {
      for (int64_t i = 0; i < length; ++i) {
        Copy(outputs_.data() + (head * length + i) * heads_.head_dim,
             output + i * row_stride_ + head * heads_.head_dim);
      }
    }
  }

 private:
  /*! \brief Copy one head of all rows to the query heads and the pages. */
  void Gather(const float* qkv, int64_t length, int64_t head) {
    const int64_t size = heads_.head_dim;
    const KvPages pages{reinterpret_cast<std::byte*>(pages_.data()),
                        static_cast<int64_t>(addresses_.size()), heads_.num_query_heads, size,
                        KvType::kF32};
    for (int64_t i = 0; i < length; ++i) {
      const float* query = qkv + i * 3 * row_stride_ + head * size;
      Copy(query, queries_.data() + (head * length + i) * size);
      pages.WriteKey(i, head, reinterpret_cast<const std::byte*>(query + row_stride_));
      pages.WriteValue(i, head, reinterpret_cast<const std::byte*>(query + 2 * row_stride_));
    }
  }

  void Copy(const float* source, float* target) const {
    std::memcpy(target, source, sizeof(float) * heads_.head_dim);
  }

  ThreadPool& pool_;
  const HeadLayout& heads_;
  float scale_;
  int64_t row_stride_;  //!< The elements of one row of queries.
  std::vector<float> queries_, outputs_, pages_;
  std::vector<const void*> addresses_;
};

}  // namespace

void AttendPacked(ThreadPool& pool, const HeadLayout& heads, std::span<const int32_t> lengths,
                  float scale, const float* qkv, float* output) {
  PackedSequence sequence(pool, heads, scale);
  const int64_t row_stride = heads.num_query_heads * heads.head_dim;
  for (const int32_t length : lengths) {
    sequence.Attend(qkv, length, output);
    qkv += 3 * row_stride * length;
    output += row_stride * length;
  }
}

}  // namespace aiomlc
