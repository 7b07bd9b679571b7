/*!
 * \file prompt/prompt.h
 * \brief A prompt: token ids and embedded pieces.
 */
#ifndef AIOMLC_PROMPT_PROMPT_H_
#define AIOMLC_PROMPT_PROMPT_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "prompt/prefix_key.h"

namespace aiomlc {

/*!
 * \brief Consecutive positions of a prompt whose embeddings are given, as those of an image.
 *
 * Equal digests stand for equal rows: a piece whose keys and values are cached under its digest is
 * not computed again.
 */
struct PromptPiece {
  PieceKey key;
  /*! \brief float32[key.num_positions, row_size]; shared by the choices of a request. */
  std::shared_ptr<const float> rows;
  int64_t row_size = 0;
};

/*! \brief The embedded pieces that a model takes. */
struct PieceTraits {
  /*! \brief The floats of an embedded row; 0 if the model takes no pieces. */
  int64_t row_size = 0;
  /*! \brief Whether pieces may have grids. */
  bool takes_grids = false;
  /*!
   * \brief Whether the positions of a piece see each other, so that one forward pass must have all
   * of them, and a prefix must not end within a piece.
   */
  bool needs_whole_pieces = false;
};

/*! \brief The tokens of a prompt, some of which are placeholders of embedded pieces. */
struct Prompt {
  Prompt(std::vector<int32_t> token_ids, std::vector<PromptPiece> pieces = {})
      : token_ids(std::move(token_ids)), pieces(std::move(pieces)) {}
  Prompt(std::initializer_list<int32_t> token_ids) : token_ids(token_ids) {}

  /*!
   * \brief One id of the vocabulary per position.
   *
   * At the positions of a piece it is a placeholder, which penalties, drafts and logits processors
   * see as any other token.
   */
  std::vector<int32_t> token_ids;
  /*! \brief In ascending order, without overlap. */
  std::vector<PromptPiece> pieces;
};

/*!
 * \brief Require token ids of the vocabulary.
 * \param name What the message calls them.
 * \throws EngineError kBadRequest.
 */
void ValidateTokenIds(const char* name, std::span<const int32_t> token_ids, int64_t vocab_size);

/*!
 * \brief Require pieces that the model takes, in ascending order without overlap, which end within
 * the prompt.
 * \throws EngineError kBadRequest that names the field.
 */
void ValidatePieces(std::span<const PieceKey> pieces, int64_t num_tokens,
                    const PieceTraits& traits);

/*!
 * \brief Require at least one token, token ids of the vocabulary, and pieces that the model takes.
 * \param max_tokens The most tokens of a forward pass.
 * \throws EngineError kBadRequest that names the field.
 */
void ValidatePrompt(const Prompt& prompt, int64_t vocab_size, const PieceTraits& traits,
                    int64_t max_tokens);

/*! \return The keys of the pieces. */
std::vector<PieceKey> KeysOf(std::span<const PromptPiece> pieces);

}  // namespace aiomlc

#endif  // AIOMLC_PROMPT_PROMPT_H_
