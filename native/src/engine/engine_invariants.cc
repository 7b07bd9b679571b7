#include "engine/engine_invariants.h"

#include <algorithm>
#include <tuple>

namespace aiomlc {

namespace {

/*! \brief Collects sentences of the form "sequence 3 holds ...". */
class Violations {
 public:
  void Require(bool holds, const std::string& otherwise) {
    if (!holds) list_.push_back(otherwise);
  }
  void Require(bool holds, const SequenceSnapshot& sequence, const std::string& otherwise) {
    if (!holds) list_.push_back("sequence " + std::to_string(sequence.id) + " " + otherwise);
  }
  std::vector<std::string> list_;
};

void CheckRunning(const EngineSnapshot& snapshot, Violations* violations) {
  int64_t reserved = 0;
  for (const SequenceSnapshot& sequence : snapshot.running) {
    reserved += sequence.num_pages;
    violations->Require((sequence.num_computed < sequence.num_tokens) != sequence.awaits_mask,
                        sequence, "runs with nothing to compute, or waits with something");
    violations->Require(sequence.num_pages * snapshot.page_size >= sequence.num_computed, sequence,
                        "has more tokens in the cache than its pages hold");
    violations->Require(sequence.num_tokens < snapshot.max_sequence_tokens, sequence,
                        "runs with no room for a token");
  }
  violations->Require(
      reserved + snapshot.recycling_pages + snapshot.free_pages == snapshot.total_pages,
      "reserved, recycling and free pages are not all pages");
  violations->Require(snapshot.free_pages >= 0, "fewer than no pages are free");
  violations->Require(static_cast<int64_t>(snapshot.running.size()) <= snapshot.max_running,
                      "more sequences run than may");
  violations->Require(std::is_sorted(snapshot.running.begin(), snapshot.running.end(),
                                     [](const auto& a, const auto& b) {
                                       return std::tie(a.priority, a.id) <
                                              std::tie(b.priority, b.id);
                                     }),
                      "running sequences are not in the order of priority and arrival");
}

void CheckIdle(const std::vector<SequenceSnapshot>& sequences, Violations* violations) {
  for (const SequenceSnapshot& sequence : sequences) {
    violations->Require(sequence.num_pages == 0, sequence, "holds pages while it waits");
    violations->Require(sequence.num_computed == 0, sequence, "has tokens in the cache but waits");
  }
}

void CheckIds(const EngineSnapshot& snapshot, Violations* violations) {
  std::vector<int64_t> live = snapshot.live_ids;
  std::vector<int64_t> scheduled;
  scheduled.reserve(live.size());
  for (const SequenceSnapshot& sequence : snapshot.running) scheduled.push_back(sequence.id);
  for (const SequenceSnapshot& sequence : snapshot.waiting) scheduled.push_back(sequence.id);
  for (const SequenceSnapshot& sequence : snapshot.paused) scheduled.push_back(sequence.id);
  std::sort(live.begin(), live.end());
  std::sort(scheduled.begin(), scheduled.end());
  violations->Require(live == scheduled, "a live sequence is lost or scheduled twice");
}

}  // namespace

std::vector<std::string> FindViolations(const EngineSnapshot& snapshot) {
  Violations violations;
  CheckRunning(snapshot, &violations);
  CheckIdle(snapshot.waiting, &violations);
  CheckIdle(snapshot.paused, &violations);
  CheckIds(snapshot, &violations);
  return violations.list_;
}

}  // namespace aiomlc
