#include "engine/stepper.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "prompt/rope_positions.h"
#include "sequence/sequence_record.h"

namespace aiomlc {

Stepper::Stepper(Model* model, const EngineOptions& options, IdSource* ids)
    : context_(model, options),
      sequences_(&context_, ids),
      committer_(&context_, &sequences_),
      prefixes_(&context_, &sequences_, ids) {}

void Stepper::Step(Inbox calls) {
  ApplyCalls(std::move(calls));
  sequences_.EndExpired();
  committer_.CommitDeferred();
  if (sequences_.has_unpaused()) RunPlan();
}

std::string Stepper::Abort(std::vector<std::unique_ptr<Sequence>> submitted, FinishReason reason,
                           const std::string& error) {
  std::string failure;
  const auto add_all = [&](std::vector<std::unique_ptr<Sequence>>& sequences) {
    for (std::unique_ptr<Sequence>& sequence : sequences) {
      try {
        if (sequence != nullptr) sequences_.Add(std::move(sequence));
      } catch (const std::exception& thrown) {  // Memory is exhausted: the others end all the same.
        failure = std::string("a request was lost: ") + thrown.what();
      }
    }
  };
  add_all(submitted_);
  add_all(submitted);
  const std::string end_failure = sequences_.EndAll(reason, error);
  return end_failure.empty() ? failure : end_failure;
}

void Stepper::ApplyCalls(Inbox calls) {
  context_.meter.OnStepBegin();  // Tokens may be forced.
  // A member, so that `Abort` can end them if this fails.
  submitted_ = std::move(calls.submitted);
  std::vector<Sequence*> added;
  added.reserve(submitted_.size());
  for (std::unique_ptr<Sequence>& sequence : submitted_) {
    added.push_back(sequences_.Add(std::move(sequence)));
  }
  submitted_.clear();
  std::vector<int64_t> added_ids;
  for (Sequence* sequence : added) {
    added_ids.push_back(sequence->id);
    if (sequence->constraint != nullptr) committer_.CommitForcedTokens(sequence);
  }
  for (int64_t sequence_id : calls.cancelled) {
    Sequence* const sequence = sequences_.Find(sequence_id);
    if (sequence != nullptr) sequences_.End(sequence, NewRecord(*sequence), FinishReason::kAbort);
  }
  for (const auto& [sequence_id, is_paused] : calls.paused) {
    Sequence* const sequence = sequences_.Find(sequence_id);
    if (sequence == nullptr || sequence->is_paused == is_paused) continue;
    if (is_paused) {
      sequences_.PauseSequence(sequence);
    } else {
      sequences_.ResumeSequence(sequence);
    }
  }
  for (int64_t sequence_id : calls.unpinned) sequences_.Unpin(sequence_id);
  if (!calls.is_reset) return;
  sequences_.EvictAll();
  context_.totals = Statistics();
  for (int64_t sequence_id : added_ids) {
    const Sequence* const sequence = sequences_.Find(sequence_id);
    if (sequence == nullptr) continue;
    context_.totals.prompt_tokens += sequence->num_prompt_tokens;
    context_.totals.completion_tokens += sequence->num_completion_tokens();
    context_.totals.forced_tokens += sequence->num_forced;
  }
}

void Stepper::RunPlan() {
  if (context_.speculation != nullptr) ProposeDrafts();
  const StepPlan plan = context_.scheduler.Plan();
  if (plan.rows.empty()) {
    const std::vector<Sequence*>& deferred = sequences_.deferred();
    if (deferred.empty()) throw std::logic_error("the step plan is empty, but sequences are live");
    return committer_.WaitForAnyMask(deferred);
  }
  context_.meter.OnStepPlanned(plan);
  context_.scheduler.ApplyPlan(plan);
  for (Sequence* sequence : plan.preempted) sequences_.DropDeferred(sequence);
  ApplySequenceChanges(plan);
  const float* logits = Forward(plan);
  context_.meter.OnForwardEnd();
  committer_.Commit(plan, logits);
  committer_.HelpWithMasks();
  context_.meter.OnStepEnd(plan, context_.scheduler);
}

void Stepper::ProposeDrafts() {
  const Clock::time_point start = Clock::now();
  const int64_t num_sequences = context_.speculation->Propose(
      context_.scheduler.running(), context_.scheduler.DraftTokenBudget());
  context_.meter.OnDraftsProposed(num_sequences, Clock::now() - start);
}

void Stepper::ApplySequenceChanges(const StepPlan& plan) {
  SequenceState& state = context_.model->state();
  const auto fork_if = [&](auto condition) {
    for (const auto& [sequence, prefix] : plan.admitted) {
      if (prefix.num_tokens == 0 || !condition(prefix)) continue;
      state.Fork(prefix.id, sequence->cache_id, prefix.num_tokens);
      ++context_.totals.prefix_cache_hits;
      context_.totals.cached_tokens += prefix.num_tokens;
    }
  };
  const auto takes_resources = [&](const PrefixMatch& prefix) {
    return prefix.num_tokens != LastSharedFork(state, prefix.num_tokens);
  };
  for (Sequence* sequence : plan.preempted) {
    state.Remove(sequence->cache_id);
    if (context_.speculation != nullptr) context_.speculation->Evict(sequence->id);
  }
  // Before the eviction, which may remove the sources of these forks. The other forks need
  // what the evictions free.
  fork_if(std::not_fn(takes_resources));
  sequences_.RemoveFromModel(plan.evicted);
  fork_if(takes_resources);
  for (const auto& [sequence, prefix] : plan.admitted) {
    if (prefix.num_tokens == 0) state.Add(sequence->cache_id);
    // What one sequence has in common with another, the next ones will have, too. A conversation
    // goes on where a prompt ends, but for the tokens with which the template begins an answer.
    constexpr int64_t kAnswerBegin = 8;
    state.Keep(sequence->cache_id, prefix.num_common, Mark::kBranch);
    if (prefix.num_tokens > 0) state.Keep(prefix.id, prefix.num_tokens, Mark::kBranch);
    state.Keep(sequence->cache_id, sequence->num_prompt_tokens - kAnswerBegin, Mark::kPromptEnd);
  }
}

void Stepper::AddEmbedded(const StepRow& row, ForwardInput* input) {
  const int64_t begin = row.sequence->num_computed;
  const int64_t end = begin + row.num_tokens;
  const int64_t offset = static_cast<int64_t>(input->token_ids.size()) - end;
  for (const PromptPiece& piece : row.sequence->pieces) {
    const int64_t first = std::max(begin, piece.key.begin);
    const int64_t count = std::min(end, piece.key.end()) - first;
    if (count <= 0) continue;
    const float* rows = piece.rows.get() + (first - piece.key.begin) * piece.row_size;
    input->embedded.push_back(
        {static_cast<int32_t>(offset + first), static_cast<int32_t>(count), rows});
  }
}

void Stepper::AddRopePositions(const StepPlan& plan, ForwardInput* input) {
  const auto has_grids = [](const StepRow& row) { return row.sequence->has_grids; };
  if (std::none_of(plan.rows.begin(), plan.rows.end(), has_grids)) return;
  const size_t num_tokens = input->token_ids.size();
  input->rope_positions.resize(kRopeAxes * num_tokens);
  int32_t* out = input->rope_positions.data();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const Sequence& sequence = *plan.rows[i].sequence;
    const int64_t count = input->append_lengths[i];
    WriteRopePositions(sequence.piece_keys, sequence.num_computed, sequence.num_computed + count,
                       static_cast<int64_t>(num_tokens), out);
    out += count;
  }
}

const float* Stepper::Forward(const StepPlan& plan) {
  ForwardInput input;
  for (const StepRow& row : plan.rows) {
    const int64_t num_computed = row.sequence->num_computed;
    const auto first = row.sequence->token_ids.begin() + num_computed;
    const int64_t to_score = std::max(num_computed, row.sequence->prompt_scorer.num_scored());
    const int64_t offset = static_cast<int64_t>(input.token_ids.size()) - num_computed + to_score;
    for (int64_t i = 0; i < row.num_scored; ++i) {
      input.logit_positions.push_back(static_cast<int32_t>(offset + i));
    }
    input.sequence_ids.push_back(row.sequence->cache_id);
    input.append_lengths.push_back(static_cast<int32_t>(row.num_tokens));
    input.token_ids.insert(input.token_ids.end(), first, first + row.num_tokens);
    AddEmbedded(row, &input);
    if (!row.needs_logits) continue;
    const auto draft = row.sequence->draft_ids.begin();
    const int32_t last = static_cast<int32_t>(input.token_ids.size()) - 1;
    const int32_t num_draft = static_cast<int32_t>(row.num_draft);
    input.append_lengths.back() += num_draft;
    input.token_ids.insert(input.token_ids.end(), draft, draft + num_draft);
    for (int32_t i = 0; i <= num_draft; ++i) input.logit_positions.push_back(last + i);
    if (num_draft == 0) continue;
    input.draft_lengths.resize(plan.rows.size());
    input.draft_lengths[input.sequence_ids.size() - 1] = num_draft;
  }
  AddRopePositions(plan, &input);
  if (context_.speculation == nullptr || context_.speculation->hidden_layers().empty()) {
    return context_.model->Forward(input).logits;
  }
  return ForwardForDrafter(plan, std::move(input));
}

const float* Stepper::ForwardForDrafter(const StepPlan& plan, ForwardInput input) {
  TargetPass pass;
  int64_t offset = 0;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const Sequence* const sequence = plan.rows[i].sequence;
    const int64_t num_tokens = input.append_lengths[i];
    pass.rows.push_back({sequence->id, sequence, sequence->num_computed, num_tokens, offset});
    offset += num_tokens;
  }
  input.hidden.layers = context_.speculation->hidden_layers();
  input.hidden.positions.resize(input.token_ids.size());
  std::iota(input.hidden.positions.begin(), input.hidden.positions.end(), 0);
  pass.output = context_.model->Forward(input);
  const float* const logits = pass.output.logits;
  context_.speculation->OnForward(std::move(pass));
  return logits;
}

std::vector<std::string> Stepper::TakeNotices() {
  std::vector<std::string> notices;
  if (context_.speculation == nullptr) return notices;
  Statistics& totals = context_.totals;
  totals.speculation_failure = context_.speculation->failure();
  for (const auto& [sequence_id, cause] : context_.speculation->TakeFailures()) {
    const bool is_first = totals.draft_failures == 0;
    context_.meter.OnDraftFailure(sequence_id);
    if (sequence_id < 0) {
      notices.push_back("speculative decoding is disabled: " + cause);
    } else if (is_first) {
      notices.push_back(
          "speculative decoding is disabled for a sequence (failures of later sequences are not "
          "logged): " +
          cause);
    }
  }
  return notices;
}

const Statistics& Stepper::UpdateStatistics() {
  const Scheduler& scheduler = context_.scheduler;
  Statistics& totals = context_.totals;
  totals.num_running = static_cast<int64_t>(scheduler.running().size());
  totals.num_waiting = static_cast<int64_t>(scheduler.waiting().size());
  totals.num_paused = sequences_.num_paused();
  totals.total_pages = scheduler.budget().total().pages;
  totals.free_pages = scheduler.available().pages;
  totals.total_slots = scheduler.budget().total().slots;
  totals.free_slots = scheduler.available().slots;
  totals.num_recycling = scheduler.prefix_cache().num_recycling();
  totals.num_pinned = static_cast<int64_t>(scheduler.prefix_cache().pinned().size());
  return totals;
}

void Stepper::CheckInvariants(int64_t max_sequence_tokens) const {
  std::string message;
  for (const std::string& violation : FindViolations(sequences_.Snapshot(max_sequence_tokens))) {
    message += violation + "; ";
  }
  for (const std::string& violation : context_.scheduler.prefix_cache().FindViolations()) {
    message += violation + "; ";
  }
  if (!message.empty()) throw std::logic_error(message);
}

}  // namespace aiomlc
