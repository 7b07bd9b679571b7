#include "sequence/sequence.h"

#include <algorithm>
#include <utility>

#include "prompt/rope_positions.h"

namespace aiomlc {

Sequence::Sequence(Prompt prompt, const SequenceOptions& options, int64_t max_completion_tokens,
                   const Vocabulary* vocabulary, TimePoint submitted)
    : priority(options.priority),
      num_prompt_tokens(static_cast<int64_t>(prompt.token_ids.size())),
      max_completion_tokens(max_completion_tokens),
      min_tokens(options.min_tokens),
      is_pinned(options.is_pinned),
      sampling(options.sampling),
      seed(options.seed.value()),
      logits_processor(options.logits_processor),
      stop_token_ids(options.stop_token_ids),
      top_logprobs(options.top_logprobs),
      pieces(std::move(prompt.pieces)),
      piece_keys(KeysOf(pieces)),
      has_grids(HasGrids(piece_keys)),
      token_ids(std::move(prompt.token_ids)),
      timer(options.time_limits, submitted),
      prompt_scorer(options.prompt_logprobs, num_prompt_tokens),
      logit_adjuster(options),
      detokenizer(vocabulary),
      stop_matcher(options.stop) {}

bool Sequence::IsStopToken(int32_t token_id) const {
  return std::find(stop_token_ids.begin(), stop_token_ids.end(), token_id) != stop_token_ids.end();
}

}  // namespace aiomlc
