/*!
 * \file model/shard_messages.h
 * \brief The messages of a model's first shard to the others: changes of sequences, and passes.
 */
#ifndef AIOMLC_MODEL_SHARD_MESSAGES_H_
#define AIOMLC_MODEL_SHARD_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace aiomlc {

/*! \brief Writes calls of a model and of its state, one after the other. */
class ShardMessageWriter {
 public:
  void Keep(int64_t sequence_id, int64_t num_tokens, Mark mark);
  void Add(int64_t sequence_id);
  void Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens);
  void Rewind(int64_t sequence_id, int64_t count);
  void Remove(int64_t sequence_id);
  /*! \param row_size The floats of an embedded row. */
  void Forward(const ForwardInput& input, int64_t row_size);

  std::span<const std::byte> bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  template <typename T>
  void Put(T value);
  template <typename T>
  void PutAll(const std::vector<T>& values);

  std::vector<std::byte> bytes_;
};

/*!
 * \brief Make the calls of a message, in their order.
 * \throws std::exception as the calls.
 */
void MakeCalls(std::span<const std::byte> message, Model* model);

}  // namespace aiomlc

#endif  // AIOMLC_MODEL_SHARD_MESSAGES_H_
