/*!
 * \file engine/sequence_table.h
 * \brief The sequences of an engine, from their adoption to their last record.
 */
#ifndef AIOMLC_ENGINE_SEQUENCE_TABLE_H_
#define AIOMLC_ENGINE_SEQUENCE_TABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
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

/*! \brief Ids that are never used twice, for sequences and prefix cache entries. Thread-safe. */
class IdSource {
 public:
  int64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> next_{0};
};

/*!
 * \brief Owns the live sequences, and keeps scheduler, model and drafter in step with them.
 *
 * A sequence is running, waiting (the scheduler knows which) or paused. When it ends, its last
 * record goes to the context's records and its KV cache pages go to the prefix cache.
 */
class SequenceTable {
 public:
  /*! \brief Neither is owned; both must outlive the table. */
  SequenceTable(StepContext* context, IdSource* ids) : context_(*context), ids_(*ids) {}

  /*! \brief Take a submitted sequence over and queue it. */
  Sequence* Adopt(std::unique_ptr<Sequence> sequence);

  /*! \return The live sequence with this id, or null. */
  Sequence* Find(int64_t sequence_id) const;

  /*! \brief Report a sequence's last record and forget it. Throws only what the model throws. */
  void End(Sequence* sequence, Record record, FinishReason reason);

  /*! \brief End the sequences whose deadlines have passed. */
  void EndExpired();

  /*!
   * \brief End every sequence and empty the prefix cache.
   * \return The first error of the model on the way; empty if there was none.
   */
  std::string EndAll(FinishReason reason, const std::string& error);

  /*! \brief Take a sequence out of the schedule; its pages go to the prefix cache. */
  void PauseSequence(Sequence* sequence);
  /*! \brief Queue a paused sequence again. */
  void ResumeSequence(Sequence* sequence);

  /*! \brief Make the prefix cache entry of a pinned sequence an ordinary one. */
  void Unpin(int64_t sequence_id);

  /*! \brief Empty the prefix cache, pinned entries included. */
  void EvictAll();

  /*!
   * \brief Remove sequences or entries from the model, all of them even if the model throws.
   * \param ended_id A sequence that gets no more drafts.
   * \throws The first error of the model.
   */
  void RemoveFromModel(const std::vector<int64_t>& sequence_ids,
                       std::optional<int64_t> ended_id = std::nullopt);

  /*! \brief Remove the draft tokens that are not verified yet from the KV cache. */
  void PopSpeculated(Sequence* sequence);

  /*! \brief Bring the queue of deadlines up to date with a sequence's timer. */
  void QueueDeadline(Sequence* sequence);

  /*! \brief Keep a row's logits until its grammar mask is ready. */
  void DeferForMask(Sequence* sequence, const float* logits);
  /*! \brief Drop the deferred logits of a sequence, if any. */
  void DropDeferred(Sequence* sequence);
  /*! \brief Sequences that miss nothing but the mask of their next token. */
  const std::vector<Sequence*>& deferred() const { return deferred_; }

  /*! \brief Whether a sequence runs or waits. */
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
  /*! \brief Prefix cache entry of each pinned sequence that a pause re-keyed: sequence -> entry. */
  std::unordered_map<int64_t, int64_t> pinned_entries_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_SEQUENCE_TABLE_H_
