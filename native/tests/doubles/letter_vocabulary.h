/*!
 * \file tests/doubles/letter_vocabulary.h
 * \brief A vocabulary whose tokens are single letters.
 */
#ifndef AIOMLC_TESTS_DOUBLES_LETTER_VOCABULARY_H_
#define AIOMLC_TESTS_DOUBLES_LETTER_VOCABULARY_H_

#include <string>
#include <vector>

#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*! \return The first `num_letters` lower-case letters, followed by other tokens. */
inline Vocabulary LetterVocabulary(int num_letters, const std::vector<std::string>& other_tokens) {
  Vocabulary vocabulary;
  for (int i = 0; i < num_letters; ++i) {
    vocabulary.push_back(std::string(1, static_cast<char>('a' + i)));
  }
  vocabulary.insert(vocabulary.end(), other_tokens.begin(), other_tokens.end());
  return vocabulary;
}

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_LETTER_VOCABULARY_H_
