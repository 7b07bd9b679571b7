/*!
 * \file engine/sequence_table.h
 * \brief The live sequences of an engine.
 */
#ifndef AIOMLC_ENGINE_SEQUENCE_TABLE_H_
#define AIOMLC_ENGINE_SEQUENCE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/engine_invariants.h"
#include "engine/step_context.h"
#include "sequence/deadline_queue.h"
#include "sequence/record.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief Generates unique ids of sequences and prefix cache entries. Thread-safe. */
class IdSource {
 public:
  int64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> next_{0};
};

/*!
 * \brief Owns the live sequences, and adds and removes them in scheduler, model and drafter.
 *
 * A sequence is running, waiting or paused; the scheduler knows running and waiting sequences. When
 * a sequence ends, its last record is added to the context's records, and its computed tokens are
 * kept in the prefix cache.
 */
class SequenceTable {
 public:
  /*! \brief Create an empty table. The arguments are not owned and must outlive the table. */
  SequenceTable(StepContext* context, IdSource* ids) : context_(*context), ids_(*ids) {}

  /*! \brief Add a submitted sequence to the table and to the queue; moved from unless it throws. */
  Sequence* Add(std::unique_ptr<Sequence>&& sequence);

  /*! \return The live sequence with this id, or null. */
  Sequence* Find(int64_t sequence_id) const;

  /*! \brief Report the last record of a sequence, and destroy it. \throws As the model. */
  void End(Sequence* sequence, Record record, FinishReason reason);

  /*! \brief End the sequences whose deadlines have passed. */
  void EndExpired();

  /*!
   * \brief End every sequence and empty the prefix cache.
   * \return The first error of the model during this call; empty if there was none.
   */
  std::string EndAll(FinishReason reason, const std::string& error);

  /*! \brief Remove a sequence from the scheduler; its computed tokens stay in the prefix cache. */
  void PauseSequence(Sequence* sequence);
  /*! \brief Queue a paused sequence again. */
  void ResumeSequence(Sequence* sequence);

  /*! \brief Make the pinned prefix cache entry of an ended sequence a recycling entry. */
  void Unpin(int64_t sequence_id);

  /*! \brief Empty the prefix cache, including pinned entries. */
  void EvictAll();

  /*!
   * \brief Remove sequences or cache entries from the model: all of them, even if the model throws.
   * \throws The first exception of the model.
   */
  void RemoveFromModel(const std::vector<int64_t>& sequence_ids);

  /*!
   * \brief Remove unverified and rejected draft tokens from the model.
   *
   * If the last accepted token is no checkpoint, the tokens after the checkpoint before it are
   * removed, too, and count as not computed.
   */
  void DropSpeculated(Sequence* sequence);

  /*! \brief Update the deadline queue from the timer of a sequence. */
  void QueueDeadline(Sequence* sequence);

  /*! \brief Keep the logits of a row until its grammar mask is ready. */
  void DeferForMask(Sequence* sequence, const float* logits);
  /*! \brief Drop the deferred logits of a sequence, if any. */
  void DropDeferred(Sequence* sequence);
  /*! \return The sequences with deferred logits. */
  const std::vector<Sequence*>& deferred() const { return deferred_; }

  /*! \return Whether a sequence is running or waiting. */
  bool has_unpaused() const { return sequences_.size() > paused_.size(); }
  int64_t num_paused() const { return static_cast<int64_t>(paused_.size()); }
  TimePoint next_deadline() { return deadlines_.Next(); }

  /*! \return The state that `FindViolations` checks. */
  EngineSnapshot Snapshot(int64_t max_sequence_tokens) const;

 private:
  StepContext& context_;
  IdSource& ids_;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences_;
  std::unordered_set<Sequence*> paused_;
  std::vector<Sequence*> deferred_;
  DeadlineQueue deadlines_;
  /*! \brief The entry ids of pinned sequences whose pause changed their `cache_id`, by sequence. */
  std::unordered_map<int64_t, int64_t> pinned_entries_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_SEQUENCE_TABLE_H_
