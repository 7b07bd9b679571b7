/*!
 * \file options/logits_processor.h
 * \brief The seam between the engine and a caller's own way with logits.
 */
#ifndef AIOMLC_OPTIONS_LOGITS_PROCESSOR_H_
#define AIOMLC_OPTIONS_LOGITS_PROCESSOR_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>

namespace aiomlc {

/*! \brief A processor failed; what it did to the logits is of no use. */
class LogitsProcessorError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*!
 * \brief Changes the logits of a sequence's next token.
 *
 * Called by the stepping thread, which waits: once for each token that is sampled, before any bias,
 * penalty or grammar. It may call whatever of the engine never waits for a step.
 *
 * \param token_ids The prompt and the completion so far.
 * \param logits float32[vocab_size], its own to write.
 * \throws LogitsProcessorError, and nothing else.
 */
using LogitsProcessor =
    std::function<void(std::span<const int32_t> token_ids, std::span<float> logits)>;

}  // namespace aiomlc

#endif  // AIOMLC_OPTIONS_LOGITS_PROCESSOR_H_
