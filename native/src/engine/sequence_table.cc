#include "engine/sequence_table.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "sequence/sequence_record.h"

namespace aiomlc {

namespace {

SequenceSnapshot SnapshotOf(const Sequence& sequence, const SequenceState& state) {
  return {sequence.id,
          sequence.num_tokens(),
          sequence.num_computed,
          sequence.reserved,
          state.Cost(sequence.num_computed),
          sequence.awaits_mask(),
          sequence.priority};
}

}  // namespace

Sequence* SequenceTable::Add(std::unique_ptr<Sequence>&& sequence) {
  Sequence* const added = sequence.get();
  std::unique_ptr<Sequence>& entry = sequences_[added->id];
  entry = std::move(sequence);
  context_.totals.prompt_tokens += added->num_prompt_tokens;
  context_.scheduler.Add(added);
  QueueDeadline(added);
  context_.meter.OnSequenceAdded(*added);
  return added;
}

Sequence* SequenceTable::Find(int64_t sequence_id) const {
  const auto entry = sequences_.find(sequence_id);
  return entry == sequences_.end() ? nullptr : entry->second.get();
}

void SequenceTable::End(Sequence* sequence, Record record, FinishReason reason) {
  const int64_t sequence_id = sequence->id;
  const bool is_in_model = !sequence->reserved.is_zero();
  // The computed tokens of a failed sequence are not kept, because they may be the cause.
  const bool is_kept = is_in_model && reason != FinishReason::kError;
  // This may throw, so it comes first, while the sequence is unchanged.
  if (is_kept) DropSpeculated(sequence);
  DropDeferred(sequence);
  deadlines_.Set(sequence_id, sequence->deadline, TimePoint::max());
  record.finish_reason = reason;
  record.timing = context_.meter.OnSequenceEnd(*sequence, reason);
  context_.records.push_back(std::move(record));
  std::vector<int64_t> removed = {sequence->cache_id};
  if (sequence->is_paused) {
    paused_.erase(sequence);
  } else if (is_kept) {
    const bool is_pinned = sequence->is_pinned && IsSuccessful(reason);
    if (is_pinned && sequence->cache_id != sequence_id) {
      pinned_entries_[sequence_id] = sequence->cache_id;
    }
    removed = is_pinned ? context_.scheduler.Pin(sequence) : context_.scheduler.Recycle(sequence);
  } else {
    context_.scheduler.Remove(sequence);
  }
  sequences_.erase(sequence_id);
  if (context_.speculation != nullptr) context_.speculation->Remove(sequence_id);
  if (is_in_model) RemoveFromModel(removed);
}

void SequenceTable::EndExpired() {
  if (deadlines_.Next() == TimePoint::max()) return;
  for (int64_t sequence_id : deadlines_.Expired(context_.now())) {
    Sequence* const sequence = sequences_.at(sequence_id).get();
    Record record = NewRecord(*sequence);
    record.text = FlushText(sequence);
    record.error = sequence->timer.Next().limit;
    End(sequence, std::move(record), FinishReason::kTimeout);
  }
}

std::string SequenceTable::EndAll(FinishReason reason, const std::string& error) {
  std::string failure;
  const auto attempt = [&](auto action) {
    try {
      action();
    } catch (const std::exception& thrown) {
      // Continue, because all sequences must end; only the first failure is reported.
      if (failure.empty()) failure = std::string("the model failed: ") + thrown.what();
    }
  };
  std::vector<int64_t> sequence_ids;
  sequence_ids.reserve(sequences_.size());
  for (const auto& [sequence_id, sequence] : sequences_) sequence_ids.push_back(sequence_id);
  std::sort(sequence_ids.begin(), sequence_ids.end());
  for (int64_t sequence_id : sequence_ids) {
    Sequence* const sequence = sequences_.at(sequence_id).get();
    Record record = NewRecord(*sequence);
    record.error = error;
    attempt([&] { End(sequence, std::move(record), reason); });
  }
  attempt([&] { EvictAll(); });
  return failure;
}

void SequenceTable::PauseSequence(Sequence* sequence) {
  DropDeferred(sequence);
  const bool is_in_model = !sequence->reserved.is_zero();
  std::vector<int64_t> removed;
  if (is_in_model) {
    removed = context_.scheduler.Recycle(sequence);
    // From here on, the old id identifies the prefix cache entry.
    sequence->cache_id = ids_.Next();
  } else {
    context_.scheduler.Remove(sequence);
  }
  sequence->num_computed = 0;
  sequence->is_paused = true;
  sequence->timer.Pause();
  QueueDeadline(sequence);
  paused_.insert(sequence);
  if (context_.speculation != nullptr) context_.speculation->Evict(sequence->id);
  RemoveFromModel(removed);
}

void SequenceTable::ResumeSequence(Sequence* sequence) {
  paused_.erase(sequence);
  sequence->is_paused = false;
  sequence->timer.Resume(context_.now());
  QueueDeadline(sequence);
  context_.scheduler.Add(sequence);
}

void SequenceTable::Unpin(int64_t sequence_id) {
  const auto entry = pinned_entries_.extract(sequence_id);
  RemoveFromModel(context_.scheduler.Unpin(entry.empty() ? sequence_id : entry.mapped()));
}

void SequenceTable::EvictAll() {
  pinned_entries_.clear();
  RemoveFromModel(context_.scheduler.EvictAll());
}

void SequenceTable::RemoveFromModel(const std::vector<int64_t>& sequence_ids) {
  std::exception_ptr failure;
  for (int64_t sequence_id : sequence_ids) {
    try {
      context_.model->state().Remove(sequence_id);
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

void SequenceTable::DropSpeculated(Sequence* sequence) {
  const int64_t num_speculated = std::exchange(sequence->num_speculated, 0);
  if (num_speculated == 0) return;
  SequenceState& state = context_.model->state();
  const int64_t checkpoint = state.Checkpoint(sequence->cache_id, sequence->num_computed);
  state.Rewind(sequence->cache_id, sequence->num_computed - checkpoint + num_speculated);
  if (checkpoint == sequence->num_computed) return;
  sequence->num_computed = checkpoint;
  // The logits are computed again with the tokens after the checkpoint.
  DropDeferred(sequence);
}

void SequenceTable::QueueDeadline(Sequence* sequence) {
  const TimePoint next = sequence->timer.Next().at;
  deadlines_.Set(sequence->id, sequence->deadline, next);
  sequence->deadline = next;
}

void SequenceTable::DeferForMask(Sequence* sequence, const float* logits) {
  sequence->deferred_logits.assign(logits, logits + context_.model->vocab_size());
  deferred_.push_back(sequence);
}

void SequenceTable::DropDeferred(Sequence* sequence) {
  sequence->deferred_logits.clear();
  std::erase(deferred_, sequence);
}

EngineSnapshot SequenceTable::Snapshot(int64_t max_sequence_tokens) const {
  const Scheduler& scheduler = context_.scheduler;
  const PrefixCache& prefix_cache = scheduler.prefix_cache();
  EngineSnapshot snapshot;
  snapshot.total = scheduler.budget().total();
  snapshot.free = scheduler.budget().free();
  snapshot.max_running = scheduler.max_running();
  snapshot.max_sequence_tokens = max_sequence_tokens;
  snapshot.kept = prefix_cache.recycling_cost() + prefix_cache.pinned_cost();
  for (const auto& [id, sequence] : sequences_) snapshot.live_ids.push_back(id);
  for (const Sequence* sequence : scheduler.running()) {
    snapshot.running.push_back(SnapshotOf(*sequence, context_.model->state()));
  }
  for (const Sequence* sequence : scheduler.waiting()) {
    snapshot.waiting.push_back(SnapshotOf(*sequence, context_.model->state()));
  }
  for (const Sequence* sequence : paused_)
    snapshot.paused.push_back(SnapshotOf(*sequence, context_.model->state()));
  return snapshot;
}

}  // namespace aiomlc
