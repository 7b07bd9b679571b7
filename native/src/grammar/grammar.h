/*!
 * \file grammar/grammar.h
 * \brief The seam between the engine and whatever says which tokens may come next.
 */
#ifndef AIOMLC_GRAMMAR_GRAMMAR_H_
#define AIOMLC_GRAMMAR_GRAMMAR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace aiomlc {

/*! \brief A grammar is not one, or cannot go on. */
class GrammarError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*!
 * \brief Where one text stands in its grammar. Not thread-safe, except for `Clone`.
 *
 * Every method but `Clone` may throw GrammarError; the matcher is of no use afterwards.
 */
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  /*! \brief Another matcher at the same place. May be called by several threads at once, as long as
   * no other method is. */
  virtual std::unique_ptr<GrammarMatcher> Clone() const = 0;

  /*!
   * \brief Which tokens may come next, stop tokens among them where the text may end.
   * \param mask A bit for each token, that of token i being bit i % 32 of word i / 32; set if it
   *     may come. As many words as the vocabulary needs.
   */
  virtual void ComputeMask(std::span<uint32_t> mask) = 0;

  /*! \brief Go on by a token that may come. */
  virtual void Consume(int32_t token_id) = 0;

  /*! \return The tokens that are sure to come next, as a tokenizer would cut them; often none. */
  virtual std::vector<int32_t> ForcedTokens() = 0;

  /*! \return Whether the text is complete and nothing can follow. */
  virtual bool IsComplete() = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_GRAMMAR_H_
