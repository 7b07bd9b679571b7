/*!
 * \file text/streaming_detokenizer.h
 * \brief Incremental detokenization into valid UTF-8.
 */
#ifndef AIOMLC_TEXT_STREAMING_DETOKENIZER_H_
#define AIOMLC_TEXT_STREAMING_DETOKENIZER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aiomlc {

/*! \brief The bytes of every token, indexed by token id; empty for special tokens. */
using Vocabulary = std::vector<std::string>;

/*!
 * \brief The incremental detokenizer of one sequence.
 *
 * A token may end in the middle of a code point. Its bytes are held back until the rest arrives, so
 * `Put` never returns an incomplete character. Invalid UTF-8 becomes U+FFFD, one for each maximal
 * subpart of a code point, so the concatenated text equals that of decoding all bytes at once.
 */
class StreamingDetokenizer {
 public:
  /*! \param vocabulary Not owned; must outlive this object. */
  explicit StreamingDetokenizer(const Vocabulary* vocabulary) : vocabulary_(vocabulary) {}

  /*! \brief Append a token. \return The text that it completes; may be empty. */
  std::string Put(int32_t token_id);

  /*! \brief End the text. \return U+FFFD if a code point is incomplete, else an empty string. */
  std::string Finish();

 private:
  void PutByte(uint8_t byte, std::string* text);

  const Vocabulary* vocabulary_;
  /*! \brief The first bytes of an incomplete code point, at most three. */
  std::string pending_;
  /*! \brief Bytes that are missing from the pending code point. */
  int num_missing_ = 0;
  /*! \brief The range of the next byte of the pending code point. */
  uint8_t next_min_ = 0x80;
  uint8_t next_max_ = 0xbf;
};

/*! \return Whether the bytes are valid UTF-8. */
bool IsUtf8(const std::string& bytes);

}  // namespace aiomlc

#endif  // AIOMLC_TEXT_STREAMING_DETOKENIZER_H_
