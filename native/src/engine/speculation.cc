#include "aiomlc/speculation.h"

#include <algorithm>

namespace aiomlc {

void Speculation::Propose(const std::vector<Sequence*>& running, int64_t room) {
  std::vector<DraftRequest> requests;
  int64_t num_decoding = 0;
  for (Sequence* sequence : running) {
    sequence->draft_ids.clear();
    if (!sequence->is_decoding()) continue;
    ++num_decoding;
    // It would be asked about tokens that may never come.
    if (sequence->logits_processor) continue;
    DraftDepth& depth =
        depths_.try_emplace(sequence->id, draft_length_, drafter_->habits()).first->second;
    // A step gives one token more than the draft has.
    const int64_t wanted = sequence->max_completion_tokens - sequence->num_completion_tokens() - 1;
    const int64_t max_tokens = std::min(depth.depth(), wanted);
    depth.Wait();
    if (max_tokens > 0) requests.push_back({sequence, max_tokens});
  }
  if (draft_length_ == 0) room = std::min(room, kMaxVerified - num_decoding);
  ShareRoom(room, &requests);
  if (!requests.empty()) drafter_->Propose(requests);
}

void Speculation::ShareRoom(int64_t room, std::vector<DraftRequest>* requests) {
  int64_t sharers = static_cast<int64_t>(requests->size());
  for (DraftRequest& request : *requests) {
    request.max_tokens = std::min(request.max_tokens, (room + sharers - 1) / sharers);
    room -= request.max_tokens;
    --sharers;
  }
  std::erase_if(*requests, [](const DraftRequest& request) { return request.max_tokens <= 0; });
}

void Speculation::Learn(int64_t sequence_id, int64_t proposed, int64_t accepted) {
  depths_.at(sequence_id).Learn(proposed, accepted);
}

void Speculation::Remove(int64_t sequence_id) {
  depths_.erase(sequence_id);
  drafter_->Remove(sequence_id);
}

}  // namespace aiomlc
