#include "scheduling/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<int32_t>;

TEST(PrefixCache, FindsTokensOfARunningSequenceUntilItIsRemoved) {
  PrefixCache cache(4);
  cache.Share(1, Tokens{1, 2, 3});
  cache.Share(1, Tokens{1, 2, 3, 4});

  EXPECT_EQ(cache.Find(Tokens{1, 2, 3, 4}).num_tokens, 3);
  EXPECT_EQ(cache.num_recycling(), 0);
  EXPECT_EQ(cache.Remove(1).pages, 0);
  EXPECT_EQ(cache.Find(Tokens{1}).num_tokens, 0);
}

TEST(PrefixCache, RecycleKeepsAllComputedTokens) {
  PrefixCache cache(4);
  cache.Share(1, Tokens{1, 2});

  EXPECT_THAT(cache.Recycle(1, Tokens{1, 2, 3}, {.pages = 5}), IsEmpty());

  EXPECT_EQ(cache.Find(Tokens{1, 2, 3, 4}).num_tokens, 3);
  EXPECT_EQ(cache.recycling_cost().pages, 5);
  EXPECT_EQ(cache.Remove(1).pages, 5);
  EXPECT_EQ(cache.recycling_cost().pages, 0);
}

TEST(PrefixCache, RecycleRemovesEntriesThatArePrefixes) {
  PrefixCache cache(4);
  cache.Recycle(1, Tokens{1, 2}, {.pages = 1});
  cache.Recycle(2, Tokens{1, 3}, {.pages = 1});
  cache.Share(3, Tokens{1, 2});

  EXPECT_THAT(cache.Recycle(4, Tokens{1, 2, 3}, {.pages = 1}), ElementsAre(1));
  cache.Remove(1);
  EXPECT_THAT(cache.Recycle(5, Tokens{1, 2}, {.pages = 1}), ElementsAre(5));
  cache.Remove(5);

  EXPECT_THAT(cache.eviction_order(), ElementsAre(2, 4));
  EXPECT_THAT(cache.FindViolations(), IsEmpty());
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedEntryFirst) {
  PrefixCache cache(2);
  cache.Recycle(1, Tokens{1}, {.pages = 1});
  cache.Recycle(2, Tokens{2}, {.pages = 1});
  cache.Touch(1);

  EXPECT_THAT(cache.Recycle(3, Tokens{3}, {.pages = 1}), ElementsAre(2));
}

TEST(PrefixCache, ALongerEntryThatMakesAnotherRedundantIsTouched) {
  PrefixCache cache(2);
  cache.Recycle(1, Tokens{1, 2}, {.pages = 1});
  cache.Recycle(2, Tokens{2}, {.pages = 1});
  EXPECT_THAT(cache.Recycle(3, Tokens{1}, {.pages = 1}), ElementsAre(3));
  cache.Remove(3);

  EXPECT_THAT(cache.eviction_order(), ElementsAre(2, 1));
}

TEST(PrefixCache, ALongerEntryReplacesItsPrefixWithinTheLimit) {
  PrefixCache cache(2);
  cache.Recycle(1, Tokens{1}, {.pages = 1});
  cache.Recycle(2, Tokens{2}, {.pages = 1});

  EXPECT_THAT(cache.Recycle(3, Tokens{2, 3}, {.pages = 1}), ElementsAre(2));
}

TEST(PrefixCache, PinnedEntriesAreExemptFromLimitAndEvictionOrder) {
  PrefixCache cache(1);
  EXPECT_THAT(cache.Pin(1, Tokens{1, 2}, {.pages = 3}), IsEmpty());
  cache.Recycle(2, Tokens{2}, {.pages = 1});

  EXPECT_THAT(cache.Recycle(3, Tokens{3}, {.pages = 1}), ElementsAre(2));
  cache.Remove(2);

  EXPECT_EQ(cache.Find(Tokens{1, 2, 3}).id, 1);
  EXPECT_EQ(cache.recycling_cost().pages, 1);
  EXPECT_EQ(cache.pinned_cost().pages, 3);
  EXPECT_THAT(cache.eviction_order(), ElementsAre(3));
  EXPECT_THAT(cache.FindViolations(), IsEmpty());
  EXPECT_EQ(cache.Remove(1).pages, 3);
  EXPECT_EQ(cache.pinned_cost().pages, 0);
}

TEST(PrefixCache, PrefixesOfAPinnedEntryAreNotRecycled) {
  PrefixCache cache(4);
  cache.Recycle(1, Tokens{1, 2}, {.pages = 1});

  EXPECT_THAT(cache.Pin(2, Tokens{1, 2, 3}, {.pages = 1}), ElementsAre(1));
  cache.Remove(1);
  EXPECT_THAT(cache.Recycle(3, Tokens{1, 2}, {.pages = 1}), ElementsAre(3));
  cache.Remove(3);
  EXPECT_THAT(cache.Recycle(4, Tokens{1, 2, 3, 4}, {.pages = 1}), IsEmpty())
      << "a pinned prefix is not redundant";
}

TEST(PrefixCache, AnUnpinnedEntryIsEvictedLast) {
  PrefixCache cache(2);
  cache.Pin(1, Tokens{1}, {.pages = 3});
  cache.Recycle(2, Tokens{2}, {.pages = 1});

  EXPECT_THAT(cache.Unpin(1), IsEmpty());
  EXPECT_THAT(cache.Unpin(1), IsEmpty());

  EXPECT_THAT(cache.eviction_order(), ElementsAre(2, 1));
  EXPECT_EQ(cache.recycling_cost().pages, 4);
  EXPECT_EQ(cache.pinned_cost().pages, 0);
  EXPECT_THAT(cache.FindViolations(), IsEmpty());
}

TEST(PrefixCache, AnUnpinnedEntryCountsTowardsTheLimit) {
  PrefixCache cache(1);
  cache.Pin(1, Tokens{1}, {.pages = 1});
  cache.Recycle(2, Tokens{2}, {.pages = 1});

  EXPECT_THAT(cache.Unpin(1), ElementsAre(2));
}

TEST(PrefixCache, KeepsAllEntriesWithoutALimit) {
  PrefixCache cache(-1);
  for (int32_t i = 0; i < 1000; ++i)
    EXPECT_THAT(cache.Recycle(i, Tokens{i}, {.pages = 1}), IsEmpty());

  EXPECT_EQ(cache.num_recycling(), 1000);
}

TEST(PrefixCache, ADisabledCacheSharesNothing) {
  PrefixCache cache(0);
  cache.Share(1, Tokens{1});

  EXPECT_FALSE(cache.is_on());
  EXPECT_EQ(cache.Find(Tokens{1}).num_tokens, 0);
}

}  // namespace
}  // namespace aiomlc
