/*!
 * \file engine/engine_invariants.h
 * \brief The invariants of the engine between two steps.
 */
#ifndef AIOMLC_ENGINE_ENGINE_INVARIANTS_H_
#define AIOMLC_ENGINE_ENGINE_INVARIANTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/resources.h"

namespace aiomlc {

/*! \brief A snapshot of one sequence. */
struct SequenceSnapshot {
  int64_t id;
  int64_t num_tokens;
  int64_t num_computed;
  Resources reserved;
  /*! \brief The cost of `num_computed` tokens. */
  Resources cost;
  /*! \brief Whether all tokens are computed, and only the grammar mask is missing. */
  bool awaits_mask = false;
  int64_t priority = 0;
};

/*! \brief A snapshot of the engine. */
struct EngineSnapshot {
  Resources total;
  Resources free;
  /*! \brief The cost of the recycling and pinned entries of the prefix cache. */
  Resources kept;
  int64_t max_running = 0;
  int64_t max_sequence_tokens = 0;
  /*! \brief Ids of the sequences that the engine owns, in any order. */
  std::vector<int64_t> live_ids;
  std::vector<SequenceSnapshot> running;
  std::vector<SequenceSnapshot> waiting;
  std::vector<SequenceSnapshot> paused;
};

/*! \return A message for each violated invariant; empty if there is none. */
std::vector<std::string> FindViolations(const EngineSnapshot& snapshot);

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_INVARIANTS_H_
