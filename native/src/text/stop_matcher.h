/*!
 * \file text/stop_matcher.h
 * \brief Find stop strings in streamed text.
 */
#ifndef AIOMLC_TEXT_STOP_MATCHER_H_
#define AIOMLC_TEXT_STOP_MATCHER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aiomlc {

/*!
 * \brief Finds stop strings with an Aho-Corasick automaton over the bytes of the text.
 *
 * It holds back the longest suffix of the text that is a prefix of a stop string, so no byte of a
 * match is ever released, however the text is split into chunks. The match that ends first wins; of
 * matches that end at the same byte, the longest.
 */
class StopMatcher {
 public:
  /*! \param stop_strings Non-empty strings. */
  explicit StopMatcher(const std::vector<std::string>& stop_strings);

  /*!
   * \brief Append text. Must not be called after a match.
   * \param may_match Whether a stop string that ends in this text counts as a match.
   * \return The text that cannot be part of a match.
   */
  std::string Put(std::string_view text, bool may_match = true);

  /*! \brief Whether a stop string was found; the text is cut before it. */
  bool matched() const { return matched_; }

  /*! \brief End the text. \return The text that was held back; empty after a match. */
  std::string Finish();

 private:
  /*! \brief A state: the text ends with the first `depth` bytes of a stop string. */
  struct Node {
    uint8_t byte = 0;
    int32_t depth = 0;
    int32_t first_child = kNone;
    int32_t next_sibling = kNone;
    /*! \brief The state of the longest proper suffix that is also a state. */
    int32_t fallback = 0;
    /*! \brief Length of the longest stop string that ends in this state; 0 if there is none. */
    int32_t match_length = 0;
  };
  static constexpr int32_t kNone = -1;

  int32_t Child(int32_t node, uint8_t byte) const;
  void Insert(std::string_view stop_string);
  void LinkFallbacks();
  int32_t Next(int32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  int32_t state_ = 0;
  bool matched_ = false;
  std::string pending_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_STOP_MATCHER_H_
