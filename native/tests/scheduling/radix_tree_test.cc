#include "scheduling/radix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>

#include "tests/doubles/failing_allocation.h"

namespace aiomlc {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;

using Tokens = std::vector<int32_t>;

/*! \brief A reference implementation by linear search. */
class SequenceList {
 public:
  static int64_t CountCommon(const Tokens& a, const Tokens& b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  }
  static bool StartsWith(const Tokens& tokens, const Tokens& prefix) {
    return CountCommon(tokens, prefix) == static_cast<int64_t>(prefix.size());
  }

  int64_t Longest(const Tokens& tokens) const {
    int64_t longest = 0;
    for (const auto& [id, entry] : sequences)
      longest = std::max(longest, CountCommon(entry, tokens));
    return longest;
  }
  template <typename Condition>
  std::vector<int64_t> Others(int64_t id, Condition condition) const {
    std::vector<int64_t> others;
    for (const auto& [other, entry] : sequences) {
      if (other != id && condition(entry, sequences.at(id))) others.push_back(other);
    }
    return others;
  }

  std::map<int64_t, Tokens> sequences;
};

TEST(RadixTree, FindsTheLongestCommonPrefix) {
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

TEST(RadixTree, FindsPrefixesAndExtensions) {
  RadixTree tree;
  tree.Insert(1, Tokens{1, 2, 3});
  tree.Insert(2, Tokens{1, 2});
  tree.Insert(3, Tokens{1, 2, 3});
  tree.Insert(4, Tokens{1, 4});

  EXPECT_THAT(tree.PrefixesOf(1), UnorderedElementsAre(2, 3));
  EXPECT_THAT(tree.ExtensionsOf(2), UnorderedElementsAre(1, 3));
  EXPECT_THAT(tree.ExtensionsOf(4), IsEmpty());
}

TEST(RadixTree, RemovesOneSequenceAndKeepsTheOthers) {
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

TEST(RadixTree, RejectsDuplicateEmptyAndUnknownSequences) {
  RadixTree tree;
  tree.Insert(1, Tokens{1});

  EXPECT_THROW(tree.Insert(1, Tokens{2}), std::logic_error);
  EXPECT_THROW(tree.Insert(2, Tokens{}), std::logic_error);
  EXPECT_THROW(tree.Remove(3), std::logic_error);
}

TEST(RadixTree, MatchesALinearSearchAfterRandomChanges) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 random(seed);
    RadixTree tree;
    SequenceList list;
    // A small vocabulary, and sequences that extend others, give many common prefixes.
    const auto random_tokens = [&](size_t min_size) {
      Tokens tokens;
      if (!list.sequences.empty() && random() % 2 == 0) {
        const Tokens& entry =
            std::next(list.sequences.begin(), random() % list.sequences.size())->second;
        tokens.assign(entry.begin(), entry.begin() + random() % (entry.size() + 1));
      }
      for (size_t count = random() % 6; count > 0 || tokens.size() < min_size; count -= count > 0) {
        tokens.push_back(static_cast<int32_t>(random() % (2 + seed)));
      }
      return tokens;
    };
    for (int64_t step = 0; step < 5000; ++step) {
      const bool is_growing = (step / 500) % 2 == 0;
      if (list.sequences.empty() || random() % 10 < (is_growing ? 7 : 3)) {
        const Tokens tokens = random_tokens(1);
        tree.Insert(step, tokens);
        list.sequences.emplace(step, tokens);
      } else {
        const auto entry = std::next(list.sequences.begin(), random() % list.sequences.size());
        tree.Remove(entry->first);
        list.sequences.erase(entry);
      }
      ASSERT_THAT(tree.FindViolations(), IsEmpty());
      ASSERT_EQ(tree.size(), list.sequences.size());

      const Tokens tokens = random_tokens(0);
      const PrefixMatch match = tree.FindLongest(tokens);
      ASSERT_EQ(match.num_tokens, list.Longest(tokens));
      if (match.num_tokens > 0) {
        ASSERT_EQ(SequenceList::CountCommon(list.sequences.at(match.id), tokens), match.num_tokens);
      }
      if (list.sequences.empty()) continue;
      const int64_t id = std::next(list.sequences.begin(), random() % list.sequences.size())->first;
      ASSERT_THAT(tree.PrefixesOf(id),
                  UnorderedElementsAreArray(list.Others(id, [](const Tokens& a, const Tokens& b) {
                    return SequenceList::StartsWith(b, a);
                  })));
      ASSERT_THAT(tree.ExtensionsOf(id),
                  UnorderedElementsAreArray(list.Others(id, SequenceList::StartsWith)));
    }
  }
}

TEST(RadixTree, NodesThatWereNotMergedForWantOfMemoryAreRemoved) {
  RadixTree tree;
  tree.Insert(1, Tokens{1, 2});
  tree.Insert(2, Tokens{1, 2, 3, 4, 5, 6, 7, 8});
  {
    const FailingAllocation failure(0);
    tree.Remove(1);
    ASSERT_TRUE(FailingAllocation::has_failed());
  }
  EXPECT_THAT(tree.FindViolations(), IsEmpty());
  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 9}).id, 2);

  tree.Remove(2);
  EXPECT_THAT(tree.FindViolations(), IsEmpty());
  EXPECT_EQ(tree.FindLongest(Tokens{1, 2, 9}).num_tokens, 0);
}

}  // namespace
}  // namespace aiomlc
