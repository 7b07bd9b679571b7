/*!
 * \file grammar/grammar.h
 * \brief The interface between the engine and grammars that constrain the output.
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

/*! \brief A grammar is invalid, or its matcher failed. */
class GrammarError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*!
 * \brief The state of one output in its grammar. Not thread-safe, except for `Clone`.
 *
 * Every method except `Clone` may throw GrammarError; the matcher must not be used afterwards.
 */
class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;

  /*!
   * \brief Create a matcher in the same state.
   *
   * Several threads may call it at the same time, as long as no other method is called.
   */
  virtual std::unique_ptr<GrammarMatcher> Clone() const = 0;

  /*!
   * \brief Compute the mask of allowed next tokens, including stop tokens where the output may end.
   * \param mask uint32[ceil(vocab_size / 32)]; bit i % 32 of word i / 32 is set if token i is
   *     allowed.
   */
  virtual void ComputeMask(std::span<uint32_t> mask) = 0;

  /*! \brief Advance by an allowed token. */
  virtual void Consume(int32_t token_id) = 0;

  /*! \return The only possible next tokens, in the canonical tokenization; often empty. */
  virtual std::vector<int32_t> ForcedTokens() = 0;

  /*! \return Whether the output is complete and cannot be continued. */
  virtual bool IsComplete() = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_GRAMMAR_H_
