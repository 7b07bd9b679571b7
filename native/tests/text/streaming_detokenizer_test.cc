#include "text/streaming_detokenizer.h"

#include <gtest/gtest.h>

#include <random>

namespace aiomlc {
namespace {

std::string Decode(const std::vector<std::string>& tokens, std::vector<std::string>* deltas) {
  StreamingDetokenizer detokenizer(&tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    deltas->push_back(detokenizer.Put(static_cast<int32_t>(i)));
    text += deltas->back();
  }
  deltas->push_back(detokenizer.Finish());
  return text + deltas->back();
}

std::string DecodeAtOnce(const std::string& bytes) {
  std::vector<std::string> deltas;
  return Decode({bytes}, &deltas);
}

const std::string kReplacement = "\xef\xbf\xbd";

std::string Replacements(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(StreamingDetokenizer, ReturnsACharacterAcrossTokensWithItsLastByte) {
  const Vocabulary vocabulary = {"caf", "\xc3", "\xa9", "!", ""};
  StreamingDetokenizer detokenizer(&vocabulary);

  EXPECT_EQ(detokenizer.Put(0), "caf");
  EXPECT_EQ(detokenizer.Put(1), "");
  EXPECT_EQ(detokenizer.Put(4), "");
  EXPECT_EQ(detokenizer.Put(2), "\xc3\xa9");
  EXPECT_EQ(detokenizer.Put(3), "!");
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(StreamingDetokenizer, ReplacesAnIncompleteCharacter) {
  const Vocabulary vocabulary = {"\xf0\x9f\x98", "\x80", "x"};
  StreamingDetokenizer detokenizer(&vocabulary);

  EXPECT_EQ(detokenizer.Put(0), "");
  EXPECT_EQ(detokenizer.Put(2), kReplacement + "x");
  EXPECT_EQ(detokenizer.Put(0), "");
  EXPECT_EQ(detokenizer.Finish(), kReplacement);
  EXPECT_EQ(detokenizer.Finish(), "");
}

TEST(StreamingDetokenizer, TokensWithoutBytesHaveNoText) {
  const Vocabulary vocabulary = {"a"};
  StreamingDetokenizer detokenizer(&vocabulary);

  EXPECT_EQ(detokenizer.Put(1), "");
  EXPECT_EQ(detokenizer.Put(1 << 20), "");
}

// The expected values are those of Python's bytes.decode("utf-8", "replace").
TEST(StreamingDetokenizer, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(DecodeAtOnce("\x80"), Replacements(1));
  EXPECT_EQ(DecodeAtOnce("\xc0\xaf"), Replacements(2));
  EXPECT_EQ(DecodeAtOnce("\xc3("), Replacements(1) + "(");
  EXPECT_EQ(DecodeAtOnce("\xe0\x80\xaf"), Replacements(3));
  EXPECT_EQ(DecodeAtOnce("\xe2\x82"), Replacements(1));
  EXPECT_EQ(DecodeAtOnce("\xe2\x82\xe2\x82\xac"), Replacements(1) + "\xe2\x82\xac");
  EXPECT_EQ(DecodeAtOnce("\xed\xa0\x80"), Replacements(3));
  EXPECT_EQ(DecodeAtOnce("\xf0\x80\x80\x80"), Replacements(4));
  EXPECT_EQ(DecodeAtOnce("\xf0\x90\x80"), Replacements(1));
  EXPECT_EQ(DecodeAtOnce("\xf0\x9f\x98\xf0\x9f\x98\x80"), Replacements(1) + "\xf0\x9f\x98\x80");
  EXPECT_EQ(DecodeAtOnce("\xf4\x90\x80\x80"), Replacements(4));
  EXPECT_EQ(DecodeAtOnce("\xf5\xff"), Replacements(2));
}

TEST(StreamingDetokenizer, KeepsEveryCodePoint) {
  for (uint32_t code = 0; code <= 0x10ffff; code += code < 0x1000 ? 1 : 17) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string bytes;
    const auto put = [&](uint32_t byte) { bytes += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xc0 | code >> 6);
      put(0x80 | (code & 63));
    } else if (code < 0x10000) {
      put(0xe0 | code >> 12);
      put(0x80 | (code >> 6 & 63));
      put(0x80 | (code & 63));
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 63));
      put(0x80 | (code >> 6 & 63));
      put(0x80 | (code & 63));
    }
    ASSERT_EQ(DecodeAtOnce(bytes), bytes) << code;
    ASSERT_TRUE(IsUtf8(bytes)) << code;
  }
}

TEST(StreamingDetokenizer, RandomTokensGiveValidDeltasAndTheTextOfAllBytes) {
  std::mt19937 random(7);
  const std::string interesting =
      "a\x80\xbf\xc2\xc3\xa9\xe0\xa0\xe2\x82\xac\xed\x9f\xf0\x90\x9f\x98\xf4\x8f\xff";
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> tokens(1);
    std::string bytes;
    for (size_t i = random() % 12; i > 0; --i) {
      const char byte = interesting[random() % interesting.size()];
      if (random() % 2 == 0) tokens.emplace_back();
      tokens.back() += byte;
      bytes += byte;
    }
    std::vector<std::string> deltas;

    ASSERT_EQ(Decode(tokens, &deltas), DecodeAtOnce(bytes));
    for (const std::string& delta : deltas) ASSERT_TRUE(IsUtf8(delta));
  }
}

TEST(IsUtf8, AcceptsOnlyValidUtf8) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("caf\xc3\xa9 \xef\xbf\xbd"));
  EXPECT_FALSE(IsUtf8("caf\xc3"));
  EXPECT_FALSE(IsUtf8("\xa9"));
}

}  // namespace
}  // namespace aiomlc
