#include "model/faulty_model.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

namespace aiomlc {

const float* FaultyModel::Forward(const ForwardInput& input) {
  ++num_passes_;
  if (num_passes_ == faults_.allocation_fails_at_step) throw std::bad_alloc();
  if (num_passes_ == faults_.fail_at_step) {
    throw std::runtime_error("a fault on purpose, at step " + std::to_string(num_passes_));
  }
  const float* logits = model_->Forward(input);
  if (input.logit_positions.empty()) return logits;
  ++num_passes_with_logits_;
  const bool is_spoiled =
      num_passes_with_logits_ == faults_.nan_at_step ||
      (faults_.nan_every > 0 && num_passes_with_logits_ % faults_.nan_every == 0);
  if (!is_spoiled) return logits;
  const size_t vocab_size = static_cast<size_t>(model_->vocab_size());
  spoiled_.assign(logits, logits + input.logit_positions.size() * vocab_size);
  std::fill_n(spoiled_.begin(), vocab_size, std::numeric_limits<float>::quiet_NaN());
  return spoiled_.data();
}

}  // namespace aiomlc
