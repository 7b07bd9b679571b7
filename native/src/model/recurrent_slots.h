/*!
 * \file model/recurrent_slots.h
 * \brief The bookkeeping of recurrent states: which slots hold the states of which tokens.
 */
#ifndef AIOMLC_MODEL_RECURRENT_SLOTS_H_
#define AIOMLC_MODEL_RECURRENT_SLOTS_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "model/sequence_state.h"

namespace aiomlc {

/*! \brief Consecutive tokens of a sequence, and the slots with the state before and after them. */
struct SlotRun {
  /*! \brief The slot of the state before a sequence has tokens. */
  static constexpr int32_t kEmpty = -1;

  int64_t count = 0;
  int32_t source = kEmpty;
  int32_t target = kEmpty;  //!< May be the source.
};

/*!
 * \brief Divides slots of constant size among sequences and their checkpoints.
 *
 * A sequence has a slot for its state after the last token, and one for each checkpoint. A
 * checkpoint is at a multiple of the interval. The older it is, the fewer there are: of the odd
 * multiples of interval * 2^j, the last one is kept for each j, so a sequence of n tokens has about
 * log2(n / interval) checkpoints, and the distance between two of them grows with the distance from
 * its end. Besides, a checkpoint for each `Mark` is kept.
 *
 * Slots are shared by forks and never written while they are. Nothing is computed here: the caller
 * computes the runs that `Append` and `Rewind` return.
 */
class RecurrentSlots {
 public:
  /*!
   * \param num_slots The slots that exist.
   * \param interval The distance of checkpoints in tokens, at least 1.
   */
  RecurrentSlots(int64_t num_slots, int64_t interval);

  /*! \return The slots that a sequence of `num_tokens` tokens may hold; never falls. */
  static int64_t Cost(int64_t num_tokens, int64_t interval);

  int64_t num_slots() const { return static_cast<int64_t>(references_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t interval() const { return interval_; }

  void Add(int64_t id);
  /*!
   * \brief Create a sequence from the first `num_tokens` tokens of another one.
   * \param num_tokens A checkpoint of the source, at least 1.
   * \return The source's recorded tokens to compute; none if a slot holds the state.
   */
  SlotRun Fork(int64_t source_id, int64_t id, int64_t num_tokens);
  /*! \brief Remove a sequence; an unknown id, whose addition failed, has no effect. */
  void Remove(int64_t id);

  /*! \return The last checkpoint with at most `num_tokens` tokens; 0 if there is none. */
  int64_t Checkpoint(int64_t id, int64_t num_tokens) const;
  /*!
   * \brief Keep the last checkpoint with at most `num_tokens` tokens, once it is computed; an
   * unknown id has no effect. Another checkpoint, which was kept before, may be dropped.
   */
  void Keep(int64_t id, int64_t num_tokens, Mark mark);

  /*!
   * \brief Append tokens.
   * \param records Whether the inputs of these tokens are recorded, so that every token of them is
   * a checkpoint until the next call.
   * \return The runs to compute, in order; each but the last ends at a checkpoint. Runs of several
   * sequences may be computed at once, until `EndPass`.
   */
  std::vector<SlotRun> Append(int64_t id, int64_t count, bool records);
  /*! \brief Give back what the runs since the last call read, now that they are computed. */
  void EndPass();
  /*!
   * \brief Go back to a checkpoint, or to 0 tokens.
   * \return The recorded tokens to compute again; none if a slot holds the state.
   */
  SlotRun Rewind(int64_t id, int64_t num_tokens);

  int64_t length(int64_t id) const { return sequences_.at(id).length; }
  /*! \return The slot of a checkpoint as source, and the recorded tokens to compute from it. */
  SlotRun Find(int64_t id, int64_t num_tokens) const { return Find(sequences_.at(id), num_tokens); }
  /*! \brief Replace the state of a sequence, whose length grows by `count`. \return Its slot. */
  int32_t Replace(int64_t id, int64_t count);

 private:
  struct SequenceSlots {
    int64_t length = 0;
    int32_t state = SlotRun::kEmpty;
    /*! \brief The slot of each checkpoint, by its number of tokens. */
    std::map<int64_t, int32_t> checkpoints;
    /*! \brief By `Mark`, the checkpoint that is kept or will be; 0 for none. */
    std::array<int64_t, 2> marks{};
    /*! \brief The state before the recorded tokens, and their number. */
    int32_t base = SlotRun::kEmpty;
    int64_t num_recorded = 0;
  };

  /*! \brief Whether a sequence of `length` tokens keeps a checkpoint that nothing marks. */
  bool IsKept(int64_t checkpoint, int64_t length) const;
  /*! \return The slot of a checkpoint as source, and the recorded tokens to compute from it. */
  static SlotRun Find(const SequenceSlots& sequence, int64_t num_tokens);
  /*! \return The run with a target: a new slot, or the source if there are no tokens. */
  SlotRun Hold(SlotRun run);
  int32_t Take();
  void Share(int32_t slot);
  void Release(int32_t slot);
  void DropRecords(SequenceSlots* sequence);
  /*! \brief Drop the checkpoints that a sequence of `length` tokens does not keep. */
  void DropCheckpoints(SequenceSlots* sequence, int64_t length);

  const int64_t interval_;
  std::vector<int32_t> references_;
  std::vector<int32_t> free_;
  /*! \brief The slots that the runs of the current pass read and nothing else needs. */
  std::vector<int32_t> sources_;
  std::map<int64_t, SequenceSlots> sequences_;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_RECURRENT_SLOTS_H_
