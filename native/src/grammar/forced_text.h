/*!
 * \file grammar/forced_text.h
 * \brief The tokens of text that a grammar forces, by the tokenizer of the model.
 */
#ifndef AIOMLC_GRAMMAR_FORCED_TEXT_H_
#define AIOMLC_GRAMMAR_FORCED_TEXT_H_

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace aiomlc {

/*!
 * \brief A function that tokenizes text in UTF-8. The bytes of the tokens are the text, or its
 * beginning if the vocabulary has no tokens for the rest.
 *
 * The step thread and the thread that computes masks call it. It throws GrammarError if it fails.
 */
using Tokenize = std::function<std::vector<int32_t>(std::string_view text)>;

/*!
 * \brief Calls a `Tokenize` function once for each text, which the requests of a schema repeat.
 *
 * Thread-safe.
 */
class ForcedTextTokenizer {
 public:
  explicit ForcedTextTokenizer(Tokenize tokenize) : tokenize_(std::move(tokenize)) {}

  /*! \return The tokens of `text`. \throws GrammarError if the function fails. */
  std::vector<int32_t> Encode(std::string_view text) const;

 private:
  const Tokenize tokenize_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::vector<int32_t>> known_;
  mutable size_t num_known_bytes_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_FORCED_TEXT_H_
