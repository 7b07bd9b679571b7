#include "model/sequence_state.h"

namespace aiomlc {

std::string Resources::ToString() const {
  const std::string all_pages = std::to_string(pages) + " pages";
  return slots == 0 ? all_pages : all_pages + " and " + std::to_string(slots) + " slots";
}

int64_t MaxTokens(const SequenceState& state, int64_t limit) {
  const Resources total = state.total();
  int64_t fitting = 0;
  while (fitting < limit) {
    const int64_t middle = limit - (limit - fitting) / 2;
    if (state.Cost(middle).FitsIn(total)) {
      fitting = middle;
    } else {
      limit = middle - 1;
    }
  }
  return fitting;
}

int64_t LastSharedFork(const SequenceState& state, int64_t num_tokens) {
  const int64_t granularity = state.sharing_granularity();
  return granularity == 0 ? 0 : num_tokens - num_tokens % granularity;
}

}  // namespace aiomlc
