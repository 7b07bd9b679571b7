#include "speculation/speculation.h"

#include <algorithm>
#include <exception>

namespace aiomlc {

template <typename Action>
void Speculation::Attempt(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    GiveUp(error.what());
  }
}

int64_t Speculation::Propose(const std::vector<Sequence*>& running, int64_t room) {
  for (Sequence* sequence : running) sequence->draft_ids.clear();
  if (drafter_ == nullptr) return 0;
  const std::vector<DraftRequest> requests = Requests(running, room);
  if (requests.empty()) return 0;
  Attempt([&] {
    for (int64_t sequence_id : drafter_->Propose(requests)) {
      failures_.push_back({sequence_id, "the drafts' logits are not finite numbers"});
      disabled_.insert(sequence_id);
      drafter_->Remove(sequence_id);
    }
  });
  if (drafter_ == nullptr) {
    for (Sequence* sequence : running) sequence->draft_ids.clear();
  }
  return static_cast<int64_t>(requests.size());
}

std::vector<DraftRequest> Speculation::Requests(const std::vector<Sequence*>& running,
                                                int64_t room) {
  std::vector<DraftRequest> requests;
  int64_t num_decoding = 0;
  for (Sequence* sequence : running) {
    if (!sequence->is_decoding()) continue;
    ++num_decoding;
    // A processor would be asked about tokens that may never come.
    if (sequence->logits_processor || disabled_.contains(sequence->id)) continue;
    DraftDepth& depth =
        depths_.try_emplace(sequence->id, draft_length_, drafter_->policy()).first->second;
    // A step gives one token more than the draft has.
    const int64_t wanted = sequence->max_completion_tokens - sequence->num_completion_tokens() - 1;
    const int64_t max_tokens = std::min(depth.depth(), wanted);
    depth.AdvanceStep();
    if (max_tokens > 0) requests.push_back({sequence, max_tokens});
  }
  if (draft_length_ == 0) room = std::min(room, kMaxVerifiedTokens - num_decoding);
  ShareRoom(room, &requests);
  return requests;
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

void Speculation::RecordVerification(int64_t sequence_id, int64_t proposed, int64_t accepted) {
  // The drafter may have failed since it proposed.
  const auto depth = depths_.find(sequence_id);
  if (depth != depths_.end()) depth->second.RecordVerification(proposed, accepted);
}

void Speculation::Remove(int64_t sequence_id) {
  depths_.erase(sequence_id);
  disabled_.erase(sequence_id);
  if (drafter_ != nullptr) Attempt([&] { drafter_->Remove(sequence_id); });
}

void Speculation::GiveUp(const std::string& cause) {
  failure_ = cause;
  failures_.push_back({-1, cause});
  drafter_->Clear();
  drafter_.reset();
  depths_.clear();
  disabled_.clear();
}

}  // namespace aiomlc
