// The identity of prefixes: equal positions, and the radix tree and prefix cache keyed by it.
#include "prompt/prefix_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "scheduling/prefix_cache.h"
#include "scheduling/radix_tree.h"
#include "tests/doubles/failing_allocation.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;
using Pieces = std::vector<PieceKey>;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

PieceKey Piece(int64_t begin, int64_t num_positions, uint8_t content) {
  PieceKey piece{begin, num_positions, {}};
  piece.digest.fill(content);
  return piece;
}

/*! \brief A prefix that owns its keys. */
struct Prefix {
  std::string adapter;
  Tokens tokens;
  Pieces pieces;

  PrefixKey key() const { return {adapter, tokens, pieces}; }
  PrefixKey First(size_t count) const { return key().First(count); }
};

/*! \brief The key of one position, as the definition of equality. */
using PositionKey = std::pair<int32_t, std::optional<PieceKey>>;

std::vector<PositionKey> PositionsOf(const Prefix& prefix) {
  std::vector<PositionKey> positions;
  for (int32_t token : prefix.tokens) positions.emplace_back(token, std::nullopt);
  for (const PieceKey& piece : prefix.pieces) {
    for (int64_t at = piece.begin; at < piece.end(); ++at) {
      if (at < static_cast<int64_t>(positions.size()))
        positions[static_cast<size_t>(at)].second = piece;
    }
  }
  return positions;
}

size_t CountEqual(const Prefix& a, const Prefix& b) {
  if (a.adapter != b.adapter) return 0;
  const std::vector<PositionKey> left = PositionsOf(a), right = PositionsOf(b);
  size_t count = 0;
  while (count < left.size() && count < right.size() && left[count] == right[count]) ++count;
  return count;
}

/*! \brief Prefixes with few tokens, contents and adapters, so that many have a common beginning. */
class RandomPrefixes {
 public:
  explicit RandomPrefixes(uint32_t seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  /*! \param base Its first positions are copied, in half of the cases. */
  Prefix Next(const Prefix* base) {
    Prefix prefix;
    prefix.adapter = std::vector<std::string>{"", "", "a", "b"}[Below(4)];
    if (base != nullptr && Below(2) == 0) {
      prefix = *base;
      prefix.tokens.resize(Below(base->tokens.size() + 1));
      std::erase_if(prefix.pieces, [&](const PieceKey& piece) {
        return piece.begin >= static_cast<int64_t>(prefix.tokens.size());
      });
      // A prefix may end within a piece; what follows is then the rest of the piece.
      if (!prefix.pieces.empty()) {
        while (static_cast<int64_t>(prefix.tokens.size()) < prefix.pieces.back().end() &&
               Below(4) > 0)
          prefix.tokens.push_back(kPlaceholder);
        if (static_cast<int64_t>(prefix.tokens.size()) < prefix.pieces.back().end())
          return NonEmpty(prefix);
      }
    }
    for (size_t count = Below(4); count > 0; --count) Append(&prefix);
    return NonEmpty(prefix);
  }

 private:
  static constexpr int32_t kPlaceholder = 0;

  void Append(Prefix* prefix) {
    if (Below(3) > 0) {
      prefix->tokens.push_back(static_cast<int32_t>(Below(3)));
      return;
    }
    const PieceKey piece =
        Piece(static_cast<int64_t>(prefix->tokens.size()), static_cast<int64_t>(1 + Below(3)),
              static_cast<uint8_t>(Below(2)));
    prefix->pieces.push_back(piece);
    prefix->tokens.resize(prefix->tokens.size() + static_cast<size_t>(piece.num_positions),
                          kPlaceholder);
  }

  Prefix NonEmpty(Prefix prefix) {
    while (prefix.tokens.empty()) Append(&prefix);
    return prefix;
  }

  std::mt19937 random_;
};

TEST(PrefixKey, PositionsAreEqualIfTokensAndPiecesAre) {
  const Prefix cat{"", {1, 0, 0, 2}, {Piece(1, 2, 'c')}};
  const Prefix dog{"", {1, 0, 0, 2}, {Piece(1, 2, 'd')}};
  const Prefix text{"", {1, 0, 0, 2}, {}};
  const Prefix longer{"", {1, 0, 0, 0}, {Piece(1, 3, 'c')}};

  EXPECT_EQ(CountCommon(cat.key(), cat.key()), 4u);
  EXPECT_EQ(CountCommon(cat.key(), dog.key()), 1u);
  EXPECT_EQ(CountCommon(cat.key(), text.key()), 1u);
  EXPECT_EQ(CountCommon(cat.key(), longer.key()), 1u);
  EXPECT_EQ(CountCommon(cat.First(2), cat.key()), 2u) << "within a piece";
  EXPECT_EQ(CountCommon(cat.First(1), dog.key()), 1u);
}

TEST(PrefixKey, AdaptersHaveNoCommonPrefix) {
  const Prefix plain{"", {1, 2, 3}, {}}, adapted{"a", {1, 2, 3}, {}}, other{"b", {1, 2, 3}, {}};

  EXPECT_EQ(CountCommon(plain.key(), adapted.key()), 0u);
  EXPECT_EQ(CountCommon(adapted.key(), other.key()), 0u);
  EXPECT_EQ(CountCommon(adapted.key(), adapted.key()), 3u);
}

TEST(PrefixKey, CommonPositionsAreThoseOfTheDefinition) {
  RandomPrefixes prefixes(1);
  size_t num_partial = 0;
  for (int i = 0; i < 20000; ++i) {
    const Prefix a = prefixes.Next(nullptr);
    const Prefix b = prefixes.Next(&a);
    const size_t count = CountEqual(a, b);
    ASSERT_EQ(CountCommon(a.key(), b.key()), count);
    for (size_t length = 0; length <= a.tokens.size(); ++length) {
      ASSERT_EQ(CountCommon(a.First(length), b.key()), std::min(length, count));
    }
    num_partial += count > 0 && count < std::min(a.tokens.size(), b.tokens.size());
  }
  EXPECT_GT(num_partial, 1000u) << "the prefixes are too different to test anything";
}

TEST(RadixTree, PiecesAndAdaptersMatchALinearSearchAfterRandomChanges) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    RandomPrefixes prefixes(seed);
    RadixTree tree;
    std::map<int64_t, Prefix> entries;
    const auto random_entry = [&] {
      return std::next(entries.begin(),
                       static_cast<std::ptrdiff_t>(prefixes.Below(entries.size())));
    };
    const auto next = [&] {
      return prefixes.Next(entries.empty() ? nullptr : &random_entry()->second);
    };
    const auto others = [&](int64_t id, bool are_prefixes) {
      std::vector<int64_t> ids;
      const Prefix& self = entries.at(id);
      for (const auto& [other, entry] : entries) {
        const size_t size = (are_prefixes ? entry : self).tokens.size();
        if (other != id && CountEqual(self, entry) == size) ids.push_back(other);
      }
      return ids;
    };
    for (int64_t step = 0; step < 3000; ++step) {
      const bool is_growing = (step / 300) % 2 == 0;
      if (entries.empty() || prefixes.Below(10) < (is_growing ? 7 : 3)) {
        Prefix prefix = next();
        tree.Insert(step, prefix.key());
        entries.emplace(step, std::move(prefix));
      } else {
        const auto entry = random_entry();
        tree.Remove(entry->first);
        entries.erase(entry);
      }
      ASSERT_THAT(tree.FindViolations(), IsEmpty());

      const Prefix wanted = next();
      size_t longest = 0;
      for (const auto& [id, entry] : entries)
        longest = std::max(longest, CountEqual(entry, wanted));
      const PrefixMatch match = tree.FindLongest(wanted.key());
      ASSERT_EQ(match.num_tokens, static_cast<int64_t>(longest));
      if (longest > 0) {
        ASSERT_EQ(CountEqual(entries.at(match.id), wanted), longest);
      }
      if (entries.empty()) continue;
      const int64_t id = random_entry()->first;
      ASSERT_THAT(tree.PrefixesOf(id), UnorderedElementsAreArray(others(id, true)));
      ASSERT_THAT(tree.ExtensionsOf(id), UnorderedElementsAreArray(others(id, false)));
    }
  }
}

TEST(RadixTree, ALackOfMemoryChangesNoSequenceWithPieces) {
  const Prefix cat{"a", {1, 0, 0, 2}, {Piece(1, 2, 'c')}};
  const Prefix same_start{"a", {1, 0, 0, 3}, {Piece(1, 2, 'c')}};
  int num_failures = 0;
  for (bool has_failed = true; has_failed; ++num_failures) {
    RadixTree tree;
    tree.Insert(1, cat.key());
    {
      const FailingAllocation failure(num_failures);
      try {
        tree.Insert(2, same_start.key());
      } catch (const std::bad_alloc&) {
      }
      has_failed = FailingAllocation::has_failed();
    }
    ASSERT_EQ(tree.Contains(2), !has_failed);
    ASSERT_EQ(tree.FindLongest(cat.key()).num_tokens, 4);
    ASSERT_EQ(tree.FindLongest(same_start.key()).num_tokens, has_failed ? 3 : 4);
  }
  EXPECT_GT(num_failures, 3);
}

TEST(PrefixCache, EntriesOfOtherPiecesOrAdaptersAreNotRedundant) {
  PrefixCache cache(-1);
  const std::vector<Prefix> prefixes = {{"", {1, 0, 0}, {}},
                                        {"", {1, 0, 0}, {Piece(1, 2, 'c')}},
                                        {"", {1, 0, 0}, {Piece(1, 2, 'd')}},
                                        {"a", {1, 0, 0}, {Piece(1, 2, 'c')}}};
  int64_t id = 0;
  for (const Prefix& prefix : prefixes)
    EXPECT_THAT(cache.Recycle(id++, prefix.key(), {.pages = 1}), IsEmpty());

  for (size_t i = 0; i < prefixes.size(); ++i) {
    EXPECT_EQ(cache.Find(prefixes[i].key()).id, static_cast<int64_t>(i));
    EXPECT_EQ(cache.Find(prefixes[i].key()).num_tokens, 3);
  }
  EXPECT_THAT(cache.Recycle(9, prefixes[1].key(), {.pages = 1}), ::testing::ElementsAre(9));
  cache.Remove(9);
  EXPECT_THAT(cache.FindViolations(), IsEmpty());
}

}  // namespace
}  // namespace aiomlc
