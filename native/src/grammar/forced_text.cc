#include "grammar/forced_text.h"

namespace aiomlc {

namespace {

/*! \brief The bytes of text that are kept with their tokens; beyond, all are forgotten. */
constexpr size_t kMaxKnownBytes = 1 << 20;

}  // namespace

std::vector<int32_t> ForcedTextTokenizer::Encode(std::string_view text) const {
  std::string key(text);
  {
    std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
  }
  // Not locked: the function may wait for a lock whose owner waits for this one.
  std::vector<int32_t> tokens = tokenize_(text);
  std::lock_guard lock(mutex_);
  num_known_bytes_ += key.size();
  if (num_known_bytes_ > kMaxKnownBytes) {
    known_.clear();
    num_known_bytes_ = key.size();
  }
  known_.emplace(std::move(key), tokens);
  return tokens;
}

}  // namespace aiomlc
