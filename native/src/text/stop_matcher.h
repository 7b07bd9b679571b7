/*!
 * \file text/stop_matcher.h
 * \brief Find stop strings in text that arrives in pieces.
 */
#ifndef AIOMLC_TEXT_STOP_MATCHER_H_
#define AIOMLC_TEXT_STOP_MATCHER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aiomlc {

/*!
 * \brief An Aho-Corasick automaton over the bytes of a sequence's text.
 *
 * It holds back the longest end of the text that may be the beginning of a stop string, so no byte
 * of a match is ever released, however the text is cut into pieces. The match that is complete
 * first counts; of those that are complete at the same byte, the longest.
 */
class StopMatcher {
 public:
  /*! \param stop_strings None of them empty. */
  explicit StopMatcher(const std::vector<std::string>& stop_strings);

  /*!
   * \brief Take more text. Not to be called after a match.
   * \param may_match Whether a stop string that becomes complete in this text counts.
   * \return The text that is certain not to belong to a match.
   */
  std::string Put(std::string_view text, bool may_match = true);

  /*! \brief Whether a stop string was found: it and what follows it are dropped. */
  bool matched() const { return matched_; }

  /*! \return What was held back, now that no more text comes; empty after a match. */
  std::string Finish();

 private:
  /*! \brief A state: the text ends with the first `depth` bytes of some stop string. */
  struct Node {
    uint8_t byte = 0;
    int32_t depth = 0;
    int32_t first_child = kNone;
    int32_t next_sibling = kNone;
    /*! \brief The longest proper suffix of this state that is a state too. */
    int32_t fallback = 0;
    /*! \brief Length of the longest stop string that the text ends with here; 0 if none. */
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
  std::string held_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_STOP_MATCHER_H_
