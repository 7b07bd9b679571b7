/*!
 * \file grammar/llguidance.h
 * \brief Grammars compiled by llguidance, whose shared library is loaded at run time.
 */
#ifndef AIOMLC_GRAMMAR_LLGUIDANCE_H_
#define AIOMLC_GRAMMAR_LLGUIDANCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grammar/forced_text.h"
#include "grammar/grammar.h"

namespace aiomlc {

/*! \brief The vocabulary that grammars are compiled for. */
struct GrammarVocabulary {
  /*! \brief The bytes of every token; those of a special token are 0xFF and its name. */
  std::vector<std::string> tokens;
  /*!
   * \brief The tokens that may end a complete output.
   *
   * Without one, an output only ends where the grammar cannot be continued.
   */
  std::vector<int32_t> stop_token_ids;
  /*! \brief Tokenizes forced text; without it no tokens are forced. */
  Tokenize tokenize;
};

/*! \brief Compiles grammars for one vocabulary. Thread-safe. */
class GrammarCompiler {
 public:
  /*!
   * \brief Load the library and build its token trie, which takes up to a second.
   * \param library_path A shared library that exports the C interface of llguidance 1.x.
   * \throws GrammarError if the library cannot be used.
   */
  GrammarCompiler(const std::string& library_path, GrammarVocabulary vocabulary);
  ~GrammarCompiler();

  /*!
   * \brief Compile a grammar.
   * \param kind "json_schema", "regex", "lark" or "llguidance".
   * \return A matcher at the start of the grammar; it may outlive the compiler.
   * \throws GrammarError if `source` is not a valid grammar of this kind.
   */
  std::unique_ptr<GrammarMatcher> Compile(const std::string& kind, const std::string& source) const;

 private:
  class Tokenizer;
  class Matcher;

  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_LLGUIDANCE_H_
