#include "metrics/event_trace.h"

#include <algorithm>

namespace aiomlc {

void EventTrace::Enable() {
  std::lock_guard lock(mutex_);
  ring_.resize(kCapacity);
  is_enabled_ = true;
}

void EventTrace::Record(const Event& event) {
  std::lock_guard lock(mutex_);
  ring_[static_cast<size_t>(num_recorded_++) % kCapacity] = event;
}

EventBatch EventTrace::Read(int64_t from) const {
  std::lock_guard lock(mutex_);
  EventBatch batch;
  const int64_t oldest = std::max<int64_t>(0, num_recorded_ - static_cast<int64_t>(kCapacity));
  batch.first = std::clamp(from, oldest, num_recorded_);
  batch.events.reserve(static_cast<size_t>(num_recorded_ - batch.first));
  for (int64_t number = batch.first; number < num_recorded_; ++number) {
    batch.events.push_back(ring_[static_cast<size_t>(number) % kCapacity]);
  }
  return batch;
}

}  // namespace aiomlc
