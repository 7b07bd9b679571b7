#include "speculation/ngram_index.h"

#include <algorithm>
#include <utility>

namespace aiomlc {

int64_t NgramIndex::FindEarlier(std::span<const int32_t> tokens) {
  const int64_t size = static_cast<int64_t>(tokens.size());
  if (size < length_) return -1;
  // The last n-gram is inserted only once more tokens follow; otherwise it would find itself.
  for (int64_t end = std::max(num_indexed_ + 1, length_); end < size; ++end) Insert(tokens, end);
  num_indexed_ = size - 1;
  const int32_t end = slots_[FindSlot(tokens, size)];
  return end == 0 ? -1 : end;
}

size_t NgramIndex::FindSlot(std::span<const int32_t> tokens, int64_t end) const {
  const auto ngram = tokens.begin() + (end - length_);
  uint64_t hash = 0;
  for (int64_t i = 0; i < length_; ++i) {
    hash = (hash ^ static_cast<uint32_t>(ngram[i])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash) & mask;
  while (slots_[slot] != 0 &&
         !std::equal(ngram, ngram + length_, tokens.begin() + (slots_[slot] - length_))) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void NgramIndex::Insert(std::span<const int32_t> tokens, int64_t end) {
  if (2 * static_cast<size_t>(num_used_) >= slots_.size()) Grow(tokens);
  int32_t& slot_end = slots_[FindSlot(tokens, end)];
  if (slot_end == 0) ++num_used_;
  slot_end = static_cast<int32_t>(end);
}

void NgramIndex::Grow(std::span<const int32_t> tokens) {
  const std::vector<int32_t> ends = std::exchange(slots_, std::vector<int32_t>(2 * slots_.size()));
  for (int32_t end : ends) {
    if (end != 0) slots_[FindSlot(tokens, end)] = end;
  }
}

}  // namespace aiomlc
