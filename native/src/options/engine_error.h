/*!
 * \file options/engine_error.h
 * \brief The errors that the engine throws.
 */
#ifndef AIOMLC_OPTIONS_ENGINE_ERROR_H_
#define AIOMLC_OPTIONS_ENGINE_ERROR_H_

#include <cstdint>
#include <stdexcept>
#include <string>

namespace aiomlc {

/*! \brief The first three report a request, the others the state of the engine. */
enum class ErrorKind {
  kBadRequest,
  kPromptTooLong,
  kPrefixNotCached,
  kEngineOverloaded,
  kEngineClosed,
  kEngineDead
};

/*! \return The name of the error class in Python, for example "BadRequestError". */
constexpr const char* ErrorKindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadRequest:
      return "BadRequestError";
    case ErrorKind::kPromptTooLong:
      return "PromptTooLongError";
    case ErrorKind::kPrefixNotCached:
      return "PrefixNotCachedError";
    case ErrorKind::kEngineOverloaded:
      return "EngineOverloadedError";
    case ErrorKind::kEngineClosed:
      return "EngineClosedError";
    case ErrorKind::kEngineDead:
      break;
  }
  return "EngineDeadError";
}

/*! \brief An error with a kind and a lower-case message. */
class EngineError : public std::runtime_error {
 public:
  EngineError(ErrorKind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/*! \brief A prompt is too long to leave room for a completion. */
class PromptTooLongError final : public EngineError {
 public:
  PromptTooLongError(int64_t prompt_tokens, int64_t context_window)
      : EngineError(ErrorKind::kPromptTooLong, "prompt has " + std::to_string(prompt_tokens) +
                                                   " tokens, context window is " +
                                                   std::to_string(context_window)),
        prompt_tokens_(prompt_tokens),
        context_window_(context_window) {}

  int64_t prompt_tokens() const { return prompt_tokens_; }
  /*!
   * \brief The maximum number of tokens of prompt and completion, limited by the model or the KV
   * cache.
   */
  int64_t context_window() const { return context_window_; }

 private:
  int64_t prompt_tokens_;
  int64_t context_window_;
};

}  // namespace aiomlc

#endif  // AIOMLC_OPTIONS_ENGINE_ERROR_H_
