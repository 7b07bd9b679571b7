#include "model/shard_messages.h"

#include <cstring>
#include <stdexcept>

namespace aiomlc {

namespace {

enum class Call : int64_t { kKeep, kAdd, kFork, kRewind, kRemove, kForward };

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  template <typename T>
  T Get() {
    T value;
    Copy(&value, 1);
    return value;
  }

  template <typename T>
  std::vector<T> GetAll() {
    std::vector<T> values(Get<uint64_t>());
    Copy(values.data(), values.size());
    return values;
  }

 private:
  template <typename T>
  void Copy(T* out, size_t count) {
    const size_t size = count * sizeof(T);
    if (size > bytes_.size()) throw std::logic_error("a message to a shard is incomplete");
    if (size > 0) std::memcpy(out, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }

  std::span<const std::byte> bytes_;
};

void MakePass(Reader* reader, Model* model) {
  ForwardInput input;
  input.sequence_ids = reader->GetAll<int64_t>();
  input.append_lengths = reader->GetAll<int32_t>();
  input.token_ids = reader->GetAll<int32_t>();
  input.rope_positions = reader->GetAll<int32_t>();
  input.logit_positions = reader->GetAll<int32_t>();
  input.draft_lengths = reader->GetAll<int32_t>();
  std::vector<std::vector<float>> rows(reader->Get<uint64_t>());
  for (std::vector<float>& row : rows) {
    const auto begin = reader->Get<int32_t>();
    const auto count = reader->Get<int32_t>();
    row = reader->GetAll<float>();
    input.embedded.push_back({begin, count, row.data()});
  }
  model->Forward(input);
}

}  // namespace

template <typename T>
void ShardMessageWriter::Put(T value) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&value);
  bytes_.insert(bytes_.end(), begin, begin + sizeof(value));
}

template <typename T>
void ShardMessageWriter::PutAll(const std::vector<T>& values) {
  Put(static_cast<uint64_t>(values.size()));
  const auto* const begin = reinterpret_cast<const std::byte*>(values.data());
  bytes_.insert(bytes_.end(), begin, begin + values.size() * sizeof(T));
}

void ShardMessageWriter::Keep(int64_t sequence_id, int64_t num_tokens, Mark mark) {
  Put(Call::kKeep);
  Put(sequence_id);
  Put(num_tokens);
  Put(mark);
}

void ShardMessageWriter::Add(int64_t sequence_id) {
  Put(Call::kAdd);
  Put(sequence_id);
}

void ShardMessageWriter::Fork(int64_t source_id, int64_t sequence_id, int64_t num_tokens) {
  Put(Call::kFork);
  Put(source_id);
  Put(sequence_id);
  Put(num_tokens);
}

void ShardMessageWriter::Rewind(int64_t sequence_id, int64_t count) {
  Put(Call::kRewind);
  Put(sequence_id);
  Put(count);
}

void ShardMessageWriter::Remove(int64_t sequence_id) {
  Put(Call::kRemove);
  Put(sequence_id);
}

void ShardMessageWriter::Forward(const ForwardInput& input, int64_t row_size) {
  Put(Call::kForward);
  PutAll(input.sequence_ids);
  PutAll(input.append_lengths);
  PutAll(input.token_ids);
  PutAll(input.rope_positions);
  PutAll(input.logit_positions);
  PutAll(input.draft_lengths);
  Put(static_cast<uint64_t>(input.embedded.size()));
  for (const EmbeddedRows& embedded : input.embedded) {
    Put(embedded.begin);
    Put(embedded.count);
    const float* const data = embedded.data;
    PutAll(std::vector<float>(data, data + embedded.count * row_size));
  }
}

void MakeCalls(std::span<const std::byte> message, Model* model) {
  Reader reader(message);
  SequenceState& state = model->state();
  // Arguments are read one by one, because those of a call have no order.
  while (!reader.empty()) {
    const auto call = reader.Get<Call>();
    if (call == Call::kForward) {
      MakePass(&reader, model);
      continue;
    }
    const auto first = reader.Get<int64_t>();
    if (call == Call::kAdd) {
      state.Add(first);
    } else if (call == Call::kRemove) {
      state.Remove(first);
    } else {
      const auto second = reader.Get<int64_t>();
      if (call == Call::kRewind) {
        state.Rewind(first, second);
      } else if (call == Call::kKeep) {
        state.Keep(first, second, reader.Get<Mark>());
      } else {
        state.Fork(first, second, reader.Get<int64_t>());
      }
    }
  }
}

}  // namespace aiomlc
