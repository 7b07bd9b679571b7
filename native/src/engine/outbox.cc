#include "engine/outbox.h"

#include <iterator>
#include <utility>

namespace aiomlc {

void Outbox::Put(Record&& record) {
  const auto entry = index_by_sequence_.find(record.sequence_id);
  if (entry == index_by_sequence_.end()) {
    // The index comes last: it must not be out of range if memory is exhausted.
    const int64_t sequence_id = record.sequence_id;
    records_.push_back(std::move(record));
    if (records_.size() == 1) wake_.Signal();
    index_by_sequence_.emplace(sequence_id, records_.size() - 1);
    return;
  }
  Record& merged = records_[entry->second];
  merged.text += record.text;
  merged.token_ids.insert(merged.token_ids.end(), record.token_ids.begin(), record.token_ids.end());
  merged.logprobs.insert(merged.logprobs.end(), std::make_move_iterator(record.logprobs.begin()),
                         std::make_move_iterator(record.logprobs.end()));
  // Only the record of the first token has prompt log-probabilities.
  if (!record.prompt_logprobs.empty()) merged.prompt_logprobs = std::move(record.prompt_logprobs);
  merged.finish_reason = record.finish_reason;
  merged.error = std::move(record.error);
  merged.prompt_tokens = record.prompt_tokens;
  merged.completion_tokens = record.completion_tokens;
  merged.cached_tokens = record.cached_tokens;
  merged.timing = record.timing;
}

std::vector<Record> Outbox::Drain() {
  wake_.Clear();
  index_by_sequence_.clear();
  return std::exchange(records_, {});
}

}  // namespace aiomlc
