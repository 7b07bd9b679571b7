#include "speculation/prompt_lookup.h"

namespace aiomlc {

std::vector<int64_t> PromptLookup::Propose(const std::vector<DraftRequest>& requests,
                                           const TargetPass& /*pass*/) {
  for (const auto& [sequence, max_tokens] : requests) {
    const std::vector<int32_t>& tokens = sequence->token_ids;
    Indexes& indexes = indexes_[sequence->id];
    int64_t next = indexes.trigrams.FindEarlier(tokens);
    if (next < 0) next = indexes.bigrams.FindEarlier(tokens);
    if (next < 0) continue;
    std::vector<int32_t>& draft = sequence->draft_ids;
    // Past the last token the draft continues with its own tokens, which extends a repetition.
    for (int64_t i = 0; i < max_tokens; ++i, ++next) {
      const int64_t draft_index = next - sequence->num_tokens();
      draft.push_back(draft_index < 0 ? tokens[next] : draft[draft_index]);
    }
  }
  return {};
}

}  // namespace aiomlc
