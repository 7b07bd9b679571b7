/*!
 * \file speculation/prompt_lookup.h
 * \brief Prompt lookup decoding: drafts from earlier occurrences of the last tokens.
 */
#ifndef AIOMLC_SPECULATION_PROMPT_LOOKUP_H_
#define AIOMLC_SPECULATION_PROMPT_LOOKUP_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"
#include "speculation/ngram_index.h"

namespace aiomlc {

/*! \brief A drafter without a model. Drafts copy the tokens after an earlier occurrence. */
class PromptLookup final : public Drafter {
 public:
  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests,
                               const TargetPass& pass) final;
  /*! \brief Drafts are free, and rejections come in runs. */
  DraftPolicy policy() const final { return {.max_depth = 12, .first_pause = 4}; }
  void Remove(int64_t sequence_id) final { indexes_.erase(sequence_id); }
  void Clear() noexcept final { indexes_.clear(); }

 private:
  /*! \brief Trigrams predict better than bigrams; unigrams do not predict at all. */
  struct Indexes {
    NgramIndex trigrams{3};
    NgramIndex bigrams{2};
  };

  std::unordered_map<int64_t, Indexes> indexes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_PROMPT_LOOKUP_H_
