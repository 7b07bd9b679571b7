/*!
 * \file model/sequence_state.h
 * \brief The interface of the state that a model keeps for each sequence.
 */
#ifndef AIOMLC_MODEL_SEQUENCE_STATE_H_
#define AIOMLC_MODEL_SEQUENCE_STATE_H_

#include <cstddef>
#include <cstdint>

#include "model/resources.h"

namespace aiomlc {

/*! \brief Why a fork at a position is likely. */
enum class Mark { kBranch, kPromptEnd };

/*!
 * \brief The state that a model keeps of computed tokens: a paged KV cache, a recurrent state, or
 * both.
 *
 * The engine does the accounting: a sequence of n tokens holds `Cost(n)`, and all sequences
 * together never hold more than `total()`. What forks share is counted once per sequence.
 *
 * A sequence can be forked and rewound at its *checkpoints*. In a paged KV cache, every token is
 * one. A recurrent state has only those that were saved while the tokens were computed; what lies
 * between a checkpoint and the wanted position is computed again.
 *
 * Not thread-safe: the engine serializes its calls. The sizes are constant and may be read from any
 * thread.
 */
class SequenceState {
 public:
  virtual ~SequenceState() = default;

  virtual Resources total() const = 0;
  /*! \return The resources of a sequence of `num_tokens` tokens; they never fall as it grows. */
  virtual Resources Cost(int64_t num_tokens) const = 0;
  /*! \brief The most by which one more token raises the cost of a sequence that has tokens. */
  virtual Resources token_cost() const = 0;

  /*!
   * \brief The distance of checkpoints, at least 1; they are at its multiples.
   *
   * A sequence may have others, such as its end, and may lack some: the older, the more.
   */
  virtual int64_t granularity() const = 0;
  /*!
   * \brief A fork at a multiple of this shares all that it holds with its source, so it can precede
   * the removal of the source in a full state; 0 if every fork takes resources of its own.
   */
  virtual int64_t sharing_granularity() const = 0;
  /*!
   * \return The last checkpoint of a sequence with at most `num_tokens` tokens; 0 if there is none.
   * A sequence that was rewound to a checkpoint may have fewer.
   */
  virtual int64_t Checkpoint(int64_t sequence_id, int64_t num_tokens) const = 0;

  /*!
   * \brief Keep the last checkpoint with at most `num_tokens` tokens, or have it when they are
   * computed; an unknown id has no effect. The last one counts of each mark, so another
   * checkpoint may be dropped. A state with a checkpoint after each token has nothing to do.
   */
  virtual void Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) = 0;

  /*! \brief Create an empty sequence. */
  virtual void Add(int64_t sequence_id) = 0;
  /*!
   * \brief Create a sequence from the first `num_tokens` tokens of another one.
   * \param num_tokens A checkpoint of the source, at least 1.
   */
  virtual void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) = 0;
  /*!
   * \brief Remove the last tokens of a sequence.
   * \param count At least 1; what remains ends at a checkpoint, or is empty.
   */
  virtual void Rewind(int64_t sequence_id, int64_t count) = 0;
  /*! \brief Remove a sequence and free what it holds. */
  virtual void Remove(int64_t sequence_id) = 0;

  /*! \return The bytes that `Export` writes. */
  virtual size_t ExportBytes(int64_t begin, int64_t end) const = 0;
  /*!
   * \brief Copy out what the tokens [begin, end) add to the state of the tokens before them.
   * \param end A checkpoint of the sequence.
   * \param data `ExportBytes(begin, end)` bytes.
   */
  virtual void Export(int64_t sequence_id, int64_t begin, int64_t end, std::byte* data) const = 0;
  /*!
   * \brief Append `count` tokens that `Export` has copied out, from the length of this sequence on.
   * \throws std::exception if that failed; afterwards the engine only removes sequences.
   */
  virtual void Import(int64_t sequence_id, int64_t count, const std::byte* data) = 0;
};

/*! \return The most tokens, at most `limit`, that one sequence can have if there is no other. */
int64_t MaxTokens(const SequenceState& state, int64_t limit);

/*!
 * \return The most tokens, at most `num_tokens`, at which a fork shares all that it holds with its
 * source.
 */
int64_t LastSharedFork(const SequenceState& state, int64_t num_tokens);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_SEQUENCE_STATE_H_
