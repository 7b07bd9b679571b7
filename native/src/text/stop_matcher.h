/*!
 * \file text/stop_matcher.h
 * \brief Find stop strings in streamed text.
 */
#ifndef AIOMLC_TEXT_STOP_MATCHER_H_
#define AIOMLC_TEXT_STOP_MATCHER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace aiomlc {

/*! \brief An Aho-Corasick automaton over the bytes of a text, for stop strings. Immutable. */
class StopAutomaton {
 public:
  /*! \param stop_strings Non-empty strings. */
  explicit StopAutomaton(std::vector<std::string> stop_strings);

  const std::vector<std::string>& stop_strings() const { return stop_strings_; }
  bool empty() const { return stop_strings_.empty(); }

  /*! \return The state after a byte; the first state is 0. */
  int32_t Next(int32_t state, uint8_t byte) const;
  /*! \brief In this state, the text ends with this many bytes of a stop string, and no more. */
  int32_t depth(int32_t state) const { return nodes_[state].depth; }
  /*! \brief Length of the longest stop string that ends in this state; 0 if there is none. */
  int32_t match_length(int32_t state) const { return nodes_[state].match_length; }

 private:
  /*! \brief A state: the text ends with the first `depth` bytes of a stop string. */
  struct Node {
    uint8_t byte = 0;
    int32_t depth = 0;
    int32_t first_child = kNone;
    int32_t next_sibling = kNone;
    /*! \brief The state of the longest proper suffix that is also a state. */
    int32_t fallback = 0;
    int32_t match_length = 0;
  };
  static constexpr int32_t kNone = -1;

  int32_t Child(int32_t node, uint8_t byte) const;
  void Insert(std::string_view stop_string);
  void LinkFallbacks();

  std::vector<std::string> stop_strings_;
  std::vector<Node> nodes_;
};

/*!
 * \brief Finds stop strings in the text of one sequence.
 *
 * It holds back the longest suffix of the text that is a prefix of a stop string, so no byte of a
 * match is ever released, however the text is split into chunks. The match that ends first wins; of
 * matches that end at the same byte, the longest.
 */
class StopMatcher {
 public:
  /*!
   * \param stop_strings Non-empty strings. If those of the previous matcher of this thread were the
   * same, and it exists, the automaton is shared: the choices of a request have one.
   */
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

  const StopAutomaton& automaton() const { return *automaton_; }

 private:
  std::shared_ptr<const StopAutomaton> automaton_;
  int32_t state_ = 0;
  bool matched_ = false;
  std::string pending_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_STOP_MATCHER_H_
