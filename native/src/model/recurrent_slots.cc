#include "model/recurrent_slots.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace aiomlc {

RecurrentSlots::RecurrentSlots(int64_t num_slots, int64_t interval)
    : interval_(interval), references_(static_cast<size_t>(num_slots)) {
  free_.reserve(references_.size());
  for (int64_t slot = num_slots; slot-- > 0;) free_.push_back(static_cast<int32_t>(slot));
}

int64_t RecurrentSlots::Cost(int64_t num_tokens, int64_t interval) {
  if (num_tokens == 0) return 0;
  // The state, the state before recorded tokens, a checkpoint per power of two, and the marks.
  const int64_t multiples = num_tokens / interval;
  return 2 + std::bit_width(static_cast<uint64_t>(multiples)) + std::min<int64_t>(2, multiples);
}

void RecurrentSlots::Add(int64_t id) { sequences_.try_emplace(id); }

SlotRun RecurrentSlots::Fork(int64_t source_id, int64_t id, int64_t num_tokens) {
  const SequenceSlots& source = sequences_.at(source_id);
  SequenceSlots fork;
  fork.length = num_tokens;
  const SlotRun run = Hold(Find(source, num_tokens));
  fork.state = run.target;
  if (num_tokens < source.length) fork.marks[static_cast<size_t>(Mark::kBranch)] = num_tokens;
  for (const auto& [position, slot] : source.checkpoints) {
    if (position > num_tokens) break;
    fork.checkpoints.emplace(position, slot);
    Share(slot);
  }
  DropCheckpoints(&fork, num_tokens);
  sequences_.emplace(id, std::move(fork));
  return run;
}

void RecurrentSlots::Remove(int64_t id) {
  auto entry = sequences_.extract(id);
  if (entry.empty()) return;  // It could not be added.
  SequenceSlots& sequence = entry.mapped();
  DropRecords(&sequence);
  for (const auto& [position, slot] : sequence.checkpoints) Release(slot);
  Release(sequence.state);
}

int64_t RecurrentSlots::Checkpoint(int64_t id, int64_t num_tokens) const {
  const SequenceSlots& sequence = sequences_.at(id);
  if (num_tokens >= sequence.length) return sequence.length;
  if (sequence.length - num_tokens <= sequence.num_recorded) return num_tokens;
  const auto next = sequence.checkpoints.upper_bound(num_tokens);
  return next == sequence.checkpoints.begin() ? 0 : std::prev(next)->first;
}

void RecurrentSlots::Keep(int64_t id, int64_t num_tokens, Mark mark) {
  const auto entry = sequences_.find(id);
  if (entry == sequences_.end()) return;
  SequenceSlots& sequence = entry->second;
  int64_t& kept = sequence.marks[static_cast<size_t>(mark)];
  const int64_t position = std::max<int64_t>(0, num_tokens - num_tokens % interval_);
  // What was computed without keeping it cannot be kept any more.
  if (position < sequence.length && !sequence.checkpoints.contains(position)) return;
  kept = position;
  DropCheckpoints(&sequence, sequence.length);
}

std::vector<SlotRun> RecurrentSlots::Append(int64_t id, int64_t count, bool records) {
  SequenceSlots& sequence = sequences_.at(id);
  DropRecords(&sequence);
  const int64_t begin = sequence.length;
  const int64_t end = begin + count;
  DropCheckpoints(&sequence, end);
  std::vector<int64_t> ends;
  for (int64_t position = begin - begin % interval_ + interval_; position <= end;
       position += interval_) {
    if (IsKept(position, end) ||
        std::find(sequence.marks.begin(), sequence.marks.end(), position) != sequence.marks.end()) {
      ends.push_back(position);
    }
  }
  if (ends.empty() || ends.back() < end) ends.push_back(end);
  std::vector<SlotRun> runs;
  // A slot of its own is written in place at the end, unless the old state is still needed.
  const bool owns_state =
      sequence.state != SlotRun::kEmpty && references_[static_cast<size_t>(sequence.state)] == 1;
  const int32_t old_state = sequence.state;
  for (const int64_t run_end : ends) {
    SlotRun run;
    run.count = run_end - sequence.length;
    run.source = sequence.state;
    const bool is_checkpoint = run_end % interval_ == 0;
    const bool is_last = run_end == end;
    run.target = is_last && !is_checkpoint && owns_state && !records ? old_state : Take();
    if (is_checkpoint) {
      sequence.checkpoints.emplace(run_end, run.target);
      Share(run.target);
    }
    // Between runs, a checkpoint holds the state alone.
    if (runs.empty()) {
      if (records) {
        sequence.base = old_state;
        sequence.num_recorded = count;
        Share(old_state);
      }
    } else {
      Release(run.source);
    }
    sequence.state = run.target;
    sequence.length = run_end;
    runs.push_back(run);
  }
  // Other sequences of the pass must not write what this one still reads.
  if (runs.back().target != old_state) sources_.push_back(old_state);
  return runs;
}

void RecurrentSlots::EndPass() {
  for (const int32_t slot : sources_) Release(slot);
  sources_.clear();
}

SlotRun RecurrentSlots::Rewind(int64_t id, int64_t num_tokens) {
  SequenceSlots& sequence = sequences_.at(id);
  for (auto entry = sequence.checkpoints.upper_bound(num_tokens);
       entry != sequence.checkpoints.end(); entry = sequence.checkpoints.erase(entry)) {
    Release(entry->second);
  }
  const SlotRun found = Find(sequence, num_tokens);
  Release(std::exchange(sequence.state, SlotRun::kEmpty));
  const SlotRun run = Hold(found);
  sequence.state = run.target;
  // The recorded tokens that remain are still a way back.
  sequence.num_recorded -= std::min(sequence.num_recorded, sequence.length - num_tokens);
  sequence.length = num_tokens;
  if (sequence.num_recorded == 0) DropRecords(&sequence);
  return run;
}

SlotRun RecurrentSlots::Find(const SequenceSlots& sequence, int64_t num_tokens) {
  const int64_t base_length = sequence.length - sequence.num_recorded;
  const auto checkpoint = sequence.checkpoints.find(num_tokens);
  if (num_tokens == 0) return {};
  if (num_tokens == sequence.length) return {.source = sequence.state};
  if (checkpoint != sequence.checkpoints.end()) return {.source = checkpoint->second};
  if (num_tokens < base_length) {
    throw std::logic_error("a recurrent state can only be cut at a checkpoint");
  }
  return {.count = num_tokens - base_length, .source = sequence.base};
}

SlotRun RecurrentSlots::Hold(SlotRun run) {
  run.target = run.count == 0 ? run.source : Take();
  if (run.count == 0) Share(run.target);
  return run;
}

int32_t RecurrentSlots::Replace(int64_t id, int64_t count) {
  SequenceSlots& sequence = sequences_.at(id);
  DropRecords(&sequence);
  Release(std::exchange(sequence.state, SlotRun::kEmpty));
  sequence.length += count;
  DropCheckpoints(&sequence, sequence.length);
  sequence.state = Take();
  return sequence.state;
}

bool RecurrentSlots::IsKept(int64_t checkpoint, int64_t length) const {
  const int64_t multiple = checkpoint / interval_;
  const int64_t power = multiple & -multiple;
  return length - checkpoint < 2 * power * interval_;
}

int32_t RecurrentSlots::Take() {
  if (free_.empty()) throw std::logic_error("more slots are used than exist");
  const int32_t slot = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void RecurrentSlots::Share(int32_t slot) {
  if (slot != SlotRun::kEmpty) ++references_[static_cast<size_t>(slot)];
}

void RecurrentSlots::Release(int32_t slot) {
  if (slot != SlotRun::kEmpty && --references_[static_cast<size_t>(slot)] == 0) {
    free_.push_back(slot);
  }
}

void RecurrentSlots::DropRecords(SequenceSlots* sequence) {
  Release(std::exchange(sequence->base, SlotRun::kEmpty));
  sequence->num_recorded = 0;
}

void RecurrentSlots::DropCheckpoints(SequenceSlots* sequence, int64_t length) {
  for (auto entry = sequence->checkpoints.begin(); entry != sequence->checkpoints.end();) {
    const auto& marks = sequence->marks;
    if (IsKept(entry->first, length) ||
        std::find(marks.begin(), marks.end(), entry->first) != marks.end()) {
      ++entry;
      continue;
    }
    Release(entry->second);
    entry = sequence->checkpoints.erase(entry);
  }
}

}  // namespace aiomlc
