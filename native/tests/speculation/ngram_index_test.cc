#include "speculation/ngram_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "speculation/prompt_lookup.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

int64_t Search(const Tokens& tokens, int64_t length) {
  const int64_t size = static_cast<int64_t>(tokens.size());
  for (int64_t end = size - 1; end >= length; --end) {
    if (std::equal(tokens.end() - length, tokens.end(), tokens.begin() + (end - length)))
      return end;
  }
  return -1;
}

TEST(NgramIndex, MatchesALinearSearch) {
  std::mt19937 random(1);
  for (int64_t length = 1; length <= 4; ++length) {
    for (int32_t vocab_size : {1, 2, 5, 300}) {
      NgramIndex index(length);
      Tokens tokens;
      for (int step = 0; step < 400; ++step) {
        const int growth = 1 + static_cast<int>(random() % 3);
        for (int i = 0; i < growth; ++i) {
          tokens.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size)));
        }
        ASSERT_EQ(index.FindEarlier(tokens), Search(tokens, length)) << length << " at " << step;
        if (step % 5 == 0) {
          ASSERT_EQ(index.FindEarlier(tokens), Search(tokens, length)) << "repeated call";
        }
      }
    }
  }
}

class PromptLookupTest : public ::testing::Test {
 protected:
  Tokens Propose(Tokens tokens, int64_t max_tokens) {
    SequenceOptions options;
    options.seed = 0;
    Sequence sequence(std::move(tokens), options, 100, &vocabulary_);
    PromptLookup lookup;
    lookup.Propose({{&sequence, max_tokens}}, {});
    return sequence.draft_ids;
  }
  Vocabulary vocabulary_;
};

TEST_F(PromptLookupTest, CopiesWhatFollowedTheLastOccurrence) {
  EXPECT_THAT(Propose({1, 2, 3, 4, 5, 9, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(Propose({2, 3, 4, 2, 3, 5, 8, 2, 3}, 1), ElementsAre(5)) << "the last occurrence";
  EXPECT_THAT(Propose({1, 2, 3, 4, 2, 3, 5, 1, 2, 3}, 1), ElementsAre(4)) << "the longer match";
}

TEST_F(PromptLookupTest, ASingleTokenIsNotEnoughToMatch) {
  EXPECT_THAT(Propose({1, 2, 3, 1}, 4), IsEmpty());
  EXPECT_THAT(Propose({1}, 4), IsEmpty());
}

TEST_F(PromptLookupTest, ExtendsARepetition) {
  EXPECT_THAT(Propose({7, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(Propose({4, 4, 4}, 3), ElementsAre(4, 4, 4));
}

}  // namespace
}  // namespace aiomlc
