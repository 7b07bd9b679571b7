#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/attention/attention_tasks.h"
#include "kernels/attention/attention_types.h"
#include "kernels/attention/kv_pages.h"
#include "kernels/elementwise/quantized_rows.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

using Stored = std::optional<KvType>;
constexpr Stored kFloats, kBF16 = KvType::kBF16, kInt8 = KvType::kI8, kInt4 = KvType::kI4;
const auto kStoredTypes = ::testing::Values(kFloats, kBF16, kInt8, kInt4);

/*! \return A head_dim that a type supports. */
int64_t HeadDim(int64_t head_dim, Stored stored) {
  if (!stored.has_value()) return head_dim;
  const int64_t multiple = FormatOf(*stored).head_multiple;
  return (head_dim + multiple - 1) / multiple * multiple;
}

/*! \return Whether queries and probabilities are rounded to bf16. */
bool IsInPairs(Stored stored) { return stored.has_value() && FormatOf(*stored).inputs == 2; }

/*! \return The largest error of a result, which is below 4: of a float16, 2^-11 of its size. */
double ToleranceOf(const AttentionShape& shape) {
  if (IsInPairs(shape.stored)) return 1.5e-2;  // Probabilities have 8 bits.
  return shape.type == FloatType::kF16 ? 1e-3 : 4e-6;
}

/*! \return Sink scores of all heads, some of which dominate or vanish. */
const float* SinkScores() {
  static const std::vector<float> scores = [] {
    std::vector<float> values = RandomFloats(256, 61);
    for (size_t i = 0; i < values.size(); i += 5) values[i] *= i % 2 == 0 ? 30.0f : -300.0f;
    return values;
  }();
  return scores.data();
}

/*! \brief One sequence in pages in descending order; every slot after its end is NaN. */
class PagedSequence {
 public:
  PagedSequence(const AttentionShape& shape, int64_t length, uint32_t seed)
      : shape_(shape),
        length_(length),
        num_pages_((length + kPageSize - 1) / kPageSize),
        bytes_(num_pages_ * shape.PageBytes(), kNaN),
        queries_(shape.type, RandomFloats(length * shape.num_query_heads * shape.head_dim, seed)),
        keys_(Stored(seed + 1, 0)),
        values_(Stored(seed + 1, 1)) {
    for (int64_t position = 0; position < length; ++position) {
      for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const size_t row = (position * shape.num_kv_heads + head) * pages().RowBytes();
        pages().WriteKey(Slot(position), head, keys_.data() + row);
        pages().WriteValue(Slot(position), head, values_.data() + row);
      }
    }
    for (int64_t page = 0; page < num_pages_; ++page) {
      addresses_.push_back(bytes_.data() + (num_pages_ - 1 - page) * shape.PageBytes());
    }
  }

  int64_t length() const { return length_; }
  int64_t row_size() const { return shape_.num_query_heads * shape_.head_dim; }
  const FloatTensor& queries() const { return queries_; }

  /*! \return Rows [begin, end) of the sequence, starting at `row` of the tensors. */
  AttentionRows Rows(int64_t begin, int64_t end, int64_t row) const {
    return {row, end - begin, begin, addresses_.data()};
  }

  /*! \brief Overwrite every slot that row `position` does not see with NaN. */
  void OverwriteHiddenSlots(int64_t position) {
    const std::vector<std::byte> nan_row(pages().RowBytes(), kNaN);
    for (int64_t other = 0; other < length_; ++other) {
      if (Sees(position, other)) continue;
      for (int64_t head = 0; head < shape_.num_kv_heads; ++head) {
        pages().WriteKey(Slot(other), head, nan_row.data());
        pages().WriteValue(Slot(other), head, nan_row.data());
      }
    }
  }

  /*! \return The output of the whole sequence, computed in one call. */
  FloatTensor OutputOfAll(ThreadPool& pool) const {
    FloatTensor output(shape_.type, length_ * row_size());
    const AttentionRows rows = Rows(0, length_, 0);
    Attend(pool, shape_, {&rows, 1}, queries_.data(), output.data());
    return output;
  }

  /*! \return The same on each of `SupportedTiers()`. */
  std::vector<FloatTensor> OutputsOfTiers(ThreadPool& pool) const {
    std::vector<FloatTensor> outputs;
    for (const Isa isa : SupportedTiers()) {
      const TierScope tier(isa);
      outputs.push_back(OutputOfAll(pool));
    }
    return outputs;
  }

  /*! \return The output of one row and head, computed in float64. */
  std::vector<double> Expected(int64_t position, int64_t head) const {
    const int64_t kv_head = head / (shape_.num_query_heads / shape_.num_kv_heads);
    std::vector<double> weights;
    for (int64_t other = 0; other <= position; ++other) {
      if (!Sees(position, other)) {
        weights.push_back(-std::numeric_limits<double>::infinity());
        continue;
      }
      double dot = 0;
      for (int64_t i = 0; i < shape_.head_dim; ++i) {
        const float query = queries_[position * row_size() + head * shape_.head_dim + i];
        const bool is_rounded = IsInPairs(shape_.stored);
        dot += double{is_rounded ? BFloat16ToFloat(FloatToBFloat16(query)) : query} *
               Element(keys_, kv_head, other, i);
      }
      const double score = dot * shape_.scale, cap = shape_.soft_cap;
      weights.push_back(cap > 0 ? cap * std::tanh(score / cap) : score);
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    if (shape_.sink_scores != nullptr) total += std::exp(shape_.sink_scores[head] - largest);
    std::vector<double> output(shape_.head_dim, 0.0);
    for (int64_t other = 0; other <= position; ++other) {
      for (int64_t i = 0; i < shape_.head_dim; ++i) {
        output[i] += weights[other] / total * Element(values_, kv_head, other, i);
      }
    }
    return output;
  }

 private:
  static constexpr std::byte kNaN{0xff};  // Elements and scales of these bytes are NaN.

  bool Sees(int64_t position, int64_t other) const {
    const auto [size, sinks] = shape_.window;
    return other <= position && (size == 0 || other > position - size || other < sinks);
  }

  int64_t Slot(int64_t position) const {
    return (num_pages_ - 1 - position / kPageSize) * kPageSize + position % kPageSize;
  }

  KvPages pages() {
    return {bytes_.data(), num_pages_, shape_.num_kv_heads, shape_.head_dim, shape_.kv_type()};
  }

  /*! \return Random rows [length, num_kv_heads] in the KV type. \param first 0: keys, 1: values. */
  std::vector<std::byte> Stored(uint32_t seed, int64_t first) const {
    const int64_t rows = length_ * shape_.num_kv_heads;
    const std::vector<float> random = RandomFloats(2 * rows * shape_.head_dim, seed);
    FloatTensor floats(shape_.type, rows * shape_.head_dim);
    for (int64_t i = 0; i < rows * shape_.head_dim; ++i) floats.Set(i, random[2 * i + first]);
    std::vector<std::byte> stored(rows * KvRowBytes(shape_.kv_type(), shape_.head_dim));
    if (shape_.stored.has_value()) {
      ThreadPool pool(1);
      if (shape_.stored == KvType::kI4) {
        // The factor makes up for the rotation, which is not undone here.
        QuantizeRowsTo4Bits(pool, floats.data(), shape_.type, rows, shape_.head_dim, 0.125f,
                            stored.data());
      } else {
        const auto store = shape_.stored == KvType::kI8 ? QuantizeRows : RoundRowsToBFloat16;
        store(pool, floats.data(), shape_.type, rows, shape_.head_dim, stored.data());
      }
    } else {
      std::memcpy(stored.data(), floats.data(), stored.size());
    }
    return stored;
  }

  /*! \return An element of a stored row as a number. */
  double Element(const std::vector<std::byte>& stored, int64_t head, int64_t position,
                 int64_t i) const {
    const size_t row_bytes = KvRowBytes(shape_.kv_type(), shape_.head_dim);
    const std::byte* row = stored.data() + (position * shape_.num_kv_heads + head) * row_bytes;
    if (shape_.stored == KvType::kBF16) {
      uint16_t element;
      std::memcpy(&element, row + i * sizeof(element), sizeof(element));
      return BFloat16ToFloat(element);
    }
    if (!shape_.stored.has_value()) {
      FloatTensor one(shape_.type, 1);
      std::memcpy(one.data(), row + i * FloatBytes(shape_.type), FloatBytes(shape_.type));
      return one[0];
    }
    float scale;
    std::memcpy(&scale, row + KvElementsBytes(shape_.kv_type(), shape_.head_dim), sizeof(scale));
    if (shape_.stored == KvType::kI8) return double{scale} * static_cast<int8_t>(row[i]);
    const int level = std::to_integer<int>(row[i / 2] >> (i % 2 * 4)) & 15;
    return double{scale} * (2 * level - 15);
  }

  AttentionShape shape_;
  int64_t length_;
  int64_t num_pages_;
  std::vector<std::byte> bytes_;
  FloatTensor queries_;
  std::vector<std::byte> keys_, values_;
  std::vector<const void*> addresses_;
};

// Type, head_dim, query heads per kv head, window, stored type, soft cap, sink scores.
using Parameters = std::tuple<FloatType, int64_t, int64_t, AttentionWindow, Stored, float, bool>;

class AttentionOfShape : public ::testing::TestWithParam<Parameters> {
 protected:
  AttentionShape shape() const {
    const auto [type, head_dim, group, window, stored, soft_cap, has_sinks] = GetParam();
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    return {2 * group, 2,        HeadDim(head_dim, stored),         type, scale, window,
            stored,    soft_cap, has_sinks ? SinkScores() : nullptr};
  }

  ThreadPool pool_{2};
};

TEST_P(AttentionOfShape, MatchesTheReferenceOnEveryTier) {
  const double tolerance = ToleranceOf(shape());
  for (const int64_t length : {1, 15, 16, 17, 70}) {
    const PagedSequence sequence(shape(), length, 7);
    const std::vector<FloatTensor> outputs = sequence.OutputsOfTiers(pool_);
    for (int64_t position = 0; position < length; ++position) {
      for (int64_t head = 0; head < shape().num_query_heads; ++head) {
        const std::vector<double> expected = sequence.Expected(position, head);
        const int64_t first = position * sequence.row_size() + head * shape().head_dim;
        for (size_t tier = 0; tier < outputs.size(); ++tier) {
          for (int64_t i = 0; i < shape().head_dim; ++i) {
            ASSERT_NEAR(outputs[tier][first + i], expected[i], tolerance)
                << IsaName(SupportedTiers()[tier]) << " length " << length << " position "
                << position;
          }
        }
      }
    }
  }
}

TEST_P(AttentionOfShape, HasTheSameBitsOnEveryTier) {
  const PagedSequence sequence(shape(), 70, 11);

  const std::vector<FloatTensor> outputs = sequence.OutputsOfTiers(pool_);

  for (const FloatTensor& output : outputs) EXPECT_EQ(output.bytes(), outputs[0].bytes());
}

TEST_P(AttentionOfShape, ARowDoesNotDependOnItsChunk) {
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    const PagedSequence sequence(shape(), 83, 13);
    const FloatTensor expected = sequence.OutputOfAll(pool_);

    for (const int64_t chunk : {1, 3, 16, 50}) {
      FloatTensor output(shape().type, sequence.length() * sequence.row_size());
      for (int64_t begin = 0; begin < sequence.length(); begin += chunk) {
        const AttentionRows rows =
            sequence.Rows(begin, std::min(begin + chunk, sequence.length()), begin);
        Attend(pool_, shape(), {&rows, 1}, sequence.queries().data(), output.data());
      }
      EXPECT_EQ(output.bytes(), expected.bytes()) << IsaName(isa) << " chunks of " << chunk;
    }
  }
}

TEST_P(AttentionOfShape, ARowDependsNeitherOnItsBatchNorOnTheThreads) {
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    const PagedSequence first(shape(), 40, 17);
    const PagedSequence second(shape(), 21, 19);
    FloatTensor queries(shape().type, 61 * first.row_size());
    std::copy(first.queries().bytes().begin(), first.queries().bytes().end(), queries.data());
    std::copy(second.queries().bytes().begin(), second.queries().bytes().end(),
              queries.data() + first.queries().bytes().size());
    const std::vector<AttentionRows> rows{first.Rows(0, 40, 0), second.Rows(0, 21, 40)};

    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      FloatTensor output(shape().type, 61 * first.row_size());
      Attend(pool, shape(), rows, queries.data(), output.data());

      EXPECT_EQ(output.Slice(0, 40 * first.row_size()), first.OutputOfAll(pool_).bytes());
      EXPECT_EQ(output.Slice(40 * first.row_size(), 21 * first.row_size()),
                second.OutputOfAll(pool_).bytes());
    }
  }
}

TEST_P(AttentionOfShape, SlotsThatARowDoesNotSeeMayContainNaN) {
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    for (const int64_t position : {0, 31, 69}) {
      PagedSequence sequence(shape(), 70, 31);
      const FloatTensor expected = sequence.OutputOfAll(pool_);
      FloatTensor output(shape().type, sequence.length() * sequence.row_size());

      sequence.OverwriteHiddenSlots(position);
      const AttentionRows rows = sequence.Rows(position, position + 1, position);
      Attend(pool_, shape(), {&rows, 1}, sequence.queries().data(), output.data());

      EXPECT_EQ(output.Slice(position * sequence.row_size(), sequence.row_size()),
                expected.Slice(position * sequence.row_size(), sequence.row_size()))
          << IsaName(isa) << " position " << position;
    }
  }
}

TEST_P(AttentionOfShape, RowsThatSeeEachOtherHaveTheBitsOfRowsAtTheLastPosition) {
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    for (const auto& [begin, end] : {std::pair{0, 1}, {3, 16}, {7, 70}, {40, 61}}) {
      const PagedSequence sequence(shape(), 70, 53);
      AttentionRows block = sequence.Rows(begin, end, begin);
      block.see_each_other = true;
      FloatTensor output(shape().type, sequence.length() * sequence.row_size());
      Attend(pool_, shape(), {&block, 1}, sequence.queries().data(), output.data());

      for (int64_t position = begin; position < end; ++position) {
        AttentionShape moved = shape();  // Its window begins where that of the row does.
        if (moved.window.size > 0) moved.window.size += end - 1 - position;
        AttentionRows row = sequence.Rows(end - 1, end, position);
        FloatTensor expected(shape().type, sequence.length() * sequence.row_size());
        Attend(pool_, moved, {&row, 1}, sequence.queries().data(), expected.data());
        ASSERT_EQ(output.Slice(position * sequence.row_size(), sequence.row_size()),
                  expected.Slice(position * sequence.row_size(), sequence.row_size()))
            << IsaName(isa) << " [" << begin << ", " << end << ") position " << position;
      }
    }
  }
}

TEST_P(AttentionOfShape, AWindowOfTheWholeSequenceChangesNoBit) {
  AttentionShape wide = shape();
  wide.window = {70, 0};
  AttentionShape none = shape();
  none.window = {};
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);

    EXPECT_EQ(PagedSequence(wide, 70, 37).OutputOfAll(pool_).bytes(),
              PagedSequence(none, 70, 37).OutputOfAll(pool_).bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOfShape,
                         ::testing::Combine(::testing::Values(FloatType::kF16, FloatType::kF32),
                                            ::testing::Values<int64_t>(8, 20, 64, 80),
                                            ::testing::Values<int64_t>(1, 3),
                                            ::testing::Values(AttentionWindow{}), kStoredTypes,
                                            ::testing::Values(0.0f), ::testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(
    Windows, AttentionOfShape,
    ::testing::Combine(::testing::Values(FloatType::kF16, FloatType::kF32),
                       ::testing::Values<int64_t>(20), ::testing::Values<int64_t>(1, 3, 16),
                       ::testing::Values(AttentionWindow{1, 0}, AttentionWindow{5, 2},
                                         AttentionWindow{16, 0}, AttentionWindow{20, 16},
                                         AttentionWindow{33, 19}, AttentionWindow{3, 40},
                                         AttentionWindow{100, 4}),
                       kStoredTypes, ::testing::Values(0.0f), ::testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(
    SoftCaps, AttentionOfShape,
    ::testing::Combine(::testing::Values(FloatType::kF16, FloatType::kF32),
                       ::testing::Values<int64_t>(20), ::testing::Values<int64_t>(3, 16),
                       ::testing::Values(AttentionWindow{}, AttentionWindow{20, 3}), kStoredTypes,
                       ::testing::Values(0.5f), ::testing::Values(false)));
INSTANTIATE_TEST_SUITE_P(
    Sinks, AttentionOfShape,
    ::testing::Combine(::testing::Values(FloatType::kF16, FloatType::kF32),
                       ::testing::Values<int64_t>(20), ::testing::Values<int64_t>(1, 3, 16, 71),
                       ::testing::Values(AttentionWindow{}, AttentionWindow{20, 3}), kStoredTypes,
                       ::testing::Values(0.0f, 0.5f), ::testing::Values(true)));
// More query heads per kv head than fit in a tile, and the largest common head_dim.
INSTANTIATE_TEST_SUITE_P(
    ManyHeads, AttentionOfShape,
    ::testing::Values(Parameters{FloatType::kF16, 16, 71, {}, kFloats, 0.0f, false},
                      Parameters{FloatType::kF16, 16, 71, {9, 2}, kFloats, 0.0f, false},
                      Parameters{FloatType::kF16, 16, 71, {9, 2}, kInt8, 0.0f, false},
                      Parameters{FloatType::kF16, 256, 2, {}, kFloats, 0.0f, false},
                      Parameters{FloatType::kF16, 256, 2, {}, kInt8, 0.0f, false},
                      Parameters{FloatType::kF16, 32, 71, {9, 2}, kInt4, 0.0f, false},
                      Parameters{FloatType::kF16, 256, 2, {}, kInt4, 0.0f, false}));

// Contexts that end near the boundaries of chunks, which are 512 positions long.
constexpr int64_t kContexts[] = {1, 511, 512, 513, 1024, 4097};

/*! \return The output of rows [begin, end) of a sequence, computed in one call. */
FloatTensor RowsOf(ThreadPool& pool, const AttentionShape& shape, const PagedSequence& sequence,
                   int64_t begin, int64_t end) {
  const int64_t size = (end - begin) * sequence.row_size();
  FloatTensor output(shape.type, size);
  const FloatTensor queries(sequence.queries(), begin * sequence.row_size(), size);
  const AttentionRows rows = sequence.Rows(begin, end, 0);
  Attend(pool, shape, {&rows, 1}, queries.data(), output.data());
  return output;
}

// Query heads per kv head, kv heads, window, stored type, soft cap, sink scores.
using LongParameters = std::tuple<int64_t, int64_t, AttentionWindow, Stored, float, bool>;

class AttentionToALongContext : public ::testing::TestWithParam<LongParameters> {
 protected:
  AttentionShape shape(FloatType type) const {
    const auto [group, num_kv_heads, window, stored, soft_cap, has_sinks] = GetParam();
    return {group * num_kv_heads,
            num_kv_heads,
            HeadDim(20, stored),
            type,
            0.25f,
            window,
            stored,
            soft_cap,
            has_sinks ? SinkScores() : nullptr};
  }

  ThreadPool one_{1}, two_{2}, three_{3}, eight_{8}, sixteen_{16};
  ThreadPool* const pools_[5] = {&one_, &two_, &three_, &eight_, &sixteen_};
};

TEST_P(AttentionToALongContext, HasTheSameBitsOnAnyNumberOfThreadsAndEveryTier) {
  const AttentionShape shape = this->shape(FloatType::kF32);
  for (const int64_t context : kContexts) {
    const PagedSequence sequence(shape, context, 41);
    const int64_t num_rows = std::min<int64_t>(context, 20);
    const int64_t begin = context - num_rows;
    const FloatTensor expected = RowsOf(one_, shape, sequence, begin, context);
    const int64_t last_row = (num_rows - 1) * sequence.row_size();
    for (const Isa isa : SupportedTiers()) {
      const TierScope tier(isa);
      EXPECT_EQ(RowsOf(eight_, shape, sequence, begin, context).bytes(), expected.bytes())
          << IsaName(isa) << " " << context;
      for (ThreadPool* pool : pools_) {
        const FloatTensor decode = RowsOf(*pool, shape, sequence, context - 1, context);

        EXPECT_EQ(decode.bytes(), expected.Slice(last_row, sequence.row_size()))
            << IsaName(isa) << " " << context << " " << pool->num_threads();
      }
    }
  }
}

TEST_P(AttentionToALongContext, MatchesTheReference) {
  for (const FloatType type : {FloatType::kF16, FloatType::kF32}) {
    const AttentionShape shape = this->shape(type);
    const double tolerance = ToleranceOf(shape);
    for (const int64_t context : kContexts) {
      const PagedSequence sequence(shape, context, 43);
      const int64_t begin = std::max<int64_t>(context - 20, 0);
      std::vector<FloatTensor> outputs;
      for (const Isa isa : SupportedTiers()) {
        const TierScope tier(isa);
        outputs.push_back(RowsOf(eight_, shape, sequence, begin, context));
      }
      for (const int64_t position : {begin, context - 1}) {
        for (int64_t head = 0; head < shape.num_query_heads; ++head) {
          const std::vector<double> expected = sequence.Expected(position, head);
          const int64_t first = (position - begin) * sequence.row_size() + head * shape.head_dim;
          for (int64_t i = 0; i < shape.head_dim; ++i) {
            for (const FloatTensor& output : outputs) {
              ASSERT_NEAR(output[first + i], expected[i], tolerance)
                  << "context " << context << " position " << position;
            }
          }
        }
      }
    }
  }
}

TEST_P(AttentionToALongContext, RowsOnBothSidesOfAChunkBoundaryDoNotDependOnTheCall) {
  const AttentionShape shape = this->shape(FloatType::kF16);
  const PagedSequence sequence(shape, 1060, 47);
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    for (const int64_t begin : {500, 1012}) {
      const FloatTensor expected = RowsOf(one_, shape, sequence, begin, begin + 40);
      for (const int64_t num_rows : {1, 7, 25}) {
        for (int64_t row = 0; row < 40; row += num_rows) {
          const int64_t end = std::min<int64_t>(row + num_rows, 40);
          const FloatTensor output = RowsOf(eight_, shape, sequence, begin + row, begin + end);
          ASSERT_EQ(output.bytes(),
                    expected.Slice(row * sequence.row_size(), (end - row) * sequence.row_size()))
              << IsaName(isa) << " rows from " << begin + row;
        }
      }
    }
  }
}

TEST_P(AttentionToALongContext, DoesNotDependOnItsBatch) {
  const AttentionShape shape = this->shape(FloatType::kF16);
  const PagedSequence sequence(shape, 3000, 53);
  const FloatTensor alone = RowsOf(one_, shape, sequence, 2999, 3000);
  const int64_t row_size = sequence.row_size();
  // 28 rows with short contexts, whose tiles are not split, and two rows with the long context.
  std::vector<AttentionRows> rows;
  for (int64_t row = 0; row < 30; ++row) {
    const int64_t position = row == 3 || row == 20 ? 2999 : row * 20;
    rows.push_back(sequence.Rows(position, position + 1, row));
  }
  FloatTensor queries(shape.type, 30 * row_size);
  for (int64_t row = 0; row < 30; ++row) {
    const std::vector<uint8_t> query =
        sequence.queries().Slice(rows[row].first_position * row_size, row_size);
    std::copy(query.begin(), query.end(), queries.data() + row * query.size());
  }
  for (ThreadPool* pool : pools_) {
    FloatTensor output(shape.type, 30 * row_size);

    Attend(*pool, shape, rows, queries.data(), output.data());

    for (const int64_t row : {3, 20}) {
      EXPECT_EQ(output.Slice(row * row_size, row_size), alone.bytes()) << pool->num_threads();
    }
    EXPECT_EQ(output.Slice(29 * row_size, row_size),
              RowsOf(one_, shape, sequence, 580, 581).bytes())
        << pool->num_threads();
  }
}

TEST_P(AttentionToALongContext, SlotsThatARowDoesNotSeeMayContainNaN) {
  const AttentionShape shape = this->shape(FloatType::kF32);
  for (const int64_t position : {512, 1300}) {
    PagedSequence sequence(shape, 1600, 59);
    const FloatTensor before = RowsOf(one_, shape, sequence, position, position + 1);
    sequence.OverwriteHiddenSlots(position);
    for (ThreadPool* pool : pools_) {
      EXPECT_EQ(RowsOf(*pool, shape, sequence, position, position + 1).bytes(), before.bytes())
          << position << " " << pool->num_threads();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionToALongContext,
                         ::testing::Values(LongParameters{2, 1, {}, kFloats, 0.0f, false},
                                           LongParameters{2, 8, {}, kFloats, 0.0f, false},
                                           LongParameters{20, 1, {}, kFloats, 0.0f, false},
                                           LongParameters{2, 1, {}, kInt8, 0.0f, false},
                                           LongParameters{20, 1, {}, kInt8, 0.0f, false},
                                           LongParameters{2, 8, {}, kBF16, 0.0f, false},
                                           LongParameters{2, 8, {}, kInt4, 0.0f, false},
                                           LongParameters{20, 1, {600, 3}, kInt4, 1.5f, true},
                                           LongParameters{20, 1, {600, 3}, kBF16, 1.5f, true},
                                           LongParameters{2, 1, {}, kFloats, 1.5f, false},
                                           LongParameters{20, 1, {600, 3}, kInt8, 1.5f, false},
                                           LongParameters{2, 1, {}, kFloats, 0.0f, true},
                                           LongParameters{20, 1, {}, kInt8, 0.0f, true},
                                           LongParameters{2, 8, {}, kInt8, 1.5f, true},
                                           // Tiles of five, three and two, and one head.
                                           LongParameters{3, 5, {}, kInt4, 0.0f, true},
                                           LongParameters{3, 5, {600, 3}, kBF16, 1.5f, true},
                                           LongParameters{2, 8, {600, 3}, kFloats, 0.0f, true}));
// The sinks and the window are in the same chunk, in adjacent chunks, and far apart.
INSTANTIATE_TEST_SUITE_P(Windows, AttentionToALongContext,
                         ::testing::Values(LongParameters{2, 1, {5, 0}, kFloats, 0.0f, false},
                                           LongParameters{2, 1, {600, 3}, kFloats, 0.0f, false},
                                           LongParameters{2, 1, {40, 530}, kFloats, 0.0f, false},
                                           LongParameters{2, 1, {40, 530}, kInt8, 0.0f, false},
                                           LongParameters{20, 1, {1030, 17}, kFloats, 0.0f, false},
                                           LongParameters{2, 1, {40, 531}, kBF16, 0.0f, false},
                                           LongParameters{20, 1, {1030, 17}, kBF16, 0.0f, false},
                                           LongParameters{2, 1, {40, 531}, kInt4, 0.0f, false},
                                           LongParameters{20, 1, {1030, 17}, kInt4, 0.0f, false},
                                           LongParameters{20, 1, {1030, 17}, kInt8, 0.0f, false}));

TEST(AttentionTasks, OnlyTilesForWhichThreadsWouldWaitAreDivided) {
  AttentionTile tile = {};
  tile.num_rows = tile.num_kv_heads = 1;
  tile.num_heads = 4;
  tile.head_dim = 64;
  tile.last_visible = 4095;  // 8 chunks.
  // Threads, and the whole tiles of eight.
  for (const auto& [num_threads, num_whole] :
       std::vector<std::pair<int, int>>{{1, 8}, {2, 7}, {3, 6}, {5, 4}, {8, 1}, {9, 0}, {64, 0}}) {
    AttentionTasks tasks;
    for (int i = 0; i < 8; ++i) tasks.Add(tile);

    tasks.Divide(num_threads);

    EXPECT_EQ(tasks.size(), num_whole + 8 * (8 - num_whole)) << num_threads;
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  AttentionShape shape{1, 1, 16, FloatType::kF32, 100.0f};
  ThreadPool pool(1);
  for (const Isa isa : SupportedTiers()) {
    const TierScope tier(isa);
    const PagedSequence sequence(shape, 33, 23);

    const FloatTensor output = sequence.OutputOfAll(pool);

    for (int64_t position = 0; position < 33; ++position) {
      const std::vector<double> expected = sequence.Expected(position, 0);
      // Float32 scores of several thousand have an error of about 1e-3.
      for (int64_t i = 0; i < 16; ++i) ASSERT_NEAR(output[position * 16 + i], expected[i], 5e-3);
    }
  }
}

TEST(Attention, RowsOfNoSequenceAreNotWritten) {
  const AttentionShape shape{2, 1, 16, FloatType::kF32, 0.25f};
  ThreadPool pool(1);
  const PagedSequence sequence(shape, 5, 29);
  FloatTensor output(shape.type, std::vector<float>(5 * 32, 7.0f));

  const AttentionRows rows = sequence.Rows(1, 4, 1);
  Attend(pool, shape, {&rows, 1}, sequence.queries().data(), output.data());

  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(output[i], 7.0f);
    EXPECT_EQ(output[4 * 32 + i], 7.0f);
    EXPECT_NE(output[32 + i], 7.0f);
  }
}

}  // namespace
}  // namespace aiomlc
