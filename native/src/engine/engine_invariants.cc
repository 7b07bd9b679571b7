#include "engine/engine_invariants.h"

#include <algorithm>
#include <tuple>

namespace aiomlc {

namespace {

/*! \brief Collects the messages of violated invariants. */
class Violations {
 public:
  void Require(bool holds, const std::string& message) {
    if (!holds) messages.push_back(message);
  }
  /*! \brief Require an invariant of a sequence. The message is "sequence <id> <predicate>". */
  void Require(bool holds, const SequenceSnapshot& sequence, const std::string& predicate) {
    if (!holds) messages.push_back("sequence " + std::to_string(sequence.id) + " " + predicate);
  }

  std::vector<std::string> messages;
};

void CheckRunning(const EngineSnapshot& snapshot, Violations* violations) {
  Resources reserved;
  for (const SequenceSnapshot& sequence : snapshot.running) {
    reserved += sequence.reserved;
    violations->Require((sequence.num_computed < sequence.num_tokens) != sequence.awaits_mask,
                        sequence,
                        "runs without tokens to compute, or awaits a mask with tokens to compute");
    violations->Require(sequence.cost.FitsIn(sequence.reserved), sequence,
                        "has more computed tokens than fit into what it reserved");
    violations->Require(sequence.num_tokens < snapshot.max_sequence_tokens, sequence,
                        "runs without room for another token");
  }
  violations->Require(reserved + snapshot.kept + snapshot.free == snapshot.total,
                      "reserved, kept and free resources do not sum to the total");
  violations->Require(Resources().FitsIn(snapshot.free), "the free resources are negative");
  violations->Require(static_cast<int64_t>(snapshot.running.size()) <= snapshot.max_running,
                      "more sequences run than max_running");
  violations->Require(std::is_sorted(snapshot.running.begin(), snapshot.running.end(),
                                     [](const auto& a, const auto& b) {
                                       return std::tie(a.priority, a.id) <
                                              std::tie(b.priority, b.id);
                                     }),
                      "running sequences are not sorted by priority and arrival");
}

void CheckIdle(const std::vector<SequenceSnapshot>& sequences, Violations* violations) {
  for (const SequenceSnapshot& sequence : sequences) {
    violations->Require(sequence.reserved.is_zero(), sequence,
                        "holds resources, but is not running");
    violations->Require(sequence.num_computed == 0, sequence,
                        "has computed tokens, but is not running");
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
  violations->Require(live == scheduled, "a live sequence is not scheduled, or is scheduled twice");
}

}  // namespace

std::vector<std::string> FindViolations(const EngineSnapshot& snapshot) {
  Violations violations;
  CheckRunning(snapshot, &violations);
  CheckIdle(snapshot.waiting, &violations);
  CheckIdle(snapshot.paused, &violations);
  CheckIds(snapshot, &violations);
  return violations.messages;
}

}  // namespace aiomlc
