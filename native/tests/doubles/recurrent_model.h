/*!
 * \file tests/doubles/recurrent_model.h
 * \brief A fake hybrid model: its recurrent state can be forked and rewound only at checkpoints.
 */
#ifndef AIOMLC_TESTS_DOUBLES_RECURRENT_MODEL_H_
#define AIOMLC_TESTS_DOUBLES_RECURRENT_MODEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <stdexcept>
#include <vector>

#include "model/model.h"
#include "tests/doubles/hidden_bits.h"

namespace aiomlc {

/*!
 * \brief Keeps no tokens, only a state of constant size that each token updates.
 *
 * A sequence has a slot for its state, and one for each checkpoint: the state after every
 * `interval` tokens. Like the attention layers of a hybrid, it also has a page for every
 * `page_size` tokens. Nothing is shared, so every fork takes resources. Throws std::logic_error if
 * the engine forks or rewinds elsewhere than at a checkpoint or uses more than there is.
 */
class RecurrentModel final : public Model, public SequenceState {
 public:
  struct Sizes {
    int64_t vocab_size = 32;
    int64_t context_window = 64;
    int64_t interval = 4;
    int64_t num_slots = 64;
    int64_t page_size = 4;
    int64_t num_pages = 64;
    int64_t max_batch_size = 8;
    int64_t prefill_chunk_size = 16;
    std::vector<HiddenLayer> hidden_layers = {};
  };

  explicit RecurrentModel(Sizes sizes) : sizes_(sizes) {}

  int64_t vocab_size() const final { return sizes_.vocab_size; }
  int64_t context_window() const final { return sizes_.context_window; }
  int64_t max_batch_size() const final { return sizes_.max_batch_size; }
  PieceTraits piece_traits() const final { return {}; }
  int64_t prefill_chunk_size() const final { return sizes_.prefill_chunk_size; }
  std::span<const HiddenLayer> hidden_layers() const final { return sizes_.hidden_layers; }
  int64_t hidden_size() const final { return sizes_.hidden_layers.empty() ? 0 : HiddenBits::kSize; }
  SequenceState& state() final { return *this; }
  const SequenceState& state() const final { return *this; }

  Resources total() const final { return {.pages = sizes_.num_pages, .slots = sizes_.num_slots}; }
  Resources Cost(int64_t num_tokens) const final {
    if (num_tokens == 0) return {};
    return {.pages = (num_tokens + sizes_.page_size - 1) / sizes_.page_size,
            .slots = 1 + num_tokens / sizes_.interval};
  }
  Resources token_cost() const final { return {.pages = 1, .slots = 1}; }
  int64_t granularity() const final { return sizes_.interval; }
  int64_t sharing_granularity() const final { return 0; }
  int64_t Checkpoint(int64_t id, int64_t num_tokens) const final {
    const int64_t length = sequences_.at(id).length;
    return num_tokens >= length ? length : num_tokens - num_tokens % sizes_.interval;
  }
  void Keep(int64_t /*id*/, int64_t /*num_tokens*/, Mark /*mark*/) final {}

  void Add(int64_t id) final {
    Check(sequences_.try_emplace(id).second, "a sequence is added twice");
  }

  void Fork(int64_t source_id, int64_t id, int64_t num_tokens) final {
    Check(num_tokens > 0, "a fork has no tokens");
    const RecurrentSequence fork = Prefix(sequences_.at(source_id), num_tokens);
    Check(sequences_.try_emplace(id, fork).second, "a sequence is added twice");
    CheckUse();
  }

  void Rewind(int64_t id, int64_t count) final {
    RecurrentSequence& sequence = sequences_.at(id);
    Check(count > 0, "no tokens are removed");
    sequence = Prefix(sequence, sequence.length - count);
    ++num_rewinds_;
  }

  void Remove(int64_t id) final {
    Check(sequences_.erase(id) == 1, "an unknown sequence is removed");
  }

  /*! \brief The whole state, however many tokens have made it. */
  size_t ExportBytes(int64_t /*begin*/, int64_t end) const final {
    return static_cast<size_t>(1 + end / sizes_.interval) * sizeof(State);
  }

  void Export(int64_t id, int64_t /*begin*/, int64_t end, std::byte* data) const final {
    const RecurrentSequence prefix = Prefix(sequences_.at(id), end);
    std::memcpy(data, &prefix.state, sizeof(State));
    std::memcpy(data + sizeof(State), prefix.checkpoints.data(),
                prefix.checkpoints.size() * sizeof(State));
  }

  void Import(int64_t id, int64_t count, const std::byte* data) final {
    RecurrentSequence& sequence = sequences_.at(id);
    sequence.length += count;
    sequence.checkpoints.resize(static_cast<size_t>(sequence.length / sizes_.interval));
    std::memcpy(&sequence.state, data, sizeof(State));
    std::memcpy(sequence.checkpoints.data(), data + sizeof(State),
                sequence.checkpoints.size() * sizeof(State));
    CheckUse();
  }

  ForwardOutput Forward(const ForwardInput& input) final {
    RequireHiddenLayers(input.hidden.layers, hidden_layers());
    hidden_.Begin(input);
    Check(static_cast<int64_t>(input.sequence_ids.size()) <= sizes_.max_batch_size,
          "too many rows");
    Check(static_cast<int64_t>(input.token_ids.size()) <= sizes_.prefill_chunk_size,
          "too many tokens");
    num_computed_ += static_cast<int64_t>(input.token_ids.size());
    logits_.clear();
    size_t index = 0;
    for (size_t row = 0; row < input.sequence_ids.size(); ++row) {
      RecurrentSequence& sequence = sequences_.at(input.sequence_ids[row]);
      const size_t end = index + static_cast<size_t>(input.append_lengths[row]);
      for (; index < end; ++index) {
        Append(&sequence, input.token_ids[index]);
        if (std::binary_search(input.logit_positions.begin(), input.logit_positions.end(),
                               static_cast<int32_t>(index))) {
          AppendLogits(sequence.state);
        }
        hidden_.Append(static_cast<int32_t>(index), sequence.state.all);
      }
      Check(sequence.length <= sizes_.context_window, "a sequence exceeds the context window");
    }
    CheckUse();
    return {logits_.data(), hidden_.data()};
  }

  /*! \brief The resources of all sequences. */
  Resources in_use() const {
    Resources sum;
    for (const auto& [id, sequence] : sequences_) sum += Cost(sequence.length);
    return sum;
  }
  size_t num_sequences() const { return sequences_.size(); }
  int64_t num_rewinds() const { return num_rewinds_; }
  /*! \brief The tokens of all forward passes. */
  int64_t num_computed() const { return num_computed_; }

 private:
  /*! \brief The state after some tokens; it does not depend on how they were divided into passes.
   */
  struct State {
    uint64_t all = 0x243f6a8885a308d3u;
    uint64_t last_two = 0;
  };

  struct RecurrentSequence {
    int64_t length = 0;
    State state;
    std::vector<State> checkpoints;
  };

  static void Check(bool condition, const char* message) {
    if (!condition) throw std::logic_error(message);
  }

  void CheckUse() const { Check(in_use().FitsIn(total()), "more is used than exists"); }

  RecurrentSequence Prefix(const RecurrentSequence& sequence, int64_t num_tokens) const {
    Check(num_tokens <= sequence.length, "a sequence has fewer tokens");
    RecurrentSequence prefix = sequence;
    if (num_tokens == sequence.length) return prefix;
    Check(num_tokens % sizes_.interval == 0, "a fork or a rewind is not at a checkpoint");
    prefix.length = num_tokens;
    prefix.checkpoints.resize(static_cast<size_t>(num_tokens / sizes_.interval));
    prefix.state = num_tokens == 0 ? State() : prefix.checkpoints.back();
    return prefix;
  }

  void Append(RecurrentSequence* sequence, int32_t token_id) const {
    State& state = sequence->state;
    const uint64_t token = static_cast<uint64_t>(token_id);
    state.all = (state.all ^ token) * 0x100000001b3u + 1;
    state.last_two = (state.last_two % 0x10000) * 0x10000 + token + 1;
    if (++sequence->length % sizes_.interval == 0) sequence->checkpoints.push_back(state);
  }

  static float NextRandom(uint64_t* seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(*seed >> 40) * 0x1p-22f;
  }

  /*! \brief Mostly a function of the last two tokens, so that the output repeats itself. */
  void AppendLogits(const State& state) {
    uint64_t all = state.all;
    uint64_t last_two = state.last_two * 0x9e3779b97f4a7c15u + 1;
    for (int64_t i = 0; i < sizes_.vocab_size; ++i) {
      logits_.push_back(NextRandom(&last_two) + 0.1f * NextRandom(&all));
    }
  }

  const Sizes sizes_;
  std::map<int64_t, RecurrentSequence> sequences_;
  int64_t num_rewinds_ = 0;
  int64_t num_computed_ = 0;
  std::vector<float> logits_;
  HiddenBits hidden_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_RECURRENT_MODEL_H_
