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

int64_t Search(const Tokens& text, int64_t length) {
  const int64_t size = static_cast<int64_t>(text.size());
  for (int64_t end = size - 1; end >= length; --end) {
    if (std::equal(text.end() - length, text.end(), text.begin() + (end - length))) return end;
  }
  return -1;
}

TEST(NgramIndex, FindsWhatASearchFromTheEndFinds) {
  std::mt19937 random(1);
  for (int64_t length = 1; length <= 4; ++length) {
    for (int32_t vocab_size : {1, 2, 5, 300}) {
      NgramIndex index(length);
      Tokens text;
      for (int step = 0; step < 400; ++step) {
        const int growth = 1 + static_cast<int>(random() % 3);
        for (int i = 0; i < growth; ++i) {
          text.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size)));
        }
        ASSERT_EQ(index.FindEarlier(text), Search(text, length)) << length << " at " << step;
        if (step % 5 == 0) {
          ASSERT_EQ(index.FindEarlier(text), Search(text, length)) << "asked twice";
        }
      }
    }
  }
}

class PromptLookupTest : public ::testing::Test {
 protected:
  Tokens Guess(Tokens tokens, int64_t max_tokens) {
    SequenceOptions options;
    options.seed = 0;
    Sequence sequence(std::move(tokens), options, 100, &vocabulary_);
    PromptLookup lookup;
    lookup.Propose({{&sequence, max_tokens}});
    return sequence.draft_ids;
  }
  Vocabulary vocabulary_;
};

TEST_F(PromptLookupTest, ASequenceIsGuessedToGoOnAsItDidLast) {
  EXPECT_THAT(Guess({1, 2, 3, 4, 5, 9, 2, 3}, 2), ElementsAre(4, 5));
  EXPECT_THAT(Guess({2, 3, 4, 2, 3, 5, 8, 2, 3}, 1), ElementsAre(5)) << "the last place";
  EXPECT_THAT(Guess({1, 2, 3, 4, 2, 3, 5, 1, 2, 3}, 1), ElementsAre(4)) << "the longer match";
}

TEST_F(PromptLookupTest, OneTokenAloneIsNoReason) {
  EXPECT_THAT(Guess({1, 2, 3, 1}, 4), IsEmpty());
  EXPECT_THAT(Guess({1}, 4), IsEmpty());
}

TEST_F(PromptLookupTest, ARepetitionIsGuessedToGoOn) {
  EXPECT_THAT(Guess({7, 1, 2, 1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(Guess({4, 4, 4}, 3), ElementsAre(4, 4, 4));
}

}  // namespace
}  // namespace aiomlc
