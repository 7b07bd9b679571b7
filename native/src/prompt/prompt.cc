#include "prompt/prompt.h"

#include <string>

#include "options/engine_error.h"

namespace aiomlc {

namespace {

void Require(bool condition, const std::string& message) {
  if (!condition) throw EngineError(ErrorKind::kBadRequest, message);
}

std::string FieldOf(size_t piece, const char* field) {
  return "prompt.pieces[" + std::to_string(piece) + "]." + field;
}

}  // namespace

void ValidateTokenIds(const char* name, std::span<const int32_t> token_ids, int64_t vocab_size) {
  for (int32_t token_id : token_ids) {
    if (token_id >= 0 && token_id < vocab_size) continue;
    Require(false, std::string(name) + " must be in [0, " + std::to_string(vocab_size) + "), got " +
                       std::to_string(token_id));
  }
}

namespace {

void ValidateGrid(size_t index, const PieceKey& piece, const PieceTraits& traits) {
  const PieceGrid& grid = piece.grid;
  if (grid == PieceGrid()) return;
  Require(traits.takes_grids,
          FieldOf(index, "grid") + " must be absent: the model has one RoPE position per token");
  const auto is_valid = [&](int64_t size) { return size >= 1 && size <= piece.num_positions; };
  const bool fits = is_valid(grid.time) && is_valid(grid.height) && is_valid(grid.width) &&
                    is_valid(grid.time * grid.height) &&
                    grid.time * grid.height * grid.width == piece.num_positions;
  Require(fits, FieldOf(index, "grid") + " must have " + std::to_string(piece.num_positions) +
                    " rows, as the piece, got " + std::to_string(grid.time) + " x " +
                    std::to_string(grid.height) + " x " + std::to_string(grid.width));
}

}  // namespace

void ValidatePieces(std::span<const PieceKey> pieces, int64_t num_tokens,
                    const PieceTraits& traits) {
  Require(pieces.empty() || traits.row_size > 0,
          "prompt.pieces: the model takes no embedded pieces, got " +
              std::to_string(pieces.size()) + "; send a prompt of token ids only");
  int64_t end = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PieceKey& piece = pieces[i];
    Require(piece.begin >= end && piece.begin < num_tokens,
            FieldOf(i, "begin") + " must be in [" + std::to_string(end) + ", " +
                std::to_string(num_tokens) + "), got " + std::to_string(piece.begin));
    const int64_t num_left = num_tokens - piece.begin;
    Require(piece.num_positions >= 1 && piece.num_positions <= num_left,
            FieldOf(i, "num_positions") + " must be in [1, " + std::to_string(num_left) +
                "], got " + std::to_string(piece.num_positions));
    ValidateGrid(i, piece, traits);
    end = piece.end();
  }
}

void ValidatePrompt(const Prompt& prompt, int64_t vocab_size, const PieceTraits& traits,
                    int64_t max_tokens) {
  Require(!prompt.token_ids.empty(), "the prompt must have at least one token");
  ValidateTokenIds("the token ids of the prompt", prompt.token_ids, vocab_size);
  ValidatePieces(KeysOf(prompt.pieces), static_cast<int64_t>(prompt.token_ids.size()), traits);
  for (size_t i = 0; i < prompt.pieces.size(); ++i) {
    const PromptPiece& piece = prompt.pieces[i];
    Require(piece.rows != nullptr && piece.row_size == traits.row_size,
            FieldOf(i, "rows") + " must have " + std::to_string(traits.row_size) +
                " floats per position, got " +
                std::to_string(piece.rows == nullptr ? 0 : piece.row_size));
    Require(!traits.needs_whole_pieces || piece.key.num_positions <= max_tokens,
            FieldOf(i, "rows") + " must have at most " + std::to_string(max_tokens) +
                " rows, got " + std::to_string(piece.key.num_positions) +
                ": the model computes an image in one step, whose size is prefill_chunk_size");
  }
}

std::vector<PieceKey> KeysOf(std::span<const PromptPiece> pieces) {
  std::vector<PieceKey> keys;
  keys.reserve(pieces.size());
  for (const PromptPiece& piece : pieces) keys.push_back(piece.key);
  return keys;
}

}  // namespace aiomlc
