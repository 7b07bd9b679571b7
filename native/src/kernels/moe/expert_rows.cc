#include "kernels/moe/expert_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/linear/linear_tasks.h"

namespace aiomlc {

namespace {

// The cost of an exponential in multiplications.
constexpr int64_t kExponentialCost = 16;

/*! \brief Write the indices of the `k` largest logits in descending order. NaN sorts last. */
void SelectTopK(const float* logits, int64_t count, int64_t k, int32_t* selected) {
  const auto key = [&](int64_t i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
  };
  int64_t size = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (size == k && !(key(i) > key(selected[size - 1]))) continue;
    int64_t position = size < k ? size++ : size - 1;
    for (; position > 0 && key(i) > key(selected[position - 1]); --position) {
      selected[position] = selected[position - 1];
    }
    selected[position] = static_cast<int32_t>(i);
  }
}

void SelectBySigmoid(const ExpertRouting& routing, const float* logits, int32_t* experts,
                     float* weights) {
  const auto score = [&](int64_t i) { return 1.0f / (1.0f + std::exp(-logits[i])); };
  const float* keys = logits;  // Scores have the same order.
  if (routing.selection_bias != nullptr) {
    thread_local std::vector<float> biased;
    biased.resize(static_cast<size_t>(routing.num_experts));
    for (int64_t i = 0; i < routing.num_experts; ++i) {
      biased[static_cast<size_t>(i)] = score(i) + routing.selection_bias[i];
    }
    keys = biased.data();
  }
  SelectTopK(keys, routing.num_experts, routing.experts_per_row, experts);
  float poison = 0;  // NaN if a logit is.
  for (int64_t i = 0; i < routing.num_experts; ++i) poison += std::isnan(logits[i]) ? logits[i] : 0;
  float sum = 0;
  for (int64_t i = 0; i < routing.experts_per_row; ++i) {
    weights[i] = score(experts[i]) + poison;
    sum += weights[i];
  }
  const float divisor = routing.normalize ? sum + routing.epsilon : 1.0f;
  for (int64_t i = 0; i < routing.experts_per_row; ++i) {
    weights[i] = weights[i] / divisor * routing.scale;
  }
}

}  // namespace

void SelectExperts(const ExpertRouting& routing, const float* logits, int32_t* experts,
                   float* weights) {
  if (routing.scores == ExpertRouting::Scores::kSigmoid) {
    return SelectBySigmoid(routing, logits, experts, weights);
  }
  SelectTopK(logits, routing.num_experts, routing.experts_per_row, experts);
  const float largest = logits[experts[0]];
  float sum = 0;
  for (int64_t i = 0; i < routing.num_experts; ++i) sum += std::exp(logits[i] - largest);
  float selected_sum = 0;
  for (int64_t i = 0; i < routing.experts_per_row; ++i) {
    weights[i] = std::exp(logits[experts[i]] - largest) / sum;
    selected_sum += weights[i];
  }
  if (routing.normalize) {
    for (int64_t i = 0; i < routing.experts_per_row; ++i) weights[i] /= selected_sum;
  }
  if (routing.expert_scales == nullptr) return;
  for (int64_t i = 0; i < routing.experts_per_row; ++i) {
    weights[i] *= routing.expert_scales[experts[i]];
  }
}

void ExpertRows::Assign(ThreadPool& pool, const ExpertsCall& call) {
  const ExpertRouting& routing = call.routing;
  const int64_t num_assignments = call.rows * routing.experts_per_row;
  selected_.resize(num_assignments);
  selected_weight_.resize(num_assignments);
  ForRanges(pool, call.rows, routing.num_experts * kExponentialCost,
            [&](int64_t begin, int64_t end) {
              for (int64_t row = begin; row < end; ++row) {
                SelectExperts(routing, call.logits + row * routing.num_experts,
                              selected_.data() + row * routing.experts_per_row,
                              selected_weight_.data() + row * routing.experts_per_row);
              }
            });
  Sort(call);
  FindPanels();
}

void ExpertRows::Sort(const ExpertsCall& call) {
  const auto num_assignments = static_cast<int64_t>(selected_.size());
  begin_.assign(call.routing.num_experts + 1, 0);
  for (const int32_t expert : selected_) ++begin_[expert + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  insert_ = begin_;
  row_.resize(num_assignments);
  weight_.resize(num_assignments);
  for (int64_t i = 0; i < num_assignments; ++i) {
    const int64_t assignment = insert_[selected_[i]]++;
    row_[assignment] = i / call.routing.experts_per_row;
    weight_[assignment] = selected_weight_[i];
  }
}

void ExpertRows::FindPanels() {
  experts_.clear();
  panels_.clear();
  for (int64_t expert = 0; expert + 1 < static_cast<int64_t>(begin_.size()); ++expert) {
    const int64_t end = begin_[expert + 1];
    if (begin_[expert] < end) experts_.push_back(expert);
    for (int64_t begin = begin_[expert]; begin < end; begin += kPanelRows) {
      panels_.push_back({begin, std::min(kPanelRows, end - begin)});
    }
  }
}

}  // namespace aiomlc
