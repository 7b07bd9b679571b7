/*!
 * \file options/logits_processor.h
 * \brief The interface of user-defined logits processors.
 */
#ifndef AIOMLC_OPTIONS_LOGITS_PROCESSOR_H_
#define AIOMLC_OPTIONS_LOGITS_PROCESSOR_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

namespace aiomlc {

/*! \brief A logits processor failed; the logits are in an undefined state. */
class LogitsProcessorError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*!
 * \brief A function that changes the logits of a sequence's next token.
 *
 * The step thread calls it synchronously, once for each sampled token, before logit bias,
 * penalties and the grammar mask. It may call the methods of the engine that never wait for a step.
 *
 * \param token_ids The prompt and the completion so far.
 * \param logits float32[vocab_size], to be changed in place.
 * \throws LogitsProcessorError if it fails; it must throw nothing else.
 */
using LogitsProcessor =
    std::function<void(std::span<const int32_t> token_ids, std::span<float> logits)>;

}  // namespace aiomlc

#endif  // AIOMLC_OPTIONS_LOGITS_PROCESSOR_H_
