#include "engine/outbox.h"

#include <iterator>
#include <utility>

namespace aiomlc {

void Outbox::Put(Record&& record) {
  const auto [entry, is_new] = index_by_sequence_.try_emplace(record.sequence_id, records_.size());
  if (is_new) {
    records_.push_back(std::move(record));
    if (records_.size() == 1) wake_.Signal();
    return;
  }
  Record& waiting = records_[entry->second];
  waiting.text += record.text;
  waiting.token_ids.insert(waiting.token_ids.end(), record.token_ids.begin(),
                           record.token_ids.end());
  waiting.logprobs.insert(waiting.logprobs.end(), std::make_move_iterator(record.logprobs.begin()),
                          std::make_move_iterator(record.logprobs.end()));
  // They come once, and with the first token.
  if (!record.prompt_logprobs.empty()) waiting.prompt_logprobs = std::move(record.prompt_logprobs);
  waiting.finish_reason = record.finish_reason;
  waiting.error = std::move(record.error);
  waiting.prompt_tokens = record.prompt_tokens;
  waiting.completion_tokens = record.completion_tokens;
  waiting.cached_tokens = record.cached_tokens;
  waiting.timing = record.timing;
}

std::vector<Record> Outbox::Drain() {
  wake_.Clear();
  index_by_sequence_.clear();
  return std::exchange(records_, {});
}

}  // namespace aiomlc
