#include "kernels/moe/expert_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/linear/linear_tasks.h"

namespace aiomlc {

namespace {

// What one exponential costs, in multiplications.
constexpr int64_t kExponentialCost = 16;

/*! \brief Write the largest logits' indices, the largest first. NaN is less than all. */
void SelectLargest(const float* logits, int64_t count, int64_t wanted, int32_t* selected) {
  const auto key = [&](int64_t i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
  };
  int64_t size = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (size == wanted && !(key(i) > key(selected[size - 1]))) continue;
    int64_t at = size < wanted ? size++ : size - 1;
    for (; at > 0 && key(i) > key(selected[at - 1]); --at) selected[at] = selected[at - 1];
    selected[at] = static_cast<int32_t>(i);
  }
}

}  // namespace

void ChooseExperts(const ExpertChoice& choice, const float* logits, int32_t* experts,
                   float* weights) {
  SelectLargest(logits, choice.num_experts, choice.per_row, experts);
  const float largest = logits[experts[0]];
  float sum = 0;
  for (int64_t i = 0; i < choice.num_experts; ++i) sum += std::exp(logits[i] - largest);
  float chosen_sum = 0;
  for (int64_t i = 0; i < choice.per_row; ++i) {
    weights[i] = std::exp(logits[experts[i]] - largest) / sum;
    chosen_sum += weights[i];
  }
  if (!choice.normalize) return;
  for (int64_t i = 0; i < choice.per_row; ++i) weights[i] /= chosen_sum;
}

void ExpertRows::Assign(ThreadPool& pool, const ExpertsCall& call) {
  const ExpertChoice& choice = call.choice;
  const int64_t places = call.rows * choice.per_row;
  chosen_.resize(places);
  chosen_weight_.resize(places);
  ForRanges(pool, call.rows, choice.num_experts * kExponentialCost,
            [&](int64_t begin, int64_t end) {
              for (int64_t row = begin; row < end; ++row) {
                ChooseExperts(choice, call.logits + row * choice.num_experts,
                              chosen_.data() + row * choice.per_row,
                              chosen_weight_.data() + row * choice.per_row);
              }
            });
  Sort(call);
  FindPanels();
}

void ExpertRows::Sort(const ExpertsCall& call) {
  const auto places = static_cast<int64_t>(chosen_.size());
  begin_.assign(call.choice.num_experts + 1, 0);
  for (const int32_t expert : chosen_) ++begin_[expert + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  next_ = begin_;
  row_.resize(places);
  weight_.resize(places);
  for (int64_t i = 0; i < places; ++i) {
    const int64_t place = next_[chosen_[i]]++;
    row_[place] = i / call.choice.per_row;
    weight_[place] = chosen_weight_[i];
  }
}

void ExpertRows::FindPanels() {
  experts_.clear();
  panels_.clear();
  for (int64_t expert = 0; expert + 1 < static_cast<int64_t>(begin_.size()); ++expert) {
    const int64_t end = begin_[expert + 1];
    if (begin_[expert] < end) experts_.push_back(expert);
    for (int64_t place = begin_[expert]; place < end; place += kPanelRows) {
      panels_.push_back({place, std::min(kPanelRows, end - place)});
    }
  }
}

}  // namespace aiomlc
