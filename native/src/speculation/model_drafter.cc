#include "speculation/model_drafter.h"

#include <algorithm>
#include <utility>

#include "sampling/token_logprobs.h"

namespace aiomlc {

ModelDrafter::ModelDrafter(Model* model, int64_t step_token_budget)
    : model_(model),
      step_token_budget_(std::min(step_token_budget, model->prefill_chunk_size())),
      state_(model->state()),
      budget_(state_.total()) {}

std::vector<int64_t> ModelDrafter::Propose(const std::vector<DraftRequest>& requests,
                                           const TargetPass& /*pass*/) {
  std::vector<Row> rows = PlanRows(requests);
  if (rows.empty()) return {};
  rows = SampleDrafts(Prefill(std::move(rows)));
  while (!rows.empty()) {
    Decode(rows);
    rows = SampleDrafts(std::move(rows));
  }
  return std::exchange(failed_ids_, {});
}

void ModelDrafter::Remove(int64_t sequence_id) {
  const auto entry = cache_states_.find(sequence_id);
  if (entry == cache_states_.end()) return;
  budget_.Release(entry->second.reserved);
  cache_states_.erase(entry);
  state_.Remove(sequence_id);
}

void ModelDrafter::Clear() noexcept {
  while (!cache_states_.empty()) {
    try {
      Remove(cache_states_.begin()->first);
    } catch (...) {
      // The cause is already reported; go on with the other sequences.
    }
  }
}

ModelDrafter::CacheState* ModelDrafter::AlignCache(const Sequence& sequence) {
  const auto [entry, is_new] = cache_states_.try_emplace(sequence.id);
  CacheState* state = &entry->second;
  if (is_new) state_.Add(sequence.id);
  const std::vector<int32_t> draft_ids = std::exchange(state->draft_ids, {});
  const int64_t num_cached = state->num_tokens + static_cast<int64_t>(draft_ids.size());
  // The last token is always recomputed, even if the previous step added no token, since its
  // logits are needed.
  const int64_t num_reusable = sequence.num_tokens() - 1;
  for (int32_t token_id : draft_ids) {
    if (state->num_tokens >= num_reusable || token_id != sequence.token_ids[state->num_tokens]) {
      break;
    }
    ++state->num_tokens;
  }
  state->num_tokens = std::min(state->num_tokens, num_reusable);
  if (state->num_tokens < num_cached) {
    state->num_tokens = state_.Checkpoint(sequence.id, state->num_tokens);
    state_.Rewind(sequence.id, num_cached - state->num_tokens);
  }
  const Resources cost = state_.Cost(state->num_tokens);
  budget_.Release(state->reserved - cost);
  state->reserved = cost;
  return state;
}

std::vector<ModelDrafter::Row> ModelDrafter::PlanRows(const std::vector<DraftRequest>& requests) {
  std::vector<Row> rows;
  int64_t budget = step_token_budget_;
  for (const auto& [sequence, max_tokens] : requests) {
    if (budget == 0 || static_cast<int64_t>(rows.size()) == model_->max_batch_size()) break;
    // The last draft token is not computed by the draft model.
    const int64_t depth =
        std::min(max_tokens, model_->context_window() - sequence->num_tokens() + 1);
    if (depth <= 0) continue;
    CacheState* state = AlignCache(*sequence);
    const int64_t num_missing = sequence->num_tokens() - state->num_tokens;
    Row row{sequence, depth, std::min(num_missing, budget), std::nullopt};
    if (row.num_missing < num_missing) row.depth = 0;
    const Resources cost =
        state_.Cost(state->num_tokens + row.num_missing + std::max<int64_t>(0, row.depth - 1));
    if (!(cost - state->reserved).FitsIn(budget_.free())) continue;
    budget_.Reserve(cost - state->reserved);
    state->reserved = cost;
    if (sequence->logit_adjuster.is_active()) row.adjuster = sequence->logit_adjuster;
    budget -= row.num_missing;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<ModelDrafter::Row> ModelDrafter::Prefill(std::vector<Row> rows) {
  ForwardInput input;
  for (const Row& row : rows) {
    CacheState& state = cache_states_.at(row.sequence->id);
    const auto first = row.sequence->token_ids.begin() + state.num_tokens;
    input.sequence_ids.push_back(row.sequence->id);
    input.append_lengths.push_back(static_cast<int32_t>(row.num_missing));
    input.token_ids.insert(input.token_ids.end(), first, first + row.num_missing);
    if (row.depth > 0) {
      input.logit_positions.push_back(static_cast<int32_t>(input.token_ids.size()) - 1);
    }
    state.num_tokens += row.num_missing;
  }
  logits_ = model_->Forward(input).logits;
  std::erase_if(rows, [](const Row& row) { return row.depth == 0; });
  return rows;
}

void ModelDrafter::Decode(const std::vector<Row>& rows) {
  ForwardInput input;
  for (const Row& row : rows) {
    const int32_t token_id = row.sequence->draft_ids.back();
    input.logit_positions.push_back(static_cast<int32_t>(input.token_ids.size()));
    input.sequence_ids.push_back(row.sequence->id);
    input.append_lengths.push_back(1);
    input.token_ids.push_back(token_id);
    cache_states_.at(row.sequence->id).draft_ids.push_back(token_id);
  }
  logits_ = model_->Forward(input).logits;
}

std::vector<ModelDrafter::Row> ModelDrafter::SampleDrafts(std::vector<Row> rows) {
  const int64_t vocab_size = model_->vocab_size();
  const float* logits = logits_;
  std::vector<Row> unfinished;
  for (Row& row : rows) {
    const float* unadjusted = std::exchange(logits, logits + vocab_size);
    const float* row_logits = unadjusted;
    if (row.adjuster.has_value()) {
      adjusted_logits_.assign(row_logits, row_logits + vocab_size);
      row.adjuster->Apply(adjusted_logits_.data(), vocab_size);
      row_logits = adjusted_logits_.data();
    }
    Sequence* sequence = row.sequence;
    const int64_t num_drafted = static_cast<int64_t>(sequence->draft_ids.size());
    const std::optional<int32_t> token_id =
        sampler_.Sample(row_logits, vocab_size, sequence->sampling, sequence->seed,
                        static_cast<uint64_t>(sequence->num_completion_tokens() + num_drafted));
    if (!token_id.has_value()) {
      // If only the adjuster excludes all tokens, later drafts may succeed.
      if (!AreFinite(unadjusted, vocab_size)) failed_ids_.push_back(sequence->id);
      continue;
    }
    sequence->draft_ids.push_back(*token_id);
    if (row.adjuster.has_value()) row.adjuster->CountToken(*token_id);
    // No token follows a stop token.
    const bool is_done = num_drafted + 1 == row.depth || sequence->IsStopToken(*token_id);
    if (!is_done) unfinished.push_back(std::move(row));
  }
  return unfinished;
}

}  // namespace aiomlc
