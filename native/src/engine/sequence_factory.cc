#include "engine/sequence_factory.h"

#include <algorithm>
#include <random>
#include <utility>

#include "grammar/constraint.h"
#include "options/engine_error.h"

namespace aiomlc {

namespace {

uint64_t DrawSeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

SequenceFactory::SequenceFactory(const Model& model, Vocabulary vocabulary,
                                 int64_t step_token_budget, bool can_pin,
                                 std::function<TimePoint()> now)
    : vocabulary_(std::move(vocabulary)),
      vocab_size_(model.vocab_size()),
      piece_traits_(model.piece_traits()),
      step_token_budget_(step_token_budget),
      max_sequence_tokens_(MaxTokens(model.state(), model.context_window())),
      can_pin_(can_pin),
      now_(std::move(now)) {}

std::unique_ptr<Sequence> SequenceFactory::Create(Prompt prompt, SequenceOptions options) const {
  Validate(prompt, options);
  if (!options.seed.has_value()) options.seed = DrawSeed();
  const int64_t max_tokens = max_sequence_tokens_ - static_cast<int64_t>(prompt.token_ids.size());
  auto sequence = std::make_unique<Sequence>(
      std::move(prompt), options, std::min(options.max_tokens.value_or(max_tokens), max_tokens),
      &vocabulary_, now_());
  if (options.grammar != nullptr) {
    sequence->constraint = std::make_shared<Constraint>(options.grammar->Clone(), vocab_size_);
  }
  return sequence;
}

void SequenceFactory::Validate(const Prompt& prompt, const SequenceOptions& options) const {
  ValidateOptions(options, vocab_size_);
  if (options.is_pinned && !can_pin_) {
    throw EngineError(ErrorKind::kBadRequest,
                      "a prefix cannot be pinned while the prefix cache is disabled");
  }
  ValidatePrompt(prompt, vocab_size_, piece_traits_, step_token_budget_);
  if (!prompt.pieces.empty() && options.prompt_logprobs.has_value()) {
    throw EngineError(ErrorKind::kBadRequest,
                      "prompt_logprobs: a prompt with embedded pieces has none; leave it out");
  }
  const int64_t num_tokens = static_cast<int64_t>(prompt.token_ids.size());
  if (num_tokens >= max_sequence_tokens_) {
    throw PromptTooLongError(num_tokens, max_sequence_tokens_);
  }
}

}  // namespace aiomlc
