#include "engine/prefix_transfer.h"

#include <optional>
#include <string>
#include <vector>

#include "options/engine_error.h"

namespace aiomlc {

namespace {

void Require(bool condition, const std::string& message) {
  if (!condition) throw EngineError(ErrorKind::kBadRequest, message);
}

}  // namespace

void PrefixTransfer::Validate(std::span<const int32_t> tokens, int64_t begin,
                              size_t data_size) const {
  const int64_t num_tokens = static_cast<int64_t>(tokens.size());
  Require(context_.scheduler.prefix_cache().is_on(),
          "a prefix cannot be transferred while the prefix cache is disabled");
  Require(begin >= 0 && begin < num_tokens,
          "begin must be in [0, " + std::to_string(num_tokens) + "), got " + std::to_string(begin));
  const size_t expected =
      static_cast<size_t>(num_tokens - begin) * context_.model->kv_token_bytes();
  Require(data_size == expected, "the keys and values of " + std::to_string(num_tokens - begin) +
                                     " tokens have " + std::to_string(expected) + " bytes, got " +
                                     std::to_string(data_size));
  for (int32_t token_id : tokens) {
    Require(token_id >= 0 && token_id < context_.model->vocab_size(),
            "the token ids must be in [0, " + std::to_string(context_.model->vocab_size()) +
                "), got " + std::to_string(token_id));
  }
}

int64_t PrefixTransfer::CountCached(std::span<const int32_t> tokens) const {
  return context_.scheduler.prefix_cache().Find(tokens).num_tokens;
}

PrefixMatch PrefixTransfer::FindAll(std::span<const int32_t> tokens) const {
  const PrefixMatch match = context_.scheduler.prefix_cache().Find(tokens);
  if (match.num_tokens < static_cast<int64_t>(tokens.size())) {
    throw EngineError(ErrorKind::kPrefixNotCached,
                      "only " + std::to_string(match.num_tokens) + " of the first " +
                          std::to_string(tokens.size()) + " tokens are in the prefix cache");
  }
  return match;
}

void PrefixTransfer::Export(std::span<const int32_t> tokens, int64_t begin,
                            std::span<std::byte> data) {
  Validate(tokens, begin, data.size());
  const PrefixMatch match = FindAll(tokens);
  context_.scheduler.Touch(match.id);
  context_.model->ExportTokens(match.id, begin, static_cast<int64_t>(tokens.size()), data.data());
}

void PrefixTransfer::Import(std::span<const int32_t> tokens, int64_t begin,
                            std::span<const std::byte> data, int64_t max_tokens) {
  Validate(tokens, begin, data.size());
  Scheduler& scheduler = context_.scheduler;
  const int64_t num_tokens = static_cast<int64_t>(tokens.size());
  // A fork within a page would need a page for its copy before the evictions.
  Require(begin % scheduler.pages().page_size() == 0,
          "begin must be a multiple of " + std::to_string(scheduler.pages().page_size()) +
              ", got " + std::to_string(begin));
  Require(num_tokens <= max_tokens, "a prefix must have at most " + std::to_string(max_tokens) +
                                        " tokens, got " + std::to_string(num_tokens));
  const PrefixMatch cached = scheduler.prefix_cache().Find(tokens);
  if (cached.num_tokens == num_tokens) return scheduler.Touch(cached.id);
  const PrefixMatch source =
      begin == 0 ? PrefixMatch() : FindAll(tokens.first(static_cast<size_t>(begin)));

  const int64_t id = ids_.Next();
  const std::optional<std::vector<int64_t>> removed = scheduler.AddImported(id, tokens, source.id);
  if (!removed.has_value()) {
    throw EngineError(ErrorKind::kEngineOverloaded,
                      "the KV cache has no room for a prefix of " + std::to_string(num_tokens) +
                          " tokens: " + std::to_string(scheduler.available_pages()) + " pages of " +
                          std::to_string(scheduler.pages().page_size()) +
                          " tokens are available; try again later");
  }
  if (begin == 0) {
    context_.model->AddSequence(id);
  } else {
    context_.model->ForkSequence(source.id, id, begin);
  }
  sequences_.RemoveFromModel(*removed);
  context_.model->ImportTokens(id, num_tokens - begin, data.data());
}

}  // namespace aiomlc
