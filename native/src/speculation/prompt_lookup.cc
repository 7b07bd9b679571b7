#include "speculation/prompt_lookup.h"

namespace aiomlc {

std::vector<int64_t> PromptLookup::Propose(const std::vector<DraftRequest>& requests) {
  for (const auto& [sequence, max_tokens] : requests) {
    const std::vector<int32_t>& tokens = sequence->token_ids;
    Indexes& indexes = indexes_[sequence->id];
    int64_t next = indexes.triples.FindEarlier(tokens);
    if (next < 0) next = indexes.pairs.FindEarlier(tokens);
    if (next < 0) continue;
    std::vector<int32_t>& draft = sequence->draft_ids;
    // Past the end of the tokens the draft follows itself: a repetition is guessed to go on.
    for (int64_t i = 0; i < max_tokens; ++i, ++next) {
      const int64_t beyond = next - sequence->num_tokens();
      draft.push_back(beyond < 0 ? tokens[next] : draft[beyond]);
    }
  }
  return {};
}

}  // namespace aiomlc
