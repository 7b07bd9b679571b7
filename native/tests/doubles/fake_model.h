/*!
 * \file tests/doubles/fake_model.h
 * \brief A fake model: logits are a function of the tokens, and the cache usage is validated.
 */
#ifndef AIOMLC_TESTS_DOUBLES_FAKE_MODEL_H_
#define AIOMLC_TESTS_DOUBLES_FAKE_MODEL_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "tests/doubles/hidden_bits.h"

namespace aiomlc {

/*!
 * \brief Stores the tokens of every sequence, and throws std::logic_error if the engine violates
 * the contract of model.h: too many rows, tokens or pages, an unknown sequence, an invalid logit
 * position. A fork shares pages like TVM's cache.
 */
class FakeModel final : public Model, public SequenceState {
 public:
  using Tokens = std::vector<int32_t>;
  /*! \brief Computes the logits after the given tokens. */
  using LogitFunction = std::function<void(const Tokens&, std::vector<float>*)>;

  struct Sizes {
    int64_t vocab_size = 32;
    int64_t context_window = 64;
    int64_t page_size = 4;
    int64_t num_pages = 64;
    int64_t max_batch_size = 8;
    int64_t prefill_chunk_size = 16;
    PieceTraits pieces = {};
    std::vector<HiddenLayer> hidden_layers = {};
  };

  explicit FakeModel(Sizes sizes) : sizes_(sizes), logit_function_(HashedLogits) {}

  int64_t vocab_size() const final { return sizes_.vocab_size; }
  int64_t context_window() const final { return sizes_.context_window; }
  int64_t max_batch_size() const final { return sizes_.max_batch_size; }
  int64_t prefill_chunk_size() const final { return sizes_.prefill_chunk_size; }
  PieceTraits piece_traits() const final { return sizes_.pieces; }
  std::span<const HiddenLayer> hidden_layers() const final { return sizes_.hidden_layers; }
  int64_t hidden_size() const final { return sizes_.hidden_layers.empty() ? 0 : HiddenBits::kSize; }
  ThreadPool* thread_pool() final { return pool_; }
  int64_t num_pages() const { return sizes_.num_pages; }

  SequenceState& state() final { return *this; }
  const SequenceState& state() const final { return *this; }
  Resources total() const final { return {.pages = sizes_.num_pages}; }
  Resources Cost(int64_t num_tokens) const final {
    return {.pages = PagesFor(static_cast<size_t>(num_tokens))};
  }
  Resources token_cost() const final { return {.pages = 1}; }
  int64_t granularity() const final { return 1; }
  int64_t sharing_granularity() const final { return sizes_.page_size; }
  int64_t Checkpoint(int64_t /*sequence_id*/, int64_t num_tokens) const final { return num_tokens; }
  void Keep(int64_t /*sequence_id*/, int64_t /*num_tokens*/, Mark /*mark*/) final {}
  /*! \brief The keys and values of a token are its id, those of an embedded row its hash. */
  size_t ExportBytes(int64_t begin, int64_t end) const final {
    return static_cast<size_t>(end - begin) * sizeof(int32_t);
  }

  /*! \return A hash of all tokens and their order, whose bits are the hidden state. */
  static uint64_t HashOf(const Tokens& tokens) {
    uint64_t hash = 0x243f6a8885a308d3u;
    for (int32_t token : tokens) hash = NextHash(hash, token);
    return hash;
  }
  static uint64_t NextHash(uint64_t hash, int32_t token) {
    return (hash ^ static_cast<uint64_t>(token)) * 0x100000001b3u + 1;
  }

  /*! \brief Compute pseudorandom logits that depend on all tokens and their order. */
  static void HashedLogits(const Tokens& tokens, std::vector<float>* logits) {
    Head(HashOf(tokens), logits);
  }

  /*! \brief Compute the pseudorandom logits of a hidden state with these bits. */
  static void Head(uint64_t state, std::vector<float>* logits) {
    for (float& logit : *logits) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      logit = static_cast<float>(state >> 40) * 0x1p-22f;
    }
  }

  void SetLogits(LogitFunction function) { logit_function_ = std::move(function); }

  /*! \brief Make greedy decoding continue with the token that `next` returns. */
  void Script(std::function<int32_t(const Tokens&)> next) {
    logit_function_ = [next = std::move(next)](const Tokens& tokens, std::vector<float>* logits) {
      std::fill(logits->begin(), logits->end(), 0.0f);
      logits->at(static_cast<size_t>(next(tokens))) = 9.0f;
    };
  }

  /*! \brief Make greedy decoding continue prompts of `prompt_size` tokens with `completion`. */
  void ScriptTokens(size_t prompt_size, Tokens completion) {
    Script([prompt_size, completion = std::move(completion)](const Tokens& tokens) {
      return completion.at(tokens.size() - prompt_size);
    });
  }

  /*! \brief Make the forward pass with this number, counted from 0, throw. */
  void ThrowAt(int64_t forward) { throw_at_ = forward; }
  /*! \brief Call `hook` at the beginning of every forward pass. */
  void OnForward(std::function<void()> hook) { forward_hook_ = std::move(hook); }
  /*! \brief Give NaN logits to sequences that start with this token. */
  void PoisonToken(int32_t token) { poison_token_ = token; }
  /*! \brief Let the engine sample in these threads. */
  void UseThreads(ThreadPool* pool) { pool_ = pool; }
  /*! \brief Make `Remove` throw after it removed the sequence. */
  void ThrowOnRemove() { throws_on_remove_ = true; }
  /*! \brief Make `Import` throw. */
  void ThrowOnImport() { throws_on_import_ = true; }
  /*! \brief Make `Rewind` throw. */
  void ThrowOnRewind() { throws_on_rewind_ = true; }

  void Add(int64_t id) final {
    Check(sequences_.try_emplace(id).second, "a sequence is added twice");
  }

  void Fork(int64_t source_id, int64_t id, int64_t num_tokens) final {
    const CachedSequence& source = sequences_.at(source_id);
    const int64_t length = static_cast<int64_t>(source.tokens.size());
    Check(num_tokens > 0 && num_tokens <= length, "a fork has no tokens or more than its source");
    Check(!sequences_.contains(id), "a sequence is added twice");
    CachedSequence& fork = sequences_[id];
    const int64_t num_shared = num_tokens / sizes_.page_size;
    fork.pages.assign(source.pages.begin(), source.pages.begin() + num_shared);
    fork.tokens.assign(source.tokens.begin(), source.tokens.begin() + num_tokens);
    TakePages(&fork);
  }

  void Remove(int64_t id) final {
    Check(sequences_.erase(id) == 1, "an unknown sequence is removed");
    if (throws_on_remove_) throw std::runtime_error("cache error");
  }

  void Rewind(int64_t id, int64_t count) final {
    if (throws_on_rewind_) throw std::runtime_error("cache error");
    CachedSequence& sequence = sequences_.at(id);
    Check(count > 0 && count <= static_cast<int64_t>(sequence.tokens.size()),
          "the number of removed tokens is invalid");
    sequence.tokens.resize(sequence.tokens.size() - static_cast<size_t>(count));
    sequence.pages.resize(static_cast<size_t>(PagesFor(sequence.tokens.size())));
  }

  ForwardOutput Forward(const ForwardInput& input) final {
    if (forward_hook_) forward_hook_();
    if (static_cast<int64_t>(forwards_.size()) == throw_at_)
      throw std::runtime_error("forward failed");
    CheckInput(input);
    RequireHiddenLayers(input.hidden.layers, hidden_layers());
    hidden_.Begin(input);
    forwards_.push_back(input);
    logits_.clear();
    size_t end = 0;
    for (size_t row = 0; row < input.sequence_ids.size(); ++row) {
      const size_t begin = end;
      end += static_cast<size_t>(input.append_lengths[row]);
      CachedSequence& sequence = sequences_.at(input.sequence_ids[row]);
      Tokens& tokens = sequence.tokens;
      for (size_t index = begin; index < end; ++index) {
        tokens.push_back(WithPosition(input, index, tokens.size()));
        if (std::binary_search(input.logit_positions.begin(), input.logit_positions.end(),
                               static_cast<int32_t>(index))) {
          AppendLogits(tokens);
        }
        if (!input.hidden.layers.empty()) {
          hidden_.Append(static_cast<int32_t>(index), HashOf(tokens));
        }
      }
      Check(static_cast<int64_t>(tokens.size()) <= sizes_.context_window,
            "a sequence exceeds the context window");
      TakePages(&sequence);
    }
    Check(logits_.size() == input.logit_positions.size() * static_cast<size_t>(sizes_.vocab_size),
          "a logit position is duplicate or out of range");
    return {logits_.data(), hidden_.data()};
  }

  void Export(int64_t id, int64_t begin, int64_t end, std::byte* data) const final {
    const Tokens& tokens = sequences_.at(id).tokens;
    Check(0 <= begin && begin < end && end <= static_cast<int64_t>(tokens.size()),
          "exported tokens are not in the cache");
    std::memcpy(data, tokens.data() + begin, static_cast<size_t>(end - begin) * sizeof(int32_t));
  }

  void Import(int64_t id, int64_t count, const std::byte* data) final {
    if (throws_on_import_) throw std::runtime_error("import failed");
    CachedSequence& sequence = sequences_.at(id);
    Check(count > 0, "no tokens are imported");
    const size_t begin = sequence.tokens.size();
    sequence.tokens.resize(begin + static_cast<size_t>(count));
    std::memcpy(sequence.tokens.data() + begin, data, static_cast<size_t>(count) * sizeof(int32_t));
    Check(static_cast<int64_t>(sequence.tokens.size()) <= sizes_.context_window,
          "a sequence exceeds the context window");
    TakePages(&sequence);
  }

  /*! \return A negative number that the cache holds for an embedded row, in place of a token id. */
  int32_t HashOfRow(const float* row) const {
    uint32_t hash = 0x811c9dc5u;
    for (int64_t i = 0; i < sizes_.pieces.row_size; ++i) {
      hash = (hash ^ std::bit_cast<uint32_t>(row[i])) * 0x01000193u;
    }
    return -1 - static_cast<int32_t>(hash >> 1);
  }

  int64_t pages_in_use() const { return pages_in_use_; }
  Resources in_use() const { return {.pages = pages_in_use_}; }
  size_t num_sequences() const { return sequences_.size(); }
  const Tokens& tokens(int64_t id) const { return sequences_.at(id).tokens; }
  /*! \brief The inputs of all forward passes, in order. */
  const std::vector<ForwardInput>& forwards() const { return forwards_; }

 private:
  /*! \brief A page, which counts as used until its last sequence releases it. */
  struct Page {
    explicit Page(int64_t* count) : count(count) { ++*count; }
    ~Page() { --*count; }
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;
    int64_t* count;
  };

  struct CachedSequence {
    Tokens tokens;
    std::vector<std::shared_ptr<Page>> pages;
  };

  int32_t TokenAt(const ForwardInput& input, int32_t index) const {
    for (const EmbeddedRows& rows : input.embedded) {
      if (index < rows.begin || index >= rows.begin + rows.count) continue;
      return HashOfRow(rows.data + (index - rows.begin) * sizes_.pieces.row_size);
    }
    return input.token_ids[static_cast<size_t>(index)];
  }

  /*! \return A token, changed if its RoPE position on an axis is not its place in the sequence. */
  int32_t WithPosition(const ForwardInput& input, size_t index, size_t place) const {
    int32_t token = TokenAt(input, static_cast<int32_t>(index));
    if (input.rope_positions.empty()) return token;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int32_t position = input.rope_positions[axis * input.token_ids.size() + index];
      const auto offset = static_cast<uint32_t>(position) - static_cast<uint32_t>(place);
      const uint32_t hash = (static_cast<uint32_t>(token) ^ offset) * 0x01000193u + offset;
      if (offset != 0) token = -1 - static_cast<int32_t>(hash >> 1);
    }
    return token;
  }

  int64_t PagesFor(size_t num_tokens) const {
    return (static_cast<int64_t>(num_tokens) + sizes_.page_size - 1) / sizes_.page_size;
  }

  void TakePages(CachedSequence* sequence) {
    const int64_t num_pages = PagesFor(sequence->tokens.size());
    while (static_cast<int64_t>(sequence->pages.size()) < num_pages) {
      sequence->pages.push_back(std::make_shared<Page>(&pages_in_use_));
    }
    Check(pages_in_use_ <= sizes_.num_pages, "more pages are used than exist");
  }

  static void Check(bool condition, const char* message) {
    if (!condition) throw std::logic_error(message);
  }

  void CheckInput(const ForwardInput& input) const {
    const auto size = [](const auto& values) { return static_cast<int64_t>(values.size()); };
    Check(size(input.sequence_ids) > 0, "a forward pass has no rows");
    Check(size(input.sequence_ids) <= sizes_.max_batch_size, "too many rows");
    Check(size(input.token_ids) <= sizes_.prefill_chunk_size, "too many tokens");
    Check(input.append_lengths.size() == input.sequence_ids.size(),
          "the rows and their lengths differ in number");
    const std::set<int64_t> ids(input.sequence_ids.begin(), input.sequence_ids.end());
    Check(size(ids) == size(input.sequence_ids), "a sequence has two rows");
    Check(std::is_sorted(input.logit_positions.begin(), input.logit_positions.end()),
          "the logit positions are not sorted");
    int32_t end = 0;
    for (const EmbeddedRows& rows : input.embedded) {
      Check(sizes_.pieces.row_size > 0, "a model without embedded rows is given some");
      Check(rows.begin >= end && rows.count > 0, "embedded rows are empty, overlap or not sorted");
      end = rows.begin + rows.count;
    }
    Check(end <= size(input.token_ids), "embedded rows are out of range");
    Check(input.rope_positions.empty() || (sizes_.pieces.takes_grids &&
                                           size(input.rope_positions) == 3 * size(input.token_ids)),
          "the RoPE positions are not those of the tokens");
    int64_t total = 0;
    int64_t pages = 0;
    for (size_t row = 0; row < input.append_lengths.size(); ++row) {
      const int32_t length = input.append_lengths[row];
      Check(length > 0, "a row is empty");
      total += length;
      pages += PagesFor(sequences_.at(input.sequence_ids[row]).tokens.size() +
                        static_cast<size_t>(length));
    }
    Check(pages <= sizes_.num_pages, "the page tables of the rows are too long");
    Check(total == size(input.token_ids), "the row lengths do not sum to the number of tokens");
  }

  void AppendLogits(const Tokens& tokens) {
    std::vector<float> row(static_cast<size_t>(sizes_.vocab_size));
    logit_function_(tokens, &row);
    if (tokens.front() == poison_token_) {
      row[row.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    }
    logits_.insert(logits_.end(), row.begin(), row.end());
  }

  Sizes sizes_;
  LogitFunction logit_function_;
  std::function<void()> forward_hook_;
  std::optional<int32_t> poison_token_;
  ThreadPool* pool_ = nullptr;
  int64_t throw_at_ = -1;
  bool throws_on_remove_ = false;
  bool throws_on_rewind_ = false;
  bool throws_on_import_ = false;
  int64_t pages_in_use_ = 0;
  std::map<int64_t, CachedSequence> sequences_;
  std::vector<float> logits_;
  HiddenBits hidden_;
  std::vector<ForwardInput> forwards_;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_FAKE_MODEL_H_
