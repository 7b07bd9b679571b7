/*!
 * \file model/model.h
 * \brief The interface between the engine and the model that computes logits.
 */
#ifndef AIOMLC_MODEL_MODEL_H_
#define AIOMLC_MODEL_MODEL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/hidden_states.h"
#include "model/sequence_state.h"
#include "platform/thread_pool.h"
#include "prompt/prompt.h"

namespace aiomlc {

/*! \brief Rows that replace the embeddings of consecutive tokens of a forward pass. */
struct EmbeddedRows {
  /*! \brief The index in `ForwardInput::token_ids` of the first token. */
  int32_t begin;
  int32_t count;
  /*! \brief float32[count, piece_traits().row_size], valid during the forward pass. */
  const float* data;
};

/*! \brief The rows of one forward pass. Each row appends at least one token to its sequence. */
struct ForwardInput {
  /*! \brief One id per row; ids are unique. */
  std::vector<int64_t> sequence_ids;
  /*! \brief The number of tokens of each row. */
  std::vector<int32_t> append_lengths;
  /*! \brief The concatenated tokens of all rows. */
  std::vector<int32_t> token_ids;
  /*! \brief In ascending order, without overlap; the token ids at their places are not used. */
  std::vector<EmbeddedRows> embedded;
  /*!
   * \brief int32[3, token_ids.size()], the RoPE positions of each token in time, height and width;
   * empty if those of each token are its index in the sequence.
   */
  std::vector<int32_t> rope_positions;
  /*!
   * \brief The ascending indices in `token_ids` at which logits are computed.
   *
   * A row may have any number of them: none in the middle of a prompt, several to verify a draft.
   * The list may be empty.
   */
  std::vector<int32_t> logit_positions;
  HiddenRequest hidden;
  /*!
   * \brief The number of drafts of each row, its last tokens, which `SequenceState::Rewind` may
   * remove after the pass; empty if no row has drafts.
   */
  std::vector<int32_t> draft_lengths;
};

/*! \brief The results of a forward pass, valid until the next one. */
struct ForwardOutput {
  /*! \brief float32[logit_positions.size(), vocab_size()]. */
  const float* logits = nullptr;
  /*! \brief Of each requested layer: float32[hidden.positions.size(), hidden_size()]. */
  std::vector<const float*> hidden;
};

/*!
 * \brief A language model, with the state of its sequences.
 *
 * Not thread-safe: the engine serializes its calls. The sizes are constant and may be read from any
 * thread.
 */
class Model {
 public:
  virtual ~Model() = default;

  virtual int64_t vocab_size() const = 0;
  /*! \brief The maximum number of tokens per sequence. */
  virtual int64_t context_window() const = 0;
  /*! \brief The maximum number of rows per forward pass. */
  virtual int64_t max_batch_size() const = 0;
  /*! \brief The maximum number of tokens per forward pass. */
  virtual int64_t prefill_chunk_size() const = 0;
  /*! \brief The embedded rows that the model takes. */
  virtual PieceTraits piece_traits() const = 0;
  /*! \brief The layers whose hidden states `Forward` can return, in ascending order. */
  virtual std::span<const HiddenLayer> hidden_layers() const = 0;
  /*! \brief The floats of a hidden state; 0 if `hidden_layers` is empty. */
  virtual int64_t hidden_size() const = 0;
  /*! \brief The threads that compute the passes, which are idle between them; null if none are. */
  virtual ThreadPool* thread_pool() { return nullptr; }

  /*! \brief The sequences, and what the model keeps of their computed tokens. */
  virtual SequenceState& state() = 0;
  virtual const SequenceState& state() const = 0;

  /*!
   * \brief Append the tokens of every row, and compute the logits at `logit_positions` and the
   * requested hidden states.
   *
   * The costs of the rows together, with what they share counted once per row, fit in the total of
   * the state.
   *
   * \throws HiddenLayerError if the model cannot return a requested layer; nothing is appended.
   * \throws std::exception if the pass failed; afterwards the engine only removes sequences.
   */
  virtual ForwardOutput Forward(const ForwardInput& input) = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_MODEL_H_
