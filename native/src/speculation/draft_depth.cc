#include "speculation/draft_depth.h"

#include <algorithm>

namespace aiomlc {

void DraftDepth::AdvanceStep() {
  if (steps_to_wait_ > 0) --steps_to_wait_;
}

void DraftDepth::OnDraftVerified(int64_t proposed, int64_t accepted) {
  if (is_fixed_) return;
  if (accepted == 0) {
    depth_ = std::max<int64_t>(1, depth_ / 2);
    steps_to_wait_ = pause_;
    pause_ = std::clamp<int64_t>(2 * pause_, 1, kMaxPause);
    return;
  }
  if (accepted == proposed) {
    depth_ = std::min(std::max(depth_, 2 * proposed), policy_.max_depth);
  } else {
    depth_ = accepted + 1;
  }
  if (2 * accepted >= proposed) pause_ = policy_.first_pause;
}

}  // namespace aiomlc
