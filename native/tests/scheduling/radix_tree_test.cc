#include "scheduling/radix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

namespace aiomlc {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

using Tokens = std::vector<int32_t>;

/*! \brief The same by comparing with every row. */
class ListOfRows {
 public:
  static int64_t CountCommon(const Tokens& a, const Tokens& b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  }
  static bool BeginsWith(const Tokens& row, const Tokens& beginning) {
    return CountCommon(row, beginning) == static_cast<int64_t>(beginning.size());
  }

  int64_t Longest(const Tokens& tokens) const {
    int64_t longest = 0;
    for (const auto& [id, row] : rows) longest = std::max(longest, CountCommon(row, tokens));
    return longest;
  }
  template <typename Condition>
  std::vector<int64_t> Others(int64_t id, Condition condition) const {
    std::vector<int64_t> others;
    for (const auto& [other, row] : rows) {
      if (other != id && condition(row, rows.at(id))) others.push_back(other);
    }
    return others;
  }

  std::map<int64_t, Tokens> rows;
};

TEST(RadixTree, FindsTheLongestBeginning) {
  RadixTree tree;
  tree.Insert(1, Tokens{1, 2, 3, 4});
  tree.Insert(2, Tokens{1, 2, 5});

  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 3, 9}).num_tokens, 3);
  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 3, 9}).id, 1);
  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 5, 6}).num_tokens, 3);
  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 5, 6}).id, 2);
  EXPECT_EQ(tree.FindLongest(Tokens{1}).num_tokens, 1);
  EXPECT_EQ(tree.FindLongest(Tokens{2}).num_tokens, 0);
  EXPECT_EQ(tree.FindLongest(Tokens{}).num_tokens, 0);
}

TEST(RadixTree, KnowsWhichRowsContinueWhich) {
  RadixTree tree;
  tree.Insert(1, Tokens{1, 2, 3});
  tree.Insert(2, Tokens{1, 2});
  tree.Insert(3, Tokens{1, 2, 3});
  tree.Insert(4, Tokens{1, 4});

  EXPECT_THAT(tree.PrefixesOf(1), UnorderedElementsAre(2, 3));
  EXPECT_THAT(tree.ExtensionsOf(2), UnorderedElementsAre(1, 3));
  EXPECT_THAT(tree.ExtensionsOf(4), IsEmpty());
}

TEST(RadixTree, ForgetsARowAndKeepsTheOthers) {
  RadixTree tree;
  tree.Insert(1, Tokens{1, 2, 3});
  tree.Insert(2, Tokens{1, 2});
  tree.Remove(2);

  EXPECT_FALSE(tree.Contains(2));
  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 9}).id, 1);
  tree.Remove(1);
  EXPECT_EQ(tree.FindLongest(Tokens{1}).num_tokens, 0);
  EXPECT_EQ(tree.size(), 0u);
}

TEST(RadixTree, RefusesWhatItCannotKeepApart) {
  RadixTree tree;
  tree.Insert(1, Tokens{1});

  EXPECT_THROW(tree.Insert(1, Tokens{2}), std::logic_error);
  EXPECT_THROW(tree.Insert(2, Tokens{}), std::logic_error);
  EXPECT_THROW(tree.Remove(3), std::logic_error);
}

TEST(RadixTree, SaysWhatAListOfRowsSaysAfterAnyChanges) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    RadixTree tree;
    ListOfRows list;
    // Few different tokens make many common beginnings; rows that continue others make more.
    const auto any_tokens = [&](size_t least) {
      Tokens tokens;
      if (!list.rows.empty() && random() % 2 == 0) {
        const Tokens& row = std::next(list.rows.begin(), random() % list.rows.size())->second;
        tokens.assign(row.begin(), row.begin() + random() % (row.size() + 1));
      }
      for (size_t count = random() % 6; count > 0 || tokens.size() < least; count -= count > 0) {
        tokens.push_back(static_cast<int32_t>(random() % (2 + seed)));
      }
      return tokens;
    };
    for (int64_t step = 0; step < 5000; ++step) {
      const bool grows = (step / 500) % 2 == 0;
      if (list.rows.empty() || random() % 10 < (grows ? 7 : 3)) {
        const Tokens tokens = any_tokens(1);
        tree.Insert(step, tokens);
        list.rows.emplace(step, tokens);
      } else {
        const auto row = std::next(list.rows.begin(), random() % list.rows.size());
        tree.Remove(row->first);
        list.rows.erase(row);
      }
      ASSERT_THAT(tree.FindViolations(), IsEmpty());
      ASSERT_EQ(tree.size(), list.rows.size());

      const Tokens tokens = any_tokens(0);
      const PrefixMatch match = tree.FindLongest(tokens);
      ASSERT_EQ(match.num_tokens, list.Longest(tokens));
      if (match.num_tokens > 0) {
        ASSERT_EQ(ListOfRows::CountCommon(list.rows.at(match.id), tokens), match.num_tokens);
      }
      if (list.rows.empty()) continue;
      const int64_t id = std::next(list.rows.begin(), random() % list.rows.size())->first;
      ASSERT_THAT(tree.PrefixesOf(id),
                  UnorderedElementsAreArray(list.Others(id, [](const Tokens& a, const Tokens& b) {
                    return ListOfRows::BeginsWith(b, a);
                  })));
      ASSERT_THAT(tree.ExtensionsOf(id),
                  UnorderedElementsAreArray(list.Others(id, ListOfRows::BeginsWith)));
    }
  }
}

}  // namespace
}  // namespace aiomlc
