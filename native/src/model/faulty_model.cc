#include "model/faulty_model.h"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

namespace aiomlc {

ForwardOutput FaultyModel::Forward(const ForwardInput& input) {
  ++num_passes_;
  if (num_passes_ == faults_.allocation_fails_at_pass) throw std::bad_alloc();
  if (num_passes_ == faults_.fail_at_pass) {
    throw std::runtime_error("injected fault at pass " + std::to_string(num_passes_));
  }
  ForwardOutput output = model_->Forward(input);
  if (input.logit_positions.empty()) return output;
  ++num_passes_with_logits_;
  const bool inject_nan =
      num_passes_with_logits_ == faults_.nan_at_pass ||
      (faults_.nan_every > 0 && num_passes_with_logits_ % faults_.nan_every == 0);
  if (!inject_nan) return output;
  const size_t vocab_size = static_cast<size_t>(model_->vocab_size());
  nan_logits_.assign(output.logits, output.logits + input.logit_positions.size() * vocab_size);
  std::fill_n(nan_logits_.begin(), vocab_size, std::numeric_limits<float>::quiet_NaN());
  output.logits = nan_logits_.data();
  return output;
}

void FaultyState::Import(int64_t sequence_id, int64_t count, const std::byte* data) {
  if (++num_imports_ == fail_at_import_) {
    throw std::runtime_error("injected fault at import " + std::to_string(num_imports_));
  }
  state_->Import(sequence_id, count, data);
}

}  // namespace aiomlc
