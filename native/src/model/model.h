/*!
 * \file model/model.h
 * \brief The interface between the engine and the model that computes logits.
 */
#ifndef AIOMLC_MODEL_MODEL_H_
#define AIOMLC_MODEL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aiomlc {

/*! \brief Rows that replace the embeddings of consecutive tokens of a forward pass. */
struct EmbeddedRows {
  /*! \brief The index in `ForwardInput::token_ids` of the first token. */
  int32_t begin;
  int32_t count;
  /*! \brief float32[count, embedded_row_size()], valid during the forward pass. */
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
   * \brief The ascending indices in `token_ids` at which logits are computed.
   *
   * A row may have any number of them: none in the middle of a prompt, several to verify a draft.
   * The list may be empty.
   */
  std::vector<int32_t> logit_positions;
};

/*!
 * \brief A language model with a paged KV cache.
 *
 * Not thread-safe: the engine serializes its calls. The sizes are constant and may be read from any
 * thread.
 *
 * The engine does the page accounting: a sequence of n tokens holds ceil(n / page_size()) pages,
 * and the engine never uses more than num_pages() in total. The rows of a forward pass together
 * have at most num_pages() pages, counting shared pages once per row.
 */
class Model {
 public:
  virtual ~Model() = default;

  virtual int64_t vocab_size() const = 0;
  /*! \brief The maximum number of tokens per sequence. */
  virtual int64_t context_window() const = 0;
  /*! \brief Tokens per page of the KV cache. */
  virtual int64_t page_size() const = 0;
  virtual int64_t num_pages() const = 0;
  /*! \brief The maximum number of rows per forward pass. */
  virtual int64_t max_batch_size() const = 0;
  /*! \brief The maximum number of tokens per forward pass. */
  virtual int64_t prefill_chunk_size() const = 0;
  /*! \brief The floats of an embedded row; 0 if the model takes no embedded rows. */
  virtual int64_t embedded_row_size() const = 0;
  /*! \brief The bytes of the keys and values of one token, in all layers. */
  virtual size_t kv_token_bytes() const = 0;

  /*! \brief Create an empty sequence. */
  virtual void AddSequence(int64_t sequence_id) = 0;
  /*!
   * \brief Create a sequence from the first `num_tokens` tokens of another one, at least one.
   *
   * Full pages are shared; a partially filled last page is copied.
   */
  virtual void ForkSequence(int64_t source_id, int64_t sequence_id, int64_t num_tokens) = 0;
  /*! \brief Remove a sequence and free its pages. */
  virtual void RemoveSequence(int64_t sequence_id) = 0;
  /*! \brief Remove the last `count` tokens of a sequence. */
  virtual void PopTokens(int64_t sequence_id, int64_t count) = 0;

  /*!
   * \brief Append the tokens of every row, and compute the logits at `logit_positions`.
   * \return float32[logit_positions.size(), vocab_size()], valid until the next call.
   * \throws std::exception if the pass failed; afterwards the engine only removes sequences.
   */
  virtual const float* Forward(const ForwardInput& input) = 0;

  /*!
   * \brief Copy the keys and values of the tokens [begin, end) of a sequence out of the cache.
   * \param data (end - begin) * kv_token_bytes() bytes, shape [2, layers, end - begin, heads, row]:
   *     first all keys, then all values.
   */
  virtual void ExportTokens(int64_t sequence_id, int64_t begin, int64_t end,
                            std::byte* data) const = 0;
  /*!
   * \brief Append `count` tokens, whose keys and values `ExportTokens` has returned, to a sequence.
   * \throws std::exception if that failed; afterwards the engine only removes sequences.
   */
  virtual void ImportTokens(int64_t sequence_id, int64_t count, const std::byte* data) = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_MODEL_H_
