/*!
 * \file text/streaming_detokenizer.h
 * \brief Turn a growing token sequence into text that is valid UTF-8 at every step.
 */
#ifndef AIOMLC_TEXT_STREAMING_DETOKENIZER_H_
#define AIOMLC_TEXT_STREAMING_DETOKENIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aiomlc {

/*! \brief The bytes of every token, indexed by token id; a special token has none. */
using Vocabulary = std::vector<std::string>;

/*!
 * \brief The incremental detokenizer of one sequence.
 *
 * A token may end in the middle of a code point. Such bytes are held back until the rest arrives,
 * so `Put` never returns half a character. Bytes that are no UTF-8 become U+FFFD, one for each
 * maximal subpart of a code point: all text together is what decoding all bytes at once would give.
 */
class StreamingDetokenizer {
 public:
  /*! \param vocabulary Not owned; must outlive this object. */
  explicit StreamingDetokenizer(const Vocabulary* vocabulary) : vocabulary_(vocabulary) {}

  /*! \return The text that became complete with this token; may be empty. */
  std::string Put(int32_t token_id);

  /*! \return U+FFFD if a code point is incomplete, else nothing. */
  std::string Finish();

 private:
  void PutByte(uint8_t byte, std::string* text);

  const Vocabulary* vocabulary_;
  /*! \brief The first bytes of a code point, at most three. */
  std::string pending_;
  /*! \brief Bytes that the pending code point still lacks. */
  int num_missing_ = 0;
  /*! \brief The values that the next byte of the pending code point may have. */
  uint8_t next_min_ = 0x80;
  uint8_t next_max_ = 0xbf;
};

/*! \return Whether the bytes are valid UTF-8. */
bool IsUtf8(const std::string& bytes);

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_STREAMING_DETOKENIZER_H_
