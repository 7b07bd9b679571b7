#include "speculation/speculation.h"

#include <algorithm>
#include <exception>

namespace aiomlc {

namespace {

bool HasSlowMask(const Sequence& sequence) {
  return sequence.constraint != nullptr && sequence.constraint->is_slow();
}

}  // namespace

template <typename Action>
void Speculation::RunOrDisable(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    Disable(error.what());
  }
}

int64_t Speculation::Propose(const std::vector<Sequence*>& running, int64_t token_budget) {
  for (Sequence* sequence : running) sequence->draft_ids.clear();
  if (drafter_ == nullptr) return 0;
  const std::vector<DraftRequest> requests = CreateRequests(running, token_budget);
  const TargetPass pass = std::exchange(last_pass_, {});
  if (requests.empty() && pass.rows.empty()) return 0;
  RunOrDisable([&] {
    for (int64_t sequence_id : drafter_->Propose(requests, pass)) {
      failures_.push_back({sequence_id, "the draft model's logits are not finite"});
      disabled_.insert(sequence_id);
      drafter_->Remove(sequence_id);
    }
  });
  if (drafter_ == nullptr) {
    for (Sequence* sequence : running) sequence->draft_ids.clear();
  }
  return static_cast<int64_t>(requests.size());
}

std::vector<DraftRequest> Speculation::CreateRequests(const std::vector<Sequence*>& running,
                                                      int64_t token_budget) {
  std::vector<DraftRequest> requests;
  int64_t num_decoding = 0;
  for (Sequence* sequence : running) {
    if (!sequence->is_decoding()) continue;
    ++num_decoding;
    // A logits processor would be called for tokens that may be rejected, and a slow mask would end
    // the draft. A mask that is being computed is presumed to be as fast as the one before.
    if (sequence->logits_processor || disabled_.contains(sequence->id) || HasSlowMask(*sequence)) {
      continue;
    }
    DraftDepth& depth =
        depths_.try_emplace(sequence->id, draft_length_, drafter_->policy()).first->second;
    // A step yields one token in addition to the accepted draft tokens.
    const int64_t max_useful =
        sequence->max_completion_tokens - sequence->num_completion_tokens() - 1;
    const int64_t max_tokens = std::min(depth.depth(), max_useful);
    depth.AdvanceStep();
    if (max_tokens > 0) requests.push_back({sequence, max_tokens});
  }
  if (draft_length_ == 0) token_budget = std::min(token_budget, kMaxVerifiedTokens - num_decoding);
  SplitTokenBudget(token_budget, &requests);
  return requests;
}

void Speculation::SplitTokenBudget(int64_t token_budget, std::vector<DraftRequest>* requests) {
  int64_t num_remaining = static_cast<int64_t>(requests->size());
  for (DraftRequest& request : *requests) {
    request.max_tokens =
        std::min(request.max_tokens, (token_budget + num_remaining - 1) / num_remaining);
    token_budget -= request.max_tokens;
    --num_remaining;
  }
  std::erase_if(*requests, [](const DraftRequest& request) { return request.max_tokens <= 0; });
}

void Speculation::OnDraftVerified(int64_t sequence_id, int64_t proposed, int64_t accepted) {
  // The drafter may have failed since the proposal.
  const auto depth = depths_.find(sequence_id);
  if (depth != depths_.end()) depth->second.OnDraftVerified(proposed, accepted);
}

void Speculation::Remove(int64_t sequence_id) {
  disabled_.erase(sequence_id);
  Evict(sequence_id);
}

void Speculation::Evict(int64_t sequence_id) {
  depths_.erase(sequence_id);
  std::erase_if(last_pass_.rows,
                [=](const TargetRow& row) { return row.sequence_id == sequence_id; });
  if (drafter_ != nullptr) RunOrDisable([&] { drafter_->Remove(sequence_id); });
}

void Speculation::Disable(const std::string& cause) {
  failure_ = cause;
  failures_.push_back({-1, cause});
  drafter_->Clear();
  drafter_.reset();
  hidden_layers_.clear();
  last_pass_ = {};
  depths_.clear();
  disabled_.clear();
}

}  // namespace aiomlc
