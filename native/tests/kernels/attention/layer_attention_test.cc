#include "kernels/attention/layer_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/attention/kv_pages.h"
#include "kernels/attention/pass_pieces.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

constexpr AttentionShape kShape{4, 2, 16, FloatType::kF16, 0.25f};
constexpr int64_t kRowSize = 4 * 16;
constexpr int64_t kKvRowSize = 2 * 16;
constexpr int64_t kLength = 37;

/*! \brief A sequence of 37 tokens in pages 3, 0 and 5 of a cache of 8 pages. */
class LayerAttentionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<int32_t> slots;
    for (int32_t position = 0; position < kLength; ++position) {
      slots.push_back(page_ids_[position / 16] * 16 + position % 16);
    }
    AppendToPages({reinterpret_cast<std::byte*>(pages_.data()), 8, 2, 16}, keys_.data(),
                  values_.data(), slots.data(), kLength);
    std::vector<const void*> addresses;
    for (const int32_t id : page_ids_) addresses.push_back(pages_.data() + id * kShape.PageBytes());
    const AttentionRows rows{0, kLength, 0, addresses.data()};
    Attend(pool_, kShape, {&rows, 1}, queries_.data(), expected_.data());
  }

  /*! \return A call for a step with rows [begin, end) of the sequence. */
  AttentionCall Call(int64_t begin, int64_t end) {
    return {kShape, queries_.data() + begin * kRowSize * 2, output_.data() + begin * kRowSize * 2,
            end - begin, positions_.data() + begin};
  }

  NewTokens Tokens(int64_t begin, int64_t end) {
    indptr_ = {0, static_cast<int32_t>(end - begin)};
    history_ = {static_cast<int32_t>(begin)};
    return {1, indptr_.data(), history_.data(), keys_.data() + begin * kKvRowSize * 2,
            values_.data() + begin * kKvRowSize * 2};
  }

  /*! \brief The arrays of `PageSegments`. */
  struct Segment {
    std::vector<int32_t> row_indptr;
    std::vector<int32_t> page_indptr;
    std::vector<int32_t> page_ids;
    std::vector<int32_t> last_length;
    std::vector<int32_t> first_position;
  };

  PageSegments Pages(const Segment& segment) {
    return {static_cast<int64_t>(segment.last_length.size()),
            segment.row_indptr.empty() ? nullptr : segment.row_indptr.data(),
            pages_.data(),
            8,
            segment.page_indptr.data(),
            segment.page_ids.data(),
            static_cast<int64_t>(segment.page_ids.size()),
            segment.last_length.data(),
            segment.first_position.data()};
  }

  void ExpectRows(int64_t begin, int64_t end) {
    EXPECT_EQ(output_.Slice(begin * kRowSize, (end - begin) * kRowSize),
              expected_.Slice(begin * kRowSize, (end - begin) * kRowSize));
  }

  template <typename Function>
  void ExpectFailure(Function function, const std::string& message) {
    try {
      function();
      FAIL() << "expected: " << message;
    } catch (const std::logic_error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }

  std::vector<int32_t> page_ids_{3, 0, 5};
  ThreadPool pool_{2};
  FloatTensor queries_{FloatType::kF16, RandomFloats(kLength * kRowSize, 1)};
  FloatTensor keys_{FloatType::kF16, RandomFloats(kLength * kKvRowSize, 2)};
  FloatTensor values_{FloatType::kF16, RandomFloats(kLength * kKvRowSize, 3)};
  FloatTensor pages_{FloatType::kF16, std::vector<float>(8 * kShape.PageElements(), NAN)};
  FloatTensor expected_{FloatType::kF16, kLength * kRowSize};
  FloatTensor output_{FloatType::kF16, kLength * kRowSize};
  std::vector<int32_t> positions_ = [] {
    std::vector<int32_t> positions(kLength);
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
  }();
  std::vector<int32_t> indptr_;
  std::vector<int32_t> history_;
  LayerAttention layer_;
};

TEST_F(LayerAttentionTest, NewTokensWithoutHistoryAreComputedAtOnce) {
  layer_.Begin();
  layer_.AddNewTokens(pool_, Call(0, kLength), Tokens(0, kLength));

  ExpectRows(0, kLength);
}

TEST_F(LayerAttentionTest, RowsOfAPieceSeeEachOtherInLayersThatSeeWholePieces) {
  // Rows 5 to 20 of a chunk that begins at position 3, and rows of another sequence.
  const std::vector<PieceRows> pieces{{5, 16, nullptr}, {40, 2, nullptr}};
  PassPieces pass;
  pass.num_rows = kLength - 3;
  pass.pieces = pieces;
  std::vector<const void*> addresses;
  for (const int32_t id : page_ids_) addresses.push_back(pages_.data() + id * kShape.PageBytes());
  FloatTensor whole = expected_;
  AttentionRows rows{8, 16, 8, addresses.data()};
  rows.see_each_other = true;
  Attend(pool_, kShape, {&rows, 1}, queries_.data(), whole.data());
  for (const bool sees_whole : {false, true}) {
    LayerSettings settings;
    settings.sees_whole_pieces = sees_whole;
    const LayerAttention::SettingsScope settings_scope(layer_, settings);
    const PassPieces::Scope pieces_scope(pass);
    layer_.Begin();
    layer_.AddNewTokens(pool_, Call(3, kLength), Tokens(3, kLength));
    layer_.AddPages(pool_, Call(3, kLength), Pages({{0, 34}, {0, 1}, page_ids_, {3}, {0}}));

    EXPECT_EQ(output_.Slice(3 * kRowSize, 34 * kRowSize),
              (sees_whole ? whole : expected_).Slice(3 * kRowSize, 34 * kRowSize));
  }
  EXPECT_NE(whole.Slice(8 * kRowSize, kRowSize), expected_.Slice(8 * kRowSize, kRowSize));
}

TEST_F(LayerAttentionTest, AChunkAfterAnyHistoryHasTheBitsOfAnUnchunkedPrefill) {
  for (int32_t begin = 1; begin < kLength; ++begin) {
    const int32_t num_pages = (begin + 15) / 16;
    std::fill_n(output_.data(), output_.bytes().size(), uint8_t{0});

    layer_.Begin();
    layer_.AddNewTokens(pool_, Call(begin, kLength), Tokens(begin, kLength));
    layer_.AddPages(pool_, Call(begin, kLength),
                    Pages({{0, static_cast<int32_t>(kLength) - begin},
                           {0, num_pages},
                           page_ids_,
                           {begin - 16 * (num_pages - 1)},
                           {0}}));
    layer_.CheckMerge();
    layer_.CheckAppend();

    ExpectRows(begin, kLength);
  }
}

TEST_F(LayerAttentionTest, ReservedSlotsOfNewTokensAreNotReadFromThePages) {
  layer_.Begin();
  layer_.AddNewTokens(pool_, Call(18, kLength), Tokens(18, kLength));
  layer_.AddPages(pool_, Call(18, kLength), Pages({{0, 19}, {0, 3}, page_ids_, {5}, {0}}));

  ExpectRows(18, kLength);
}

TEST_F(LayerAttentionTest, TheResultOfAllDepthsIsWrittenToTheFirstOutput) {
  layer_.Begin();
  layer_.AddNewTokens(pool_, Call(36, 37), Tokens(36, 37));
  AttentionCall other = Call(36, 37);
  FloatTensor unused(FloatType::kF16, kRowSize);
  other.output = unused.data();
  const FloatTensor untouched = unused;
  layer_.AddPages(pool_, other, Pages({{0, 1}, {0, 1}, {3}, {16}, {0}}));
  layer_.CheckMerge();
  layer_.AddPages(pool_, other, Pages({{0, 1}, {0, 2}, {0, 5}, {4}, {16}}));
  layer_.CheckMerge();

  ExpectRows(36, 37);
  EXPECT_EQ(unused.bytes(), untouched.bytes());
}

TEST_F(LayerAttentionTest, DecodedRowsReadTheirNewTokenFromThePages) {
  layer_.Begin();
  layer_.CheckAppend();
  layer_.AddPages(pool_, Call(20, 21), Pages({{}, {0, 2}, page_ids_, {5}, {0}}));

  ExpectRows(20, 21);
}

TEST_F(LayerAttentionTest, ForksCanShareASegment) {
  // Two forks at positions 20 and 36 share page 3; their other pages are not shared.
  FloatTensor queries(FloatType::kF16, 2 * kRowSize);
  std::memcpy(queries.data(), queries_.data() + 20 * kRowSize * 2, kRowSize * 2);
  std::memcpy(queries.data() + kRowSize * 2, queries_.data() + 36 * kRowSize * 2, kRowSize * 2);
  const std::vector<int32_t> positions{20, 36};
  FloatTensor output(FloatType::kF16, 2 * kRowSize);
  const AttentionCall call{kShape, queries.data(), output.data(), 2, positions.data()};

  layer_.Begin();
  layer_.AddPages(pool_, call, Pages({{0, 2}, {0, 1}, {3}, {16}, {0}}));
  layer_.AddPages(pool_, call, Pages({{}, {0, 1, 3}, {0, 0, 5}, {5, 5}, {16, 16}}));

  EXPECT_EQ(output.Slice(0, kRowSize), expected_.Slice(20 * kRowSize, kRowSize));
  EXPECT_EQ(output.Slice(kRowSize, kRowSize), expected_.Slice(36 * kRowSize, kRowSize));
}

TEST_F(LayerAttentionTest, UnexpectedCallsThrow) {
  const Segment half_of_sequence{{0, 1}, {0, 1}, {3}, {16}, {0}};
  const Segment wrong_start{{0, 2}, {0, 1}, {3}, {16}, {8}};
  const Segment gap{{0, 2}, {0, 1}, {3}, {16}, {16}};
  const Segment unknown_page{{0, 2}, {0, 1}, {8}, {16}, {0}};
  const Segment beyond_table{{0, 2}, {0, 2}, {3}, {16}, {0}};
  const auto begin = [&] {
    layer_.Begin();
    layer_.AddNewTokens(pool_, Call(32, 34), Tokens(32, 34));
  };

  begin();
  ExpectFailure([&] { layer_.AddPages(pool_, Call(32, 34), Pages(half_of_sequence)); },
                "only some rows of a sequence");
  begin();
  ExpectFailure([&] { layer_.AddPages(pool_, Call(32, 34), Pages(wrong_start)); },
                "got position 8");
  begin();
  ExpectFailure([&] { layer_.AddPages(pool_, Call(32, 34), Pages(gap)); }, "got position 16");
  begin();
  ExpectFailure([&] { layer_.AddPages(pool_, Call(32, 34), Pages(unknown_page)); }, "page id");
  begin();
  ExpectFailure([&] { layer_.AddPages(pool_, Call(32, 34), Pages(beyond_table)); }, "page_indptr");
  begin();
  ExpectFailure([&] { layer_.AddPages(pool_, Call(32, 33), Pages(gap)); },
                "must have the same queries");
  begin();
  ExpectFailure([&] { layer_.CheckAppend(); }, "append was called before the pages were complete");
  begin();
  ExpectFailure([&] { layer_.Begin(); }, "previous layer were never complete");
  layer_.Begin();
  ExpectFailure([&] { layer_.CheckMerge(); }, "before any segment");
  ExpectFailure([&] { layer_.AddPages(pool_, Call(20, 21), Pages(gap)); }, "called before Begin");
  positions_[33] = 40;
  layer_.Begin();
  ExpectFailure([&] { layer_.AddNewTokens(pool_, Call(32, 34), Tokens(32, 34)); },
                "positions of a sequence must be consecutive");
}

TEST_F(LayerAttentionTest, ALayerAfterAFailedLayerIsComputed) {
  layer_.Begin();
  layer_.AddNewTokens(pool_, Call(32, 34), Tokens(32, 34));
  ExpectFailure([&] { layer_.CheckAppend(); }, "append");

  layer_.Begin();
  layer_.AddNewTokens(pool_, Call(0, kLength), Tokens(0, kLength));

  ExpectRows(0, kLength);
}

TEST_F(LayerAttentionTest, PagesOfLargerHeadsGiveTheSameBits) {
  const size_t stride = 2 * kShape.PageBytes() + 32;
  std::vector<std::byte> pages(8 * stride);
  for (size_t page = 0; page < 8; ++page) {
    std::memcpy(pages.data() + page * stride, pages_.data() + page * kShape.PageBytes(),
                kShape.PageBytes());
  }
  const Segment history{{0, kLength - 20}, {0, 2}, page_ids_, {4}, {0}};
  PageSegments segments = Pages(history);
  segments.pages = pages.data();
  segments.page_stride = stride;

  layer_.Begin();
  layer_.AddNewTokens(pool_, Call(20, kLength), Tokens(20, kLength));
  layer_.AddPages(pool_, Call(20, kLength), segments);

  ExpectRows(20, kLength);
}

TEST(KvPages, WholePagesAreCopiedWhateverHeadsTheyHold) {
  const FloatTensor keys(FloatType::kF32, RandomFloats(8, 1));
  const FloatTensor values(FloatType::kF32, RandomFloats(8, 2));
  FloatTensor pages(FloatType::kF32, 3 * 2 * 2 * 16 * 4);
  FloatTensor read_keys(FloatType::kF32, 8), read_values(FloatType::kF32, 8);
  const KvPages all{reinterpret_cast<std::byte*>(pages.data()), 3, 2, 4, KvType::kF32};
  KvPages layer{all.data, 3, 1, 8, KvType::kF32, all.PageBytes()};
  const int32_t slot = 2 * 16 + 15, copied = 15;

  AppendToPages(layer, keys.data(), values.data(), &slot, 1);
  CopyWholePage(all, 2, 0);
  ReadFromPages(layer, &copied, 1, read_keys.data(), read_values.data());

  EXPECT_EQ(read_keys.bytes(), keys.bytes());
  EXPECT_EQ(read_values.bytes(), values.bytes());
}

TEST(KvPages, CopiedTokensAreReadBackUnchanged) {
  FloatTensor pages(FloatType::kF32, 3 * 2 * 2 * 16 * 4);
  const KvPages all{reinterpret_cast<std::byte*>(pages.data()), 3, 2, 4, KvType::kF32};
  const FloatTensor keys(FloatType::kF32, RandomFloats(3 * 8, 1));
  const FloatTensor values(FloatType::kF32, RandomFloats(3 * 8, 2));
  const std::vector<int32_t> slots{47, -1, 16};
  const std::vector<int32_t> targets{5, 40};
  const std::vector<int32_t> sources{47, 16};
  FloatTensor read_keys(FloatType::kF32, 2 * 8);
  FloatTensor read_values(FloatType::kF32, 2 * 8);

  AppendToPages(all, keys.data(), values.data(), slots.data(), 3);
  CopySlots(all, sources.data(), targets.data(), 2);
  CopyPage(all, 2, 1, 9);
  ReadFromPages(all, targets.data(), 1, read_keys.data(), read_values.data());
  EXPECT_EQ(read_keys.Slice(0, 8), keys.Slice(0, 8));
  EXPECT_EQ(read_values.Slice(0, 8), values.Slice(0, 8));

  const std::vector<int32_t> copied{
      24};  // Slot 8 of page 1 is a copy of slot 40, which is slot 8 of page 2.
  ReadFromPages(all, copied.data(), 1, read_keys.data(), read_values.data());
  EXPECT_EQ(read_keys.Slice(0, 8), keys.Slice(16, 8));
  EXPECT_EQ(read_values.Slice(0, 8), values.Slice(16, 8));

  const std::vector<int32_t> not_copied{31};
  ReadFromPages(all, not_copied.data(), 1, read_keys.data(), read_values.data());
  EXPECT_EQ(read_keys.Slice(0, 8), std::vector<uint8_t>(32, 0));
}

TEST(KvPages, ScalesAreCopiedWithInt8Tokens) {
  constexpr size_t kRow = 2 * KvRowBytes(KvType::kI8, 6);
  std::vector<std::byte> pages(3 * 2 * 16 * kRow);
  const KvPages all{pages.data(), 3, 2, 6, KvType::kI8};
  std::vector<std::byte> keys(2 * kRow), values(2 * kRow), read_keys(kRow), read_values(kRow);
  for (size_t i = 0; i < 2 * kRow; ++i) {
    keys[i] = std::byte(i + 1);
    values[i] = std::byte(i + 101);
  }
  const std::vector<int32_t> slots{47, 16};
  const std::vector<int32_t> targets{5, 40};
  const std::vector<int32_t> copied{
      5, 24};  // Slot 8 of page 1 is a copy of slot 40, which is slot 8 of page 2.

  AppendToPages(all, keys.data(), values.data(), slots.data(), 2);
  CopySlots(all, slots.data(), targets.data(), 2);
  CopyPage(all, 2, 1, 9);

  EXPECT_EQ(all.PageBytes(), 2 * 16 * kRow);
  for (size_t i = 0; i < 2; ++i) {
    ReadFromPages(all, &copied[i], 1, read_keys.data(), read_values.data());
    EXPECT_TRUE(std::equal(read_keys.begin(), read_keys.end(), keys.begin() + i * kRow));
    EXPECT_TRUE(std::equal(read_values.begin(), read_values.end(), values.begin() + i * kRow));
  }
  const int32_t not_copied = 31;
  ReadFromPages(all, &not_copied, 1, read_keys.data(), read_values.data());
  EXPECT_EQ(read_keys, std::vector<std::byte>(kRow));
}

TEST(KvPages, TokensOf4BitsLeaveTheirNeighborsUnchanged) {
  constexpr size_t kRow = KvRowBytes(KvType::kI4, 32);
  std::vector<std::byte> pages(2 * 2 * 16 * kRow, std::byte{0xa5});
  const KvPages all{pages.data(), 2, 1, 32, KvType::kI4};
  std::vector<std::byte> keys(16 * kRow), values(16 * kRow), read_keys(kRow), read_values(kRow);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = std::byte(7 * i + 1);
    values[i] = std::byte(11 * i + 3);
  }
  const std::vector<int32_t> order{3, 2, 15, 0, 1, 9, 8, 14, 5, 4, 7, 6, 13, 12, 10, 11};

  AppendToPages(all, keys.data(), values.data(), order.data(), 16);
  CopyPage(all, 0, 1, 7);
  const int32_t source = 9, target = 24;
  CopySlots(all, &source, &target, 1);

  EXPECT_EQ(all.PageBytes(), 2 * 16 * kRow);
  const auto expect_token = [&](int32_t slot, int32_t original) {
    const auto token = std::find(order.begin(), order.end(), original) - order.begin();
    ReadFromPages(all, &slot, 1, read_keys.data(), read_values.data());
    EXPECT_TRUE(std::equal(read_keys.begin(), read_keys.end(), keys.begin() + token * kRow));
    EXPECT_TRUE(std::equal(read_values.begin(), read_values.end(), values.begin() + token * kRow));
  };
  for (int32_t slot = 0; slot < 16; ++slot) expect_token(slot, slot);
  for (int32_t slot = 0; slot < 7; ++slot) expect_token(16 + slot, slot);
  expect_token(target, source);
}

}  // namespace
}  // namespace aiomlc
