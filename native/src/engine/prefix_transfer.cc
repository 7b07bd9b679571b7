#include "engine/prefix_transfer.h"

#include <optional>
#include <string>
#include <vector>

#include "options/engine_error.h"
#include "prompt/prompt.h"

namespace aiomlc {

namespace {

void Require(bool condition, const std::string& message) {
  if (!condition) throw EngineError(ErrorKind::kBadRequest, message);
}

}  // namespace

void PrefixTransfer::Validate(const PrefixKey& key, int64_t begin, size_t data_size) const {
  const int64_t num_tokens = static_cast<int64_t>(key.size());
  Require(context_.scheduler.prefix_cache().is_on(),
          "a prefix cannot be transferred while the prefix cache is disabled");
  Require(begin >= 0 && begin < num_tokens,
          "begin must be in [0, " + std::to_string(num_tokens) + "), got " + std::to_string(begin));
  const size_t expected = context_.model->state().ExportBytes(begin, num_tokens);
  Require(data_size == expected, "the keys and values of " + std::to_string(num_tokens - begin) +
                                     " tokens have " + std::to_string(expected) + " bytes, got " +
                                     std::to_string(data_size));
  ValidateTokenIds("the token ids", key.keys.token_ids, context_.model->vocab_size());
  const PieceTraits traits = context_.model->piece_traits();
  ValidatePieces(key.keys.pieces, num_tokens, traits);
  for (const int64_t position : {begin, num_tokens}) {
    Require(!traits.needs_whole_pieces || BeginOfCutPiece(key.keys.pieces, position) == position,
            "a prefix of this model must not begin or end within an embedded piece, got position " +
                std::to_string(position));
  }
}

int64_t PrefixTransfer::CountCached(const PrefixKey& key) const {
  ValidatePieces(key.keys.pieces, static_cast<int64_t>(key.size()), context_.model->piece_traits());
  return context_.scheduler.FindPrefix(key).num_tokens;
}

PrefixMatch PrefixTransfer::FindAll(const PrefixKey& key) const {
  const PrefixMatch match = context_.scheduler.FindPrefix(key);
  if (match.num_tokens < static_cast<int64_t>(key.size())) {
    throw EngineError(ErrorKind::kPrefixNotCached,
                      "only " + std::to_string(match.num_tokens) + " of the first " +
                          std::to_string(key.size()) + " tokens are in the prefix cache");
  }
  return match;
}

void PrefixTransfer::Export(const PrefixKey& key, int64_t begin, std::span<std::byte> data) {
  Validate(key, begin, data.size());
  const PrefixMatch match = FindAll(key);
  context_.scheduler.Touch(match.id);
  context_.model->state().Export(match.id, begin, static_cast<int64_t>(key.size()), data.data());
}

void PrefixTransfer::Import(const PrefixKey& key, int64_t begin, std::span<const std::byte> data,
                            int64_t max_tokens) {
  Validate(key, begin, data.size());
  Scheduler& scheduler = context_.scheduler;
  const int64_t num_tokens = static_cast<int64_t>(key.size());
  SequenceState& state = context_.model->state();
  // Another fork would need resources of its own before the evictions.
  const int64_t granularity = state.sharing_granularity();
  Require(begin == LastSharedFork(state, begin),
          (granularity == 0 ? "begin must be 0"
                            : "begin must be a multiple of " + std::to_string(granularity)) +
              ", got " + std::to_string(begin));
  Require(num_tokens <= max_tokens, "a prefix must have at most " + std::to_string(max_tokens) +
                                        " tokens, got " + std::to_string(num_tokens));
  const PrefixMatch cached = scheduler.FindPrefix(key);
  if (cached.num_tokens == num_tokens) return scheduler.Touch(cached.id);
  const PrefixMatch source =
      begin == 0 ? PrefixMatch() : FindAll(key.First(static_cast<size_t>(begin)));

  const int64_t id = ids_.Next();
  const std::optional<std::vector<int64_t>> removed = scheduler.AddImported(id, key, source.id);
  if (!removed.has_value()) {
    throw EngineError(ErrorKind::kEngineOverloaded,
                      "the KV cache has no room for a prefix of " + std::to_string(num_tokens) +
                          " tokens, which needs " + state.Cost(num_tokens).ToString() + ": only " +
                          scheduler.available().ToString() + " are available; try again later");
  }
  if (begin == 0) {
    state.Add(id);
  } else {
    state.Fork(source.id, id, begin);
  }
  sequences_.RemoveFromModel(*removed);
  state.Import(id, num_tokens - begin, data.data());
}

}  // namespace aiomlc
