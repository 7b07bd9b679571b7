#include "text/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <random>

namespace aiomlc {
namespace {

/*! \brief The letters a to d are tokens 0 to 3; other bytes have no token. */
std::array<int32_t, 256> FourLetters() {
  std::array<int32_t, 256> bytes;
  bytes.fill(-1);
  for (int32_t i = 0; i < 4; ++i) bytes[static_cast<size_t>('a' + i)] = i;
  return bytes;
}

const std::vector<Merge> kMerges = {{1, 2, 4}, {0, 1, 5}, {4, 3, 6}, {0, 4, 7}, {5, 6, 8}};

/*! \brief The definition: repeatedly merge the first pair with the best rank. */
std::vector<int32_t> EncodeByDefinition(const std::string& text) {
  std::vector<int32_t> ids;
  for (char letter : text) ids.push_back(letter - 'a');
  while (true) {
    size_t best_rank = kMerges.size();
    size_t best_position = 0;
    for (size_t position = 0; position + 1 < ids.size(); ++position) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (kMerges[rank].left != ids[position] || kMerges[rank].right != ids[position + 1])
          continue;
        best_rank = rank;
        best_position = position;
      }
    }
    if (best_rank == kMerges.size()) return ids;
    ids[best_position] = kMerges[best_rank].merged;
    ids.erase(ids.begin() + static_cast<int64_t>(best_position) + 1);
  }
}

TEST(BytePairEncoder, MergesTheBestPairFirst) {
  const BytePairEncoder encoder(kMerges, {}, FourLetters());

  EXPECT_EQ(encoder.Encode("abc"), (std::vector<int32_t>{7}));
  EXPECT_EQ(encoder.Encode("abbcd"), (std::vector<int32_t>{8}));
  EXPECT_EQ(encoder.Encode(""), (std::vector<int32_t>{}));
}

TEST(BytePairEncoder, MatchesTheDefinition) {
  const BytePairEncoder encoder(kMerges, {}, FourLetters());
  std::mt19937 random(5);

  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 12, 'a');
    for (char& letter : text) letter = static_cast<char>('a' + random() % 4);
    EXPECT_EQ(encoder.Encode(text), EncodeByDefinition(text)) << text;
  }
}

TEST(BytePairEncoder, PrefersCharactersToBytes) {
  std::array<int32_t, 256> bytes;
  for (int32_t i = 0; i < 256; ++i) bytes[static_cast<size_t>(i)] = 100 + i;
  const BytePairEncoder encoder({{0, 1, 2}}, {{"é", 0}, {"x", 1}}, bytes);

  EXPECT_EQ(encoder.Encode("éx"), (std::vector<int32_t>{2}));
  EXPECT_EQ(encoder.Encode("è"), (std::vector<int32_t>{100 + 0xC3, 100 + 0xA8}));
}

TEST(BytePairEncoder, SplitsIncompleteCharactersIntoBytes) {
  std::array<int32_t, 256> bytes;
  for (int32_t i = 0; i < 256; ++i) bytes[static_cast<size_t>(i)] = i;
  const BytePairEncoder encoder({}, {}, bytes);

  EXPECT_EQ(encoder.Encode("\xF0\x9F"), (std::vector<int32_t>{0xF0, 0x9F}));
  EXPECT_EQ(encoder.Encode("\x80"), (std::vector<int32_t>{0x80}));
}

}  // namespace
}  // namespace aiomlc
