#include "aiomlc/scheduler.h"

#include <algorithm>
#include <stdexcept>

#include "aiomlc/scheduler_policy.h"

namespace aiomlc {

namespace {

bool ArrivedBefore(const Sequence* a, const Sequence* b) { return a->id < b->id; }

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : step_token_budget_(limits.step_token_budget),
      // With no more sequences than tokens, decodes always leave one for a prefill.
      max_running_(std::min(limits.max_batch_size, limits.step_token_budget)),
      pages_(limits.total_pages, limits.page_size) {}

void Scheduler::Add(Sequence* sequence) { waiting_.push_back(sequence); }

void Scheduler::Remove(Sequence* sequence) {
  if (std::erase(running_, sequence) + std::erase(waiting_, sequence) != 1) {
    throw std::logic_error("the scheduler does not know the sequence exactly once");
  }
  pages_.Release(sequence->num_pages);
  sequence->num_pages = 0;
}

int64_t Scheduler::PagesForNextStep(const Sequence& sequence) const {
  return pages_.PagesFor(sequence.num_tokens());
}

size_t Scheduler::PlanPreemptions(StepPlan* plan) const {
  std::vector<RunningCounters> counters;
  counters.reserve(running_.size());
  for (const Sequence* sequence : running_) {
    counters.push_back({sequence->num_pages, PagesForNextStep(*sequence)});
  }
  const size_t survivors = CountSurvivors(counters, pages_.free_pages());
  for (size_t i = running_.size(); i > survivors; --i) plan->preempted.push_back(running_[i - 1]);
  return survivors;
}

void Scheduler::PlanAdmissions(StepPlan* plan) const {
  const int64_t num_running = static_cast<int64_t>(running_.size());
  if (waiting_.empty() || num_running >= max_running_) return;
  int64_t free_pages = pages_.free_pages();
  for (const Sequence* sequence : running_) {
    free_pages -= PagesForNextStep(*sequence) - sequence->num_pages;
  }
  std::vector<WaitingCounters> counters;
  counters.reserve(waiting_.size());
  for (const Sequence* sequence : waiting_) {
    counters.push_back({PagesForNextStep(*sequence), sequence->times_passed});
  }
  const Admissions admissions = ChooseAdmissions(counters, free_pages, num_running, max_running_);
  for (size_t index : admissions.admitted) plan->admitted.push_back(waiting_[index]);
  for (size_t index = 0; index < waiting_.size(); ++index) {
    plan->passed.insert(plan->passed.end(), admissions.newly_passed[index], waiting_[index]);
  }
}

void Scheduler::PlanRows(const std::vector<Sequence*>& sequences, StepPlan* plan) const {
  std::vector<Sequence*> order = sequences;
  const auto first_prefill = std::stable_partition(
      order.begin(), order.end(), [](const Sequence* sequence) { return sequence->is_decoding(); });
  plan->decode_tokens = first_prefill - order.begin();
  std::vector<int64_t> wanted;
  wanted.reserve(order.size());
  for (const Sequence* sequence : order) wanted.push_back(sequence->num_uncomputed());
  const std::vector<int64_t> shares = ShareBudget(wanted, step_token_budget_);
  for (size_t i = 0; i < order.size() && shares[i] > 0; ++i) {
    plan->rows.push_back({order[i], shares[i], shares[i] == wanted[i]});
    plan->prefill_tokens += shares[i];
  }
  plan->prefill_tokens -= plan->decode_tokens;
}

StepPlan Scheduler::Plan() const {
  StepPlan plan;
  const size_t survivors = PlanPreemptions(&plan);
  // Who is admitted into pages that were just taken from another would only be next to lose them.
  if (plan.preempted.empty()) PlanAdmissions(&plan);
  std::vector<Sequence*> sequences(running_.begin(),
                                   running_.begin() + static_cast<int64_t>(survivors));
  sequences.insert(sequences.end(), plan.admitted.begin(), plan.admitted.end());
  std::sort(sequences.begin(), sequences.end(), ArrivedBefore);
  PlanRows(sequences, &plan);
  return plan;
}

void Scheduler::Reserve(const StepPlan& plan) {
  for (Sequence* sequence : plan.preempted) {
    Remove(sequence);
    sequence->num_computed = 0;
    waiting_.push_front(sequence);
  }
  for (Sequence* sequence : plan.passed) ++sequence->times_passed;
  for (Sequence* sequence : plan.admitted) {
    std::erase(waiting_, sequence);
    running_.insert(std::upper_bound(running_.begin(), running_.end(), sequence, ArrivedBefore),
                    sequence);
  }
  for (Sequence* sequence : running_) {
    const int64_t num_pages = PagesForNextStep(*sequence);
    pages_.Reserve(num_pages - sequence->num_pages);
    sequence->num_pages = num_pages;
  }
}

}  // namespace aiomlc
