/*!
 * \file speculation/prompt_lookup.h
 * \brief Guesses that a sequence goes on as it did when it last said the same.
 */
#ifndef AIOMLC_SPECULATION_PROMPT_LOOKUP_H_
#define AIOMLC_SPECULATION_PROMPT_LOOKUP_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "speculation/drafter.h"
#include "speculation/ngram_index.h"

namespace aiomlc {

/*! \brief A drafter without a model: it looks the last tokens up in the sequence itself. */
class PromptLookup final : public Drafter {
 public:
  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests) final;
  /*! \brief Guesses are free and come in runs: where one is wrong, so are others. */
  DraftPolicy policy() const final { return {.max_depth = 12, .first_pause = 4}; }
  void Remove(int64_t sequence_id) final { indexes_.erase(sequence_id); }
  void Clear() noexcept final { indexes_.clear(); }

 private:
  /*! \brief A match of three tokens is right more often than one of two; one alone is noise. */
  struct Indexes {
    NgramIndex triples{3};
    NgramIndex pairs{2};
  };

  std::unordered_map<int64_t, Indexes> indexes_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_PROMPT_LOOKUP_H_
