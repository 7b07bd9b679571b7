/*!
 * \file engine/sequence_factory.h
 * \brief From the arguments of a submission to a sequence, or to an error.
 */
#ifndef AIOMLC_ENGINE_SEQUENCE_FACTORY_H_
#define AIOMLC_ENGINE_SEQUENCE_FACTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/model.h"
#include "options/sequence_options.h"
#include "sequence/deadline_queue.h"
#include "sequence/sequence.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*! \brief Validates submissions. Immutable, so that any thread may use it. */
class SequenceFactory {
 public:
  /*!
   * \param can_pin Whether the prefix cache is on.
   * \param now The clock of deadlines.
   */
  SequenceFactory(const Model& model, Vocabulary vocabulary, bool can_pin,
                  std::function<TimePoint()> now);
  SequenceFactory(const SequenceFactory&) = delete;
  SequenceFactory& operator=(const SequenceFactory&) = delete;

  /*!
   * \return A sequence without an id. It refers to this object's vocabulary.
   * \throws EngineError kBadRequest or kPromptTooLong.
   */
  std::unique_ptr<Sequence> Create(std::vector<int32_t> prompt_ids, SequenceOptions options) const;

  /*! \return Tokens of prompt and completion together: the context window or the whole KV cache. */
  int64_t max_sequence_tokens() const { return max_sequence_tokens_; }

 private:
  void Validate(const std::vector<int32_t>& prompt_ids, const SequenceOptions& options) const;

  const Vocabulary vocabulary_;
  const int64_t vocab_size_;
  const int64_t max_sequence_tokens_;
  const bool can_pin_;
  const std::function<TimePoint()> now_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_SEQUENCE_FACTORY_H_
