/*!
 * \file model/model.h
 * \brief The seam between the engine and whatever computes logits.
 */
#ifndef AIOMLC_MODEL_MODEL_H_
#define AIOMLC_MODEL_MODEL_H_

#include <cstdint>
#include <vector>

namespace aiomlc {

/*! \brief The rows of one forward pass; every row appends at least one token to its sequence. */
struct ForwardInput {
  /*! \brief One id per row; no id twice. */
  std::vector<int64_t> sequence_ids;
  /*! \brief Tokens that each row appends. */
  std::vector<int32_t> append_lengths;
  /*! \brief The tokens of all rows, one row after the other. */
  std::vector<int32_t> token_ids;
  /*!
   * \brief The indices in `token_ids` of the tokens that logits are wanted after, ascending.
   *
   * A row may have any number of them: none in the middle of its prompt, several where it is a
   * draft. The list may be empty.
   */
  std::vector<int32_t> logit_positions;
};

/*!
 * \brief A language model with a paged KV cache.
 *
 * Not thread-safe: the engine serialises its calls. The sizes are constant and may be read from any
 * thread.
 *
 * The engine counts pages itself: a sequence of n tokens holds ceil(n / page_size()) pages, and the
 * engine never asks for more than num_pages() at once. The rows of a forward pass have no more than
 * num_pages() pages between them, even where they share some.
 */
class Model {
 public:
  virtual ~Model() = default;

  virtual int64_t vocab_size() const = 0;
  /*! \brief The most tokens that one sequence can hold. */
  virtual int64_t context_window() const = 0;
  /*! \brief Tokens of one page of the KV cache. */
  virtual int64_t page_size() const = 0;
  virtual int64_t num_pages() const = 0;
  /*! \brief The most rows of one forward pass. */
  virtual int64_t max_batch_size() const = 0;
  /*! \brief The most tokens of one forward pass. */
  virtual int64_t prefill_chunk_size() const = 0;

  /*! \brief Begin an empty sequence. */
  virtual void AddSequence(int64_t sequence_id) = 0;
  /*!
   * \brief Begin a sequence with the first `num_tokens` tokens of another, at least one.
   *
   * The two share the pages that these tokens fill; a page that they begin is copied.
   */
  virtual void ForkSequence(int64_t source_id, int64_t sequence_id, int64_t num_tokens) = 0;
  /*! \brief Forget a sequence and free its pages. */
  virtual void RemoveSequence(int64_t sequence_id) = 0;
  /*! \brief Take the last `count` tokens off a sequence. */
  virtual void PopTokens(int64_t sequence_id, int64_t count) = 0;

  /*!
   * \brief Append the tokens of every row and compute the logits that were asked for.
   * \return float32[logit_positions.size(), vocab_size()], valid until the next call.
   * \throws std::exception when the pass failed; the engine does not use the model afterwards,
   *     except to remove sequences.
   */
  virtual const float* Forward(const ForwardInput& input) = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_MODEL_H_
