/*!
 * \file model/model_state.h
 * \brief The state of a model that TVM's virtual machine runs.
 */
#ifndef AIOMLC_MODEL_MODEL_STATE_H_
#define AIOMLC_MODEL_MODEL_STATE_H_

#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/sequence_state.h"

namespace aiomlc {

/*! \brief The sizes that a model is opened with. */
struct ModelShape {
  int64_t vocab_size = 0;
  int64_t context_window = 0;
  int64_t max_batch_size = 0;
  int64_t prefill_chunk_size = 0;
  int64_t max_total_tokens = 0;
  /*! \brief Of the layers with attention; so are heads and rows. */
  int64_t num_layers = 0;
  int64_t num_query_heads = 0;
  int64_t num_kv_heads = 0;
  /*! \brief The stored elements of one head at one position, including the bytes of a scale. */
  int64_t kv_row_size = 0;
  std::string kv_dtype;
  /*! \brief The floats of the state of each recurrent layer; empty if there is none. */
  std::vector<int64_t> recurrent_sizes;
  /*! \brief The slots for recurrent states, and the tokens between their checkpoints. */
  int64_t num_slots = 0;
  int64_t checkpoint_interval = 0;
  /*! \brief The embedded rows that its libraries take; see `PieceTraits` for both. */
  int64_t embedded_row_size = 0;
  bool needs_whole_pieces = false;
  /*! \brief The first layers, after which a part of an embedded row is added. */
  int64_t num_piece_layers = 0;
  /*! \brief See `PassPieces::rope_axes`; empty if RoPE has one position per token. */
  std::vector<uint8_t> rope_axes;
};

/*! \brief The state that the functions of a compiled library read and write. */
class ModelState : public SequenceState {
 public:
  /*! \brief The object that the functions of the library take. */
  virtual const tvm::ffi::Any& cache() const = 0;
  /*! \brief Take memory for the tokens that the functions of the library append next. */
  virtual void BeginForward(const ForwardInput& input) = 0;
  virtual void EndForward() = 0;
  /*! \brief Return the number of free pages according to TVM's KV cache. */
  virtual int64_t FreePages() const = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_MODEL_STATE_H_
