#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace aiomlc {
namespace {

struct Outcome {
  std::string text;
  bool matched;
  bool operator==(const Outcome&) const = default;
};

/*! \brief The definition: test every stop string at every position. */
Outcome Reference(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

Outcome Feed(const std::vector<std::string>& stops, const std::vector<std::string>& chunks) {
  StopMatcher matcher(stops);
  std::string text;
  for (const std::string& chunk : chunks) {
    text += matcher.Put(chunk);
    if (matcher.matched()) break;
  }
  text += matcher.Finish();
  return {text, matcher.matched()};
}

TEST(StopMatcher, SharesTheAutomatonOfEqualStopStringsWhileOneExists) {
  const std::vector<std::string> stops = {"ab", "bc"};
  StopMatcher first(stops);
  StopMatcher second(std::vector<std::string>{"ab", "bc"});
  EXPECT_EQ(&first.automaton(), &second.automaton());
  EXPECT_EQ(first.Put("xa"), "x");
  EXPECT_EQ(second.Put("b"), "");
  EXPECT_EQ(first.Put("b"), "");
  EXPECT_TRUE(first.matched());
  EXPECT_FALSE(second.matched());

  StopMatcher other({"ab"});
  EXPECT_NE(&first.automaton(), &other.automaton());
  EXPECT_EQ(other.automaton().stop_strings(), std::vector<std::string>{"ab"});
}

TEST(StopMatcher, ReleasesAllTextWithoutStopStrings) {
  StopMatcher matcher({});

  EXPECT_EQ(matcher.Put("hello"), "hello");
  EXPECT_EQ(matcher.Finish(), "");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, HoldsBackAndCutsAStopStringAcrossChunks) {
  StopMatcher matcher({"STOP"});

  EXPECT_EQ(matcher.Put("one S"), "one ");
  EXPECT_EQ(matcher.Put("T"), "");
  EXPECT_EQ(matcher.Put("OP and more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, ReleasesAPrefixThatDoesNotBecomeAStopString) {
  StopMatcher matcher({"STOP"});

  EXPECT_EQ(matcher.Put("ST"), "");
  EXPECT_EQ(matcher.Put("ART"), "START");
  EXPECT_EQ(matcher.Put("STO"), "");
  EXPECT_EQ(matcher.Finish(), "STO");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcher, HoldsBackOnlyBytesThatCanStillMatch) {
  StopMatcher matcher({"aab"});

  EXPECT_EQ(matcher.Put("aaaa"), "aa");
  EXPECT_EQ(matcher.Put("b"), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcher, TheFirstMatchToEndWinsAndThenTheLongest) {
  EXPECT_EQ(Feed({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", true}));
  EXPECT_EQ(Feed({"c", "abc", "bc"}, {"xabc"}), (Outcome{"x", true}));
}

TEST(StopMatcher, HoldingBackBytesDoesNotSplitACharacter) {
  StopMatcher matcher({"\xc3\xa9!"});

  EXPECT_EQ(matcher.Put("\xc3\xa8"), "\xc3\xa8");
  EXPECT_EQ(matcher.Put("\xc3\xa9"), "");
  EXPECT_EQ(matcher.Put("\xc3\xa9"), "\xc3\xa9");
}

TEST(StopMatcher, MatchesTheDefinitionForRandomChunks) {
  std::mt19937 random(1);
  const auto word = [&](size_t size) {
    std::string result;
    for (size_t i = 0; i < size; ++i) result += static_cast<char>('a' + random() % 3);
    return result;
  };
  int matches = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(word(1 + random() % 6));
    std::vector<std::string> chunks;
    std::string text;
    for (size_t i = random() % 8; i > 0; --i) chunks.push_back(word(random() % 5));
    for (const std::string& chunk : chunks) text += chunk;

    const Outcome expected = Reference(stops, text);

    ASSERT_EQ(Feed(stops, chunks), expected) << text;
    matches += expected.matched;
  }
  EXPECT_GT(matches, 1000);
}

TEST(StopMatcher, AStopStringThatMayNotMatchYetCanStartALongerOne) {
  StopMatcher matcher({"ab", "abcd"});

  std::string text = matcher.Put("xab", false);
  EXPECT_FALSE(matcher.matched());
  text += matcher.Put("c", false);
  text += matcher.Put("yab", false);
  text += matcher.Put("z");
  EXPECT_EQ(text, "xabcyabz");
  text = matcher.Put("abc", false);
  text += matcher.Put("d");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace aiomlc
