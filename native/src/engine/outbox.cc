#include "engine/outbox.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace aiomlc {

namespace {

/*! \brief Allocate memory for more elements, geometrically: `vector::reserve` alone does not. */
template <typename Container>
void ReserveMore(Container* container, size_t count) {
  const size_t size = container->size() + count;
  if (size > container->capacity()) container->reserve(std::max(size, 2 * container->capacity()));
}

}  // namespace

void Outbox::Put(Record&& record) {
  const auto [entry, is_new] = index_by_sequence_.try_emplace(record.sequence_id, records_.size());
  if (is_new) {
    try {
      records_.push_back(std::move(record));
    } catch (...) {
      index_by_sequence_.erase(entry);
      throw;
    }
    if (records_.size() == 1) wake_.Signal();
    return;
  }
  Record& merged = records_[entry->second];
  // First, so that nothing is merged if memory is exhausted.
  ReserveMore(&merged.text, record.text.size());
  ReserveMore(&merged.token_ids, record.token_ids.size());
  ReserveMore(&merged.logprobs, record.logprobs.size());
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
