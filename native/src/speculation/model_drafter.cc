#include "speculation/model_drafter.h"

#include <algorithm>
#include <utility>

#include "sampling/token_logprobs.h"

namespace aiomlc {

ModelDrafter::ModelDrafter(Model* model, int64_t step_token_budget)
    : model_(model),
      step_token_budget_(std::min(step_token_budget, model->prefill_chunk_size())),
      pages_(model->num_pages(), model->page_size()) {}

std::vector<int64_t> ModelDrafter::Propose(const std::vector<DraftRequest>& requests) {
  std::vector<Row> rows = PlanRows(requests);
  if (rows.empty()) return {};
  rows = Guess(CatchUp(std::move(rows)));
  while (!rows.empty()) {
    Continue(rows);
    rows = Guess(std::move(rows));
  }
  return std::exchange(spoiled_, {});
}

void ModelDrafter::Remove(int64_t sequence_id) {
  const auto entry = cached_.find(sequence_id);
  if (entry == cached_.end()) return;
  pages_.Release(entry->second.num_pages);
  cached_.erase(entry);
  model_->RemoveSequence(sequence_id);
}

void ModelDrafter::Clear() noexcept {
  while (!cached_.empty()) {
    try {
      Remove(cached_.begin()->first);
    } catch (...) {
      // Why it is cleared is known already, and the others are to go, too.
    }
  }
}

ModelDrafter::Cached* ModelDrafter::Align(const Sequence& sequence) {
  const auto [entry, is_new] = cached_.try_emplace(sequence.id);
  Cached* cached = &entry->second;
  if (is_new) model_->AddSequence(sequence.id);
  const std::vector<int32_t> guessed = std::exchange(cached->guessed, {});
  const int64_t num_had = cached->num_tokens + static_cast<int64_t>(guessed.size());
  // The last token is read anew in any case, also where a step came to nothing and there is no
  // new one: the logits after it are needed.
  const int64_t num_useful = sequence.num_tokens() - 1;
  for (int32_t token_id : guessed) {
    if (cached->num_tokens >= num_useful || token_id != sequence.token_ids[cached->num_tokens]) {
      break;
    }
    ++cached->num_tokens;
  }
  cached->num_tokens = std::min(cached->num_tokens, num_useful);
  if (cached->num_tokens < num_had) {
    model_->PopTokens(sequence.id, num_had - cached->num_tokens);
  }
  const int64_t num_pages = pages_.PagesFor(cached->num_tokens);
  pages_.Release(cached->num_pages - num_pages);
  cached->num_pages = num_pages;
  return cached;
}

std::vector<ModelDrafter::Row> ModelDrafter::PlanRows(const std::vector<DraftRequest>& requests) {
  std::vector<Row> rows;
  int64_t budget = step_token_budget_;
  for (const auto& [sequence, max_tokens] : requests) {
    if (budget == 0 || static_cast<int64_t>(rows.size()) == model_->max_batch_size()) break;
    // The last guess is never read.
    const int64_t depth =
        std::min(max_tokens, model_->context_window() - sequence->num_tokens() + 1);
    if (depth <= 0) continue;
    Cached* cached = Align(*sequence);
    const int64_t num_missing = sequence->num_tokens() - cached->num_tokens;
    Row row{sequence, depth, std::min(num_missing, budget), std::nullopt};
    if (row.num_missing < num_missing) row.depth = 0;
    const int64_t num_pages =
        pages_.PagesFor(cached->num_tokens + row.num_missing + std::max<int64_t>(0, row.depth - 1));
    if (num_pages - cached->num_pages > pages_.free_pages()) continue;
    pages_.Reserve(num_pages - cached->num_pages);
    cached->num_pages = num_pages;
    if (sequence->logit_adjuster.is_active()) row.adjuster = sequence->logit_adjuster;
    budget -= row.num_missing;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<ModelDrafter::Row> ModelDrafter::CatchUp(std::vector<Row> rows) {
  ForwardInput input;
  for (const Row& row : rows) {
    Cached& cached = cached_.at(row.sequence->id);
    const auto first = row.sequence->token_ids.begin() + cached.num_tokens;
    input.sequence_ids.push_back(row.sequence->id);
    input.append_lengths.push_back(static_cast<int32_t>(row.num_missing));
    input.token_ids.insert(input.token_ids.end(), first, first + row.num_missing);
    if (row.depth > 0) {
      input.logit_positions.push_back(static_cast<int32_t>(input.token_ids.size()) - 1);
    }
    cached.num_tokens += row.num_missing;
  }
  logits_ = model_->Forward(input);
  std::erase_if(rows, [](const Row& row) { return row.depth == 0; });
  return rows;
}

void ModelDrafter::Continue(const std::vector<Row>& rows) {
  ForwardInput input;
  for (const Row& row : rows) {
    const int32_t token_id = row.sequence->draft_ids.back();
    input.logit_positions.push_back(static_cast<int32_t>(input.token_ids.size()));
    input.sequence_ids.push_back(row.sequence->id);
    input.append_lengths.push_back(1);
    input.token_ids.push_back(token_id);
    cached_.at(row.sequence->id).guessed.push_back(token_id);
  }
  logits_ = model_->Forward(input);
}

std::vector<ModelDrafter::Row> ModelDrafter::Guess(std::vector<Row> rows) {
  const int64_t vocab_size = model_->vocab_size();
  const float* logits = logits_;
  std::vector<Row> left;
  for (Row& row : rows) {
    const float* unadjusted = std::exchange(logits, logits + vocab_size);
    const float* row_logits = unadjusted;
    if (row.adjuster.has_value()) {
      adjusted_logits_.assign(row_logits, row_logits + vocab_size);
      row.adjuster->Apply(adjusted_logits_.data(), vocab_size);
      row_logits = adjusted_logits_.data();
    }
    Sequence* sequence = row.sequence;
    const int64_t num_guessed = static_cast<int64_t>(sequence->draft_ids.size());
    const std::optional<int32_t> token_id =
        sampler_.Sample(row_logits, vocab_size, sequence->sampling, sequence->seed,
                        static_cast<uint64_t>(sequence->num_completion_tokens() + num_guessed));
    if (!token_id.has_value()) {
      // An adjuster may exclude all tokens; it may allow some again when the sequence is longer.
      if (!AreFinite(unadjusted, vocab_size)) spoiled_.push_back(sequence->id);
      continue;
    }
    sequence->draft_ids.push_back(*token_id);
    if (row.adjuster.has_value()) row.adjuster->CountToken(*token_id);
    // Nothing comes after a stop token.
    const bool is_done = num_guessed + 1 == row.depth || sequence->IsStopToken(*token_id);
    if (!is_done) left.push_back(std::move(row));
  }
  return left;
}

}  // namespace aiomlc
