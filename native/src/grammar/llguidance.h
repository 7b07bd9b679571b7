/*!
 * \file grammar/llguidance.h
 * \brief Grammars by llguidance, whose library is opened at run time.
 */
#ifndef AIOMLC_GRAMMAR_LLGUIDANCE_H_
#define AIOMLC_GRAMMAR_LLGUIDANCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "text/byte_pair_encoder.h"

namespace aiomlc {

/*! \brief A vocabulary as grammars see it. */
struct GrammarVocabulary {
  /*! \brief The bytes of every token; those of a special one are 0xFF and its name. */
  std::vector<std::string> tokens;
  /*! \brief Any of these may end a text that is complete; at least one. */
  std::vector<int32_t> stop_token_ids;
  /*! \brief How to cut text that is sure to come; without it no token is forced. */
  std::optional<BytePairEncoder> encoder;
};

/*! \brief Compiles grammars for one vocabulary. Every method may be called from any thread. */
class GrammarCompiler {
 public:
  /*!
   * \brief Open the library and build its table of tokens, which takes up to a second.
   * \param library_path A shared library that exports llguidance's C interface, version 1.
   * \throws GrammarError when it is none.
   */
  GrammarCompiler(const std::string& library_path, GrammarVocabulary vocabulary);
  ~GrammarCompiler();

  /*!
   * \param kind "json_schema", "regex" or "lark".
   * \return A matcher at the beginning of a text; it may outlive the compiler.
   * \throws GrammarError when `source` is no such grammar.
   */
  std::unique_ptr<GrammarMatcher> Compile(const std::string& kind, const std::string& source) const;

 private:
  class Tokenizer;
  class Matcher;

  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_LLGUIDANCE_H_
