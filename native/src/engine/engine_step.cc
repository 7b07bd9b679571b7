// One step of the engine: plan, change the model's sequences, run it, and take the tokens.
#include <algorithm>
#include <functional>
#include <span>
#include <stdexcept>
#include <utility>

#include "engine/engine.h"
#include "sequence/sequence_record.h"

namespace aiomlc {

namespace {

constexpr const char* kNotFinite = "the model's logits are not finite numbers";
constexpr const char* kNoneLeft =
    "no token is left: biases, banned tokens, the grammar and logits processors exclude all";

std::string GrammarFailure(const GrammarError& error) {
  return std::string("the grammar cannot go on: ") + error.what();
}

}  // namespace

void Engine::Guess() {
  const Clock::time_point start = Clock::now();
  const int64_t num_sequences = speculation_->Propose(scheduler_.running(), scheduler_.DraftRoom());
  meter_.Guessed(num_sequences, Clock::now() - start);
}

void Engine::RunPlan() {
  if (speculation_ != nullptr) Guess();
  const StepPlan plan = scheduler_.Plan();
  if (plan.rows.empty()) {
    if (held_.empty()) throw std::logic_error("there are sequences, but the step plan is empty");
    return mask_worker_.Wait(*held_.front()->constraint);
  }
  meter_.StepPlanned(plan);
  scheduler_.Reserve(plan);
  for (Sequence* sequence : plan.preempted) DropHeld(sequence);
  ChangeSequences(plan);
  const float* logits = Forward(plan);
  meter_.ForwardDone();
  Commit(plan, logits);
  mask_worker_.Help();
  meter_.StepDone(plan, scheduler_);
}

void Engine::ChangeSequences(const StepPlan& plan) {
  const auto fork_if = [&](auto condition) {
    for (const auto& [sequence, prefix] : plan.admitted) {
      if (prefix.num_tokens == 0 || !condition(prefix)) continue;
      model_->ForkSequence(prefix.id, sequence->model_id, prefix.num_tokens);
      ++totals_.prefix_cache_hits;
      totals_.cached_tokens += prefix.num_tokens;
    }
  };
  const auto takes_a_page = [this](const PrefixMatch& prefix) {
    return prefix.num_tokens % model_->page_size() != 0;
  };
  for (Sequence* sequence : plan.preempted) {
    model_->RemoveSequence(sequence->model_id);
    if (speculation_ != nullptr) speculation_->Remove(sequence->id);
  }
  fork_if(std::not_fn(takes_a_page));
  RemoveFromModel(plan.evicted);
  fork_if(takes_a_page);
  for (const auto& [sequence, prefix] : plan.admitted) {
    if (prefix.num_tokens == 0) model_->AddSequence(sequence->model_id);
  }
}

const float* Engine::Forward(const StepPlan& plan) {
  ForwardInput input;
  for (const StepRow& row : plan.rows) {
    const int64_t num_computed = row.sequence->num_computed;
    const auto first = row.sequence->token_ids.begin() + num_computed;
    const int64_t to_score = std::max(num_computed, row.sequence->prompt_scorer.num_scored());
    const int64_t offset = static_cast<int64_t>(input.token_ids.size()) - num_computed + to_score;
    for (int64_t i = 0; i < row.num_scored; ++i) {
      input.logit_positions.push_back(static_cast<int32_t>(offset + i));
    }
    input.sequence_ids.push_back(row.sequence->model_id);
    input.append_lengths.push_back(static_cast<int32_t>(row.num_tokens));
    input.token_ids.insert(input.token_ids.end(), first, first + row.num_tokens);
    if (!row.needs_logits) continue;
    const auto draft = row.sequence->draft_ids.begin();
    const int32_t last = static_cast<int32_t>(input.token_ids.size()) - 1;
    const int32_t num_draft = static_cast<int32_t>(row.num_draft);
    input.append_lengths.back() += num_draft;
    input.token_ids.insert(input.token_ids.end(), draft, draft + num_draft);
    for (int32_t i = 0; i <= num_draft; ++i) input.logit_positions.push_back(last + i);
  }
  return model_->Forward(input);
}

void Engine::Commit(const StepPlan& plan, const float* logits) {
  const int64_t vocab_size = model_->vocab_size();
  for (const StepRow& row : plan.rows) {
    row.sequence->num_computed += row.num_tokens;
    const float* row_logits = logits + row.num_scored * vocab_size;
    const float* end = row_logits + (row.needs_logits ? 1 + row.num_draft : 0) * vocab_size;
    if (Score(row, std::exchange(logits, end)) && row.needs_logits) CommitRow(row, row_logits);
  }
}

bool Engine::Score(const StepRow& row, const float* logits) {
  Sequence* sequence = row.sequence;
  if (sequence->prompt_scorer.Put(logits, row.num_scored, model_->vocab_size(),
                                  sequence->token_ids)) {
    return true;
  }
  FailOfModel(sequence);
  return false;
}

void Engine::CommitRow(const StepRow& row, const float* logits) {
  Sequence* sequence = row.sequence;
  const std::vector<int32_t> draft = std::exchange(sequence->draft_ids, {});
  if (row.num_draft > 0) {
    Verify(sequence, std::span(draft).first(static_cast<size_t>(row.num_draft)), logits);
  } else if (sequence->constraint != nullptr && !sequence->constraint->is_ready()) {
    Hold(sequence, logits);
  } else {
    Settle(sequence, logits);
  }
}

void Engine::Verify(Sequence* sequence, std::span<const int32_t> draft, const float* logits) {
  const int64_t num_draft = static_cast<int64_t>(draft.size());
  const int64_t first = sequence->num_tokens();
  int64_t accepted = 0;
  bool goes_on = true;
  sequence->num_unverified = num_draft;
  while (goes_on && first + accepted == sequence->num_tokens()) {
    // The logits of a draft are not held: its next ones need this mask, too.
    if (sequence->constraint != nullptr) mask_worker_.Wait(*sequence->constraint);
    goes_on = Settle(sequence, logits + accepted * model_->vocab_size());
    // A grammar may have forced more than one token.
    while (goes_on && accepted < num_draft && first + accepted < sequence->num_tokens() &&
           sequence->token_ids[first + accepted] == draft[accepted]) {
      ++accepted;
      ++sequence->num_computed;
      --sequence->num_unverified;
    }
  }
  meter_.Verified(num_draft, accepted);
  if (!goes_on) return;
  PopUnverified(sequence);
  scheduler_.Trim(sequence);
  speculation_->Learn(sequence->id, num_draft, accepted);
}

void Engine::PopUnverified(Sequence* sequence) {
  const int64_t count = std::exchange(sequence->num_unverified, 0);
  if (count > 0) model_->PopTokens(sequence->model_id, count);
}

void Engine::Hold(Sequence* sequence, const float* logits) {
  sequence->held_logits.assign(logits, logits + model_->vocab_size());
  held_.push_back(sequence);
}

void Engine::DropHeld(Sequence* sequence) {
  sequence->held_logits.clear();
  std::erase(held_, sequence);
}

void Engine::SettleHeld() {
  const std::vector<Sequence*> held = held_;
  for (Sequence* sequence : held) {
    if (!sequence->constraint->is_ready()) continue;
    const std::vector<float> logits = std::move(sequence->held_logits);
    DropHeld(sequence);
    Settle(sequence, logits.data());
  }
}

bool Engine::Settle(Sequence* sequence, const float* logits) {
  try {
    const std::optional<int32_t> token_id = Choose(*sequence, logits);
    if (token_id.has_value()) {
      scheduler_.Share(*sequence);
      return Accept(sequence, *token_id, logits) &&
             (sequence->constraint == nullptr || FollowGrammar(sequence));
    }
    // A grammar, bans or a processor may leave nothing of logits that are good.
    if (AreFinite(logits, model_->vocab_size())) {
      Fail(sequence, kNoneLeft);
    } else {
      FailOfModel(sequence);
    }
  } catch (const GrammarError& error) {
    Fail(sequence, GrammarFailure(error));
  } catch (const LogitsProcessorError& error) {
    Fail(sequence, error.what());
  }
  return false;
}

bool Engine::FollowGrammar(Sequence* sequence) {
  try {
    // A token's log-probabilities need its logits, so none is skipped where they are asked for.
    if (!sequence->top_logprobs.has_value()) {
      const Clock::time_point start = Clock::now();
      const std::vector<int32_t> forced = sequence->constraint->ForcedTokens();
      meter_.Forced(Clock::now() - start);
      for (int32_t token_id : forced) {
        ++totals_.forced_tokens;
        ++sequence->num_forced;
        if (!Accept(sequence, token_id, nullptr)) return false;
      }
    }
    mask_worker_.Start(sequence->constraint);
    return true;
  } catch (const GrammarError& error) {
    Fail(sequence, GrammarFailure(error));
  }
  return false;
}

void Engine::Fail(Sequence* sequence, std::string error) {
  Record record = NewRecord(*sequence);
  record.error = std::move(error);
  End(sequence, std::move(record), FinishReason::kError);
}

void Engine::FailOfModel(Sequence* sequence) {
  Fail(sequence, kNotFinite);
  // What it was forked from may be the cause, and would be the next one's.
  RemoveFromModel(scheduler_.EvictAll());
}

std::optional<int32_t> Engine::Choose(const Sequence& sequence, const float* logits) {
  const int64_t vocab_size = model_->vocab_size();
  if (sequence.logits_processor || sequence.logit_adjuster.is_active() ||
      sequence.constraint != nullptr) {
    adjusted_logits_.assign(logits, logits + vocab_size);
    if (sequence.logits_processor) sequence.logits_processor(sequence.token_ids, adjusted_logits_);
    sequence.logit_adjuster.Apply(adjusted_logits_.data(), vocab_size);
    if (sequence.constraint != nullptr) {
      sequence.constraint->Apply(adjusted_logits_.data(), vocab_size);
    }
    logits = adjusted_logits_.data();
  }
  return sampler_.Sample(logits, vocab_size, sequence.sampling, sequence.seed,
                         static_cast<uint64_t>(sequence.num_completion_tokens()));
}

bool Engine::Accept(Sequence* sequence, int32_t token_id, const float* logits) {
  const bool is_stop_token = sequence->IsStopToken(token_id);
  const bool is_complete =
      !is_stop_token && sequence->constraint != nullptr && sequence->constraint->Accept(token_id);
  sequence->token_ids.push_back(token_id);
  sequence->logit_adjuster.Put(token_id);
  sequence->timer.Restart(now_());
  QueueDeadline(sequence);
  ++totals_.completion_tokens;
  meter_.Sampled(sequence);
  Record record = NewRecord(*sequence);
  record.prompt_logprobs = sequence->prompt_scorer.Take();
  if (is_stop_token) {
    record.text = FlushText(sequence);
    End(sequence, std::move(record), FinishReason::kStop);
    return false;
  }
  record.token_ids = {token_id};
  if (sequence->top_logprobs.has_value()) {
    record.logprobs.push_back(
        ComputeLogprobs(logits, model_->vocab_size(), token_id, *sequence->top_logprobs));
  }
  StopMatcher& stop_matcher = sequence->stop_matcher;
  record.text = stop_matcher.Put(sequence->detokenizer.Put(token_id), sequence->may_stop());
  const bool is_full = sequence->num_completion_tokens() >= sequence->max_completion_tokens;
  if ((is_full || is_complete) && !stop_matcher.matched()) record.text += FlushText(sequence);
  if (stop_matcher.matched() || is_complete) {
    End(sequence, std::move(record), FinishReason::kStop);
  } else if (is_full) {
    End(sequence, std::move(record), FinishReason::kLength);
  } else {
    records_.push_back(std::move(record));
  }
  return records_.back().finish_reason == FinishReason::kNone;
}

}  // namespace aiomlc
