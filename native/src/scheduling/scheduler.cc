#include "scheduling/scheduler.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "scheduling/scheduler_policy.h"

namespace aiomlc {

namespace {

bool ComesBefore(const Sequence* a, const Sequence* b) { return a->ComesBefore(*b); }

PrefixKey ForkableKey(const Sequence& sequence) {
  return sequence.prefix_key(sequence.num_forkable());
}

int64_t CountForkable(const Sequence& sequence, const Sequence& other) {
  return static_cast<int64_t>(
      CountCommon(ForkableKey(sequence), other.prefix_key(other.num_tokens())));
}

/*! \brief A sequence that may get a row, with its computed tokens after admission. */
struct RowCandidate {
  Sequence* sequence;
  int64_t num_computed;

  int64_t num_uncomputed() const { return sequence->num_tokens() - num_computed; }
  bool is_decoding() const {
    return sequence->num_completion_tokens() > 0 && num_uncomputed() == 1;
  }
  /*! \brief Whether prompt tokens are computed, and not only tokens that a grammar has forced. */
  bool prefills() const {
    return num_uncomputed() > 0 && num_computed < sequence->num_prompt_tokens;
  }
  int64_t MaxTokensWithin(int64_t max_scored) const {
    return sequence->prompt_scorer.MaxTokensWithin(num_computed, max_scored);
  }
  int64_t CountScored(int64_t num_tokens) const {
    return sequence->prompt_scorer.CountLogits(num_computed, num_computed + num_tokens);
  }
};

}  // namespace

Scheduler::Scheduler(const SequenceState* state, const SchedulerLimits& limits)
    : state_(state),
      step_token_budget_(limits.step_token_budget),
      idle_step_token_budget_(std::max(limits.step_token_budget, limits.idle_step_token_budget)),
      max_scored_(limits.max_scored),
      separate_prefill_(limits.separate_prefill),
      needs_whole_pieces_(limits.needs_whole_pieces),
      // With at most as many sequences as tokens, decodes always leave tokens for a prefill.
      max_running_(std::min(limits.max_batch_size, limits.step_token_budget)),
      budget_(state->total()),
      prefix_cache_(limits.max_recycling, state->granularity() == 1) {}

void Scheduler::Add(Sequence* sequence) {
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), sequence, ComesBefore),
                  sequence);
}

void Scheduler::Remove(Sequence* sequence) {
  if (std::erase(running_, sequence) + std::erase(waiting_, sequence) != 1) {
    throw std::logic_error("the sequence is not in the scheduler exactly once");
  }
  prefix_cache_.Remove(sequence->cache_id);
  budget_.Release(std::exchange(sequence->reserved, {}));
  sequence->draft_ids.clear();
}

std::vector<int64_t> Scheduler::Recycle(Sequence* sequence) {
  Remove(sequence);
  if (!prefix_cache_.is_on() || sequence->num_computed == 0) return {sequence->cache_id};
  const Resources cost = state_->Cost(sequence->num_computed);
  budget_.Reserve(cost);
  return EvictEach(prefix_cache_.Recycle(sequence->cache_id,
                                         sequence->prefix_key(sequence->num_computed), cost));
}

std::vector<int64_t> Scheduler::Pin(Sequence* sequence) {
  Remove(sequence);
  if (sequence->num_computed == 0) return {sequence->cache_id};
  const Resources cost = state_->Cost(sequence->num_computed);
  budget_.Reserve(cost);
  return EvictEach(
      prefix_cache_.Pin(sequence->cache_id, sequence->prefix_key(sequence->num_computed), cost));
}

std::vector<int64_t> Scheduler::Unpin(int64_t id) { return EvictEach(prefix_cache_.Unpin(id)); }

void Scheduler::Trim(Sequence* sequence) {
  // A running sequence holds something, even if it was rewound to its beginning.
  const Resources cost = state_->Cost(std::max<int64_t>(sequence->num_computed, 1));
  budget_.Release(sequence->reserved - cost);
  sequence->reserved = cost;
}

int64_t Scheduler::DraftTokenBudget() const {
  int64_t budget = step_token_budget_;
  for (const Sequence* sequence : running_) budget -= sequence->num_uncomputed();
  return budget;
}

std::optional<std::vector<int64_t>> Scheduler::AddImported(int64_t id, const PrefixKey& key,
                                                           int64_t source_id) {
  const Resources cost = state_->Cost(static_cast<int64_t>(key.size()));
  if (!cost.FitsIn(available())) return std::nullopt;
  std::vector<int64_t> evicted =
      EvictEach(ChooseEvictions(cost - budget_.free(), {source_id}, false));
  budget_.Reserve(cost);
  const std::vector<int64_t> redundant = EvictEach(prefix_cache_.Recycle(id, key, cost));
  evicted.insert(evicted.end(), redundant.begin(), redundant.end());
  return evicted;
}

void Scheduler::Share(const Sequence& sequence) {
  prefix_cache_.Share(sequence.cache_id, sequence.prefix_key(sequence.num_computed));
}

void Scheduler::Evict(int64_t id) { budget_.Release(prefix_cache_.Remove(id)); }

std::vector<int64_t> Scheduler::EvictEach(std::vector<int64_t> ids) {
  for (int64_t id : ids) Evict(id);
  return ids;
}

std::vector<int64_t> Scheduler::EvictAll() {
  const std::list<int64_t>& order = prefix_cache_.eviction_order();
  std::vector<int64_t> ids(order.begin(), order.end());
  for (const auto& [id, cost] : prefix_cache_.pinned()) ids.push_back(id);
  return EvictEach(std::move(ids));
}

Resources Scheduler::CostOfNextStep(const Sequence& sequence, int64_t num_draft) const {
  return state_->Cost(sequence.num_tokens() + num_draft);
}

size_t Scheduler::PlanPreemptions(StepPlan* plan) const {
  std::vector<RunningCounters> counters;
  counters.reserve(running_.size());
  for (const Sequence* sequence : running_) {
    counters.push_back({sequence->reserved, CostOfNextStep(*sequence)});
  }
  // The first sequence always keeps running: without the others it fits, if pinned entries are
  // evicted.
  const size_t num_survivors =
      std::max<size_t>(CountSurvivors(counters, available()), running_.empty() ? 0 : 1);
  for (size_t i = running_.size(); i > num_survivors; --i)
    plan->preempted.push_back(running_[i - 1]);
  return num_survivors;
}

Admissions Scheduler::SelectAdmissions(size_t num_waiting, const Resources& free) const {
  std::vector<WaitingCounters> counters;
  counters.reserve(num_waiting);
  for (size_t i = 0; i < num_waiting; ++i) {
    counters.push_back({CostOfNextStep(*waiting_[i]), waiting_[i]->times_bypassed});
  }
  return ChooseAdmissions(counters, free, state_->token_cost(),
                          static_cast<int64_t>(running_.size()), max_running_);
}

void Scheduler::PlanAdmissions(StepPlan* plan) const {
  const int64_t num_running = static_cast<int64_t>(running_.size());
  if (waiting_.empty() || num_running >= max_running_) return;
  Resources free = available();
  for (const Sequence* sequence : running_) {
    free -= CostOfNextStep(*sequence) - sequence->reserved;
  }
  Admissions admissions = SelectAdmissions(waiting_.size(), free);
  if (admissions.admitted.empty() && running_.empty()) {
    // Nothing is running that could free anything, so even pinned entries may be evicted.
    admissions = SelectAdmissions(1, budget_.total());
  }
  std::vector<size_t> deferred;
  for (size_t index : admissions.admitted) {
    const PrefixMatch prefix = FindPrefix(ForkableKey(*waiting_[index]));
    if (ShouldWait(*waiting_[index], prefix.num_tokens, *plan)) {
      deferred.push_back(index);
    } else {
      plan->admitted.push_back({waiting_[index], prefix});
    }
  }
  for (size_t index = 0; index < admissions.newly_bypassed.size(); ++index) {
    const auto later = std::upper_bound(deferred.begin(), deferred.end(), index);
    const int64_t times = admissions.newly_bypassed[index] - (deferred.end() - later);
    if (times > 0) plan->bypassed.insert(plan->bypassed.end(), times, waiting_[index]);
  }
}

PrefixMatch Scheduler::FindPrefix(const PrefixKey& key) const {
  return prefix_cache_.Find(key, [&](int64_t id, int64_t num_tokens) {
    return LastFork(id, key.keys.pieces, num_tokens, ForkKind::kAny);
  });
}

int64_t Scheduler::LastFork(int64_t id, std::span<const PieceKey> pieces, int64_t num_tokens,
                            ForkKind kind) const {
  // A checkpoint before a piece may divide an earlier one.
  for (int64_t limit = num_tokens;;) {
    if (kind == ForkKind::kShared) limit = LastSharedFork(*state_, limit);
    const int64_t checkpoint = state_->Checkpoint(id, limit);
    limit = WithoutCutPiece(pieces, checkpoint);
    if (limit == checkpoint) return checkpoint;
  }
}

bool Scheduler::ShouldWait(const Sequence& sequence, int64_t num_cached,
                           const StepPlan& plan) const {
  if (!prefix_cache_.is_on()) return false;
  const auto can_fork_later = [&](const Sequence* other) {
    if (!other->ComesBefore(sequence) || other->is_decoding()) return false;
    int64_t num_common = CountForkable(sequence, *other);
    num_common -= num_common % state_->granularity();
    num_common = WithoutCutPiece(sequence.piece_keys, num_common);
    return IsWorthWaiting(num_cached, num_common, sequence.num_tokens());
  };
  return std::any_of(running_.begin(), running_.end(), can_fork_later) ||
         std::any_of(
             plan.admitted.begin(), plan.admitted.end(),
             [&](const StepAdmission& admission) { return can_fork_later(admission.sequence); });
}

void Scheduler::PlanEvictions(size_t num_survivors, StepPlan* plan) const {
  Resources missing = Resources() - budget_.free();
  for (const Sequence* sequence : plan->preempted) missing -= sequence->reserved;
  for (size_t i = 0; i < num_survivors; ++i) {
    missing += CostOfNextStep(*running_[i]) - running_[i]->reserved;
  }
  std::set<int64_t> sources;
  for (const StepAdmission& admission : plan->admitted) {
    missing += CostOfNextStep(*admission.sequence);
    if (admission.prefix.num_tokens > 0) sources.insert(admission.prefix.id);
  }
  plan->evicted = ChooseEvictions(missing, sources, true);
  const std::set<int64_t> evicted(plan->evicted.begin(), plan->evicted.end());
  for (auto& [sequence, prefix] : plan->admitted) {
    if (!evicted.contains(prefix.id)) continue;
    prefix.num_tokens =
        LastFork(prefix.id, sequence->piece_keys, prefix.num_tokens, ForkKind::kShared);
  }
}

std::vector<int64_t> Scheduler::ChooseEvictions(Resources missing, const std::set<int64_t>& sources,
                                                bool evicts_pinned) const {
  if (missing.FitsIn({})) return {};
  std::vector<int64_t> order(prefix_cache_.eviction_order().begin(),
                             prefix_cache_.eviction_order().end());
  std::stable_partition(order.begin(), order.end(),
                        [&](int64_t id) { return !sources.contains(id); });
  // Pinned entries come last: they are evicted only if a sequence could not run otherwise.
  if (evicts_pinned) {
    for (const auto& [id, cost] : prefix_cache_.pinned()) order.push_back(id);
  }
  size_t count = 0;
  while (count < order.size() && !missing.FitsIn({})) {
    missing -= prefix_cache_.CostOf(order[count++]);
  }
  order.resize(count);
  return order;
}

void Scheduler::PlanRows(size_t num_survivors, StepPlan* plan) const {
  std::vector<RowCandidate> order;
  order.reserve(num_survivors + plan->admitted.size());
  for (size_t i = 0; i < num_survivors; ++i) {
    order.push_back({running_[i], running_[i]->num_computed});
  }
  for (const auto& [sequence, prefix] : plan->admitted) {
    order.push_back({sequence, prefix.num_tokens});
  }
  std::sort(order.begin(), order.end(), [](const RowCandidate& a, const RowCandidate& b) {
    return ComesBefore(a.sequence, b.sequence);
  });
  const auto first_prefill =
      std::stable_partition(order.begin(), order.end(),
                            [](const RowCandidate& candidate) { return candidate.is_decoding(); });
  const auto prompt = std::find_if(first_prefill, order.end(), [](const RowCandidate& candidate) {
    return candidate.prefills();
  });
  const auto without_cut = [this](const RowCandidate& candidate, int64_t num_tokens) {
    const int64_t end = candidate.num_computed + num_tokens;
    return WithoutCutPiece(candidate.sequence->piece_keys, end) - candidate.num_computed;
  };
  const int64_t num_decodes = first_prefill - order.begin();
  // A long step delays nobody.
  const bool is_alone =
      order.size() == 1 && plan->preempted.empty() && waiting_.size() == plan->admitted.size();
  const int64_t budget = is_alone ? idle_step_token_budget_ : step_token_budget_;
  const int64_t num_left = budget - num_decodes;
  // A piece may need more tokens than the decodes of every step leave.
  if (prompt != order.end() &&
      (separate_prefill_ ||
       without_cut(*prompt, std::min(prompt->num_uncomputed(), num_left)) == 0)) {
    order.erase(order.begin(), first_prefill);
  } else {
    plan->decode_tokens = num_decodes;
  }
  std::vector<int64_t> requested;
  requested.reserve(order.size());
  int64_t max_scored = max_scored_;
  for (const RowCandidate& candidate : order) {
    const int64_t num_tokens =
        std::min(candidate.num_uncomputed(), candidate.MaxTokensWithin(max_scored));
    max_scored -= candidate.CountScored(num_tokens);
    requested.push_back(num_tokens);
  }
  const std::vector<int64_t> granted =
      SplitBudget(requested, budget,
                  [&](size_t row, int64_t tokens) { return without_cut(order[row], tokens); });
  for (size_t i = 0; i < order.size(); ++i) {
    if (granted[i] == 0) continue;
    const bool needs_logits = granted[i] == order[i].num_uncomputed();
    plan->rows.push_back(
        {order[i].sequence, granted[i], needs_logits, 0, order[i].CountScored(granted[i])});
    plan->prefill_tokens += granted[i];
  }
  plan->prefill_tokens -= plan->decode_tokens;
}

void Scheduler::PlanDrafts(StepPlan* plan) const {
  // Resources that were just taken from a sequence or from the prefix cache are not used for
  // drafts.
  if (!plan->preempted.empty() || !plan->evicted.empty()) return;
  Resources free = budget_.free();
  for (const Sequence* sequence : running_) {
    free -= CostOfNextStep(*sequence) - sequence->reserved;
  }
  for (const StepAdmission& admission : plan->admitted) {
    free -= CostOfNextStep(*admission.sequence);
  }
  int64_t token_budget =
      std::max<int64_t>(0, step_token_budget_ - plan->prefill_tokens - plan->decode_tokens);
  for (StepRow& row : plan->rows) {
    const Resources cost = CostOfNextStep(*row.sequence);
    row.num_draft = std::min(static_cast<int64_t>(row.sequence->draft_ids.size()), token_budget);
    while (row.num_draft > 0 &&
           !(CostOfNextStep(*row.sequence, row.num_draft) - cost).FitsIn(free)) {
      --row.num_draft;
    }
    token_budget -= row.num_draft;
    plan->draft_tokens += row.num_draft;
    free -= CostOfNextStep(*row.sequence, row.num_draft) - cost;
  }
}

StepPlan Scheduler::Plan() const {
  StepPlan plan;
  const size_t num_survivors = PlanPreemptions(&plan);
  // A sequence admitted into pages of a preempted one would be the next to be preempted.
  if (plan.preempted.empty()) PlanAdmissions(&plan);
  PlanEvictions(num_survivors, &plan);
  PlanRows(num_survivors, &plan);
  PlanDrafts(&plan);
  return plan;
}

void Scheduler::ApplyPlan(const StepPlan& plan) {
  for (Sequence* sequence : plan.preempted) {
    Remove(sequence);
    sequence->num_computed = 0;
    Add(sequence);
  }
  for (Sequence* sequence : plan.bypassed) ++sequence->times_bypassed;
  for (int64_t id : plan.evicted) Evict(id);
  for (const auto& [sequence, prefix] : plan.admitted) {
    sequence->num_computed = prefix.num_tokens;
    sequence->times_bypassed = 0;
    if (!std::exchange(sequence->has_started, true)) {
      sequence->num_cached = std::min(prefix.num_tokens, sequence->num_prompt_tokens);
    }
    if (prefix.num_tokens > 0) prefix_cache_.Touch(prefix.id);
    std::erase(waiting_, sequence);
    running_.insert(std::upper_bound(running_.begin(), running_.end(), sequence, ComesBefore),
                    sequence);
  }
  for (Sequence* sequence : running_) {
    const Resources cost = CostOfNextStep(*sequence);
    budget_.Reserve(cost - sequence->reserved);
    sequence->reserved = cost;
  }
  for (const StepRow& row : plan.rows) {
    const Resources cost = CostOfNextStep(*row.sequence, row.num_draft);
    budget_.Reserve(cost - row.sequence->reserved);
    row.sequence->reserved = cost;
  }
}

}  // namespace aiomlc
