/*!
 * \file engine/sequence_factory.h
 * \brief Validation of submitted prompts and options, and creation of sequences.
 */
#ifndef AIOMLC_ENGINE_SEQUENCE_FACTORY_H_
#define AIOMLC_ENGINE_SEQUENCE_FACTORY_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "model/model.h"
#include "options/sequence_options.h"
#include "prompt/prompt.h"
#include "sequence/deadline_queue.h"
#include "sequence/sequence.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*! \brief Creates sequences from valid submissions. Immutable, hence thread-safe. */
class SequenceFactory {
 public:
  /*!
   * \param step_token_budget The maximum number of tokens per step.
   * \param can_pin Whether the prefix cache is enabled.
   * \param now The clock of deadlines.
   */
  SequenceFactory(const Model& model, Vocabulary vocabulary, int64_t step_token_budget,
                  bool can_pin, std::function<TimePoint()> now);
  SequenceFactory(const SequenceFactory&) = delete;
  SequenceFactory& operator=(const SequenceFactory&) = delete;

  /*!
   * \return A sequence without an id. It references the vocabulary of this object.
   * \throws EngineError kBadRequest or kPromptTooLong.
   */
  std::unique_ptr<Sequence> Create(Prompt prompt, SequenceOptions options) const;

  /*!
   * \return The maximum number of tokens of a prompt and its completion: the context window, or
   * less if the state of the model holds fewer.
   */
  int64_t max_sequence_tokens() const { return max_sequence_tokens_; }

 private:
  void Validate(const Prompt& prompt, const SequenceOptions& options) const;

  const Vocabulary vocabulary_;
  const int64_t vocab_size_;
  const PieceTraits piece_traits_;
  const int64_t step_token_budget_;
  const int64_t max_sequence_tokens_;
  const bool can_pin_;
  const std::function<TimePoint()> now_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_SEQUENCE_FACTORY_H_
