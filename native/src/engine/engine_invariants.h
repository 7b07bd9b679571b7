/*!
 * \file engine/engine_invariants.h
 * \brief What must be true of the engine between two steps.
 */
#ifndef AIOMLC_ENGINE_ENGINE_INVARIANTS_H_
#define AIOMLC_ENGINE_ENGINE_INVARIANTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aiomlc {

/*! \brief One sequence at one moment. */
struct SequenceSnapshot {
  int64_t id;
  int64_t num_tokens;
  int64_t num_computed;
  int64_t num_pages;
  /*! \brief Whether all is computed, and only the grammar's mask is missing. */
  bool awaits_mask = false;
  int64_t priority = 0;
};

/*! \brief The engine at one moment. */
struct EngineSnapshot {
  int64_t total_pages = 0;
  int64_t free_pages = 0;
  /*! \brief Pages of the prefix cache that no running sequence holds. */
  int64_t recycling_pages = 0;
  int64_t page_size = 1;
  int64_t max_running = 0;
  int64_t max_sequence_tokens = 0;
  /*! \brief Ids of the sequences that the engine owns, in any order. */
  std::vector<int64_t> live_ids;
  std::vector<SequenceSnapshot> running;
  std::vector<SequenceSnapshot> waiting;
  std::vector<SequenceSnapshot> paused;
};

/*! \return One sentence for each contradiction; empty when all is well. */
std::vector<std::string> FindViolations(const EngineSnapshot& snapshot);

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_INVARIANTS_H_
