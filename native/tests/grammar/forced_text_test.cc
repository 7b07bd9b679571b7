#include "grammar/forced_text.h"

#include <gtest/gtest.h>

#include <string>

#include "grammar/grammar.h"

namespace aiomlc {
namespace {

TEST(ForcedTextTokenizer, CallsTheFunctionOncePerText) {
  int calls = 0;
  const ForcedTextTokenizer tokenizer([&](std::string_view text) {
    ++calls;
    return std::vector<int32_t>{static_cast<int32_t>(text.size()), 7};
  });

  EXPECT_EQ(tokenizer.Encode("abc"), (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(tokenizer.Encode("abc"), (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(tokenizer.Encode("ab"), (std::vector<int32_t>{2, 7}));
  EXPECT_EQ(calls, 2);
}

TEST(ForcedTextTokenizer, ForgetsTextsBeyondItsLimit) {
  int calls = 0;
  const ForcedTextTokenizer tokenizer([&](std::string_view) {
    ++calls;
    return std::vector<int32_t>{1};
  });

  for (const char letter : {'a', 'b', 'a'}) tokenizer.Encode(std::string((1 << 20) - 1, letter));

  EXPECT_EQ(calls, 3);
}

TEST(ForcedTextTokenizer, PassesFailuresOn) {
  const ForcedTextTokenizer tokenizer(
      [](std::string_view) -> std::vector<int32_t> { throw GrammarError("no such character"); });

  EXPECT_THROW(tokenizer.Encode("a"), GrammarError);
  EXPECT_THROW(tokenizer.Encode("a"), GrammarError);
}

}  // namespace
}  // namespace aiomlc
