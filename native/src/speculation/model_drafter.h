/*!
 * \file speculation/model_drafter.h
 * \brief A smaller model of the same vocabulary guesses.
 */
#ifndef AIOMLC_SPECULATION_MODEL_DRAFTER_H_
#define AIOMLC_SPECULATION_MODEL_DRAFTER_H_

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "sampling/logit_adjuster.h"
#include "sampling/sampler.h"
#include "scheduling/page_budget.h"
#include "speculation/drafter.h"

namespace aiomlc {

/*!
 * \brief Continues sequences with a model of its own, which has a KV cache of its own.
 *
 * It samples with the sequence's options, seed and position. So both models turn the same random
 * number into a token, and where their distributions are alike they mostly choose the same one.
 *
 * A sequence gets no guess while the model has more tokens of it to read than fit a step, where its
 * context is full, and where there are no pages. None ever again where a row of logits was not
 * finite: what is in the cache would spoil the next ones.
 */
class ModelDrafter final : public Drafter {
 public:
  /*!
   * \param model Not owned; must outlive this object, and is its alone until then.
   * \param step_token_budget Tokens of one forward pass at most, at least 1.
   */
  ModelDrafter(Model* model, int64_t step_token_budget);

  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests) final;
  /*! \brief Each guess costs a forward pass, and a wrong one says little about the next. */
  DraftPolicy policy() const final { return {.max_depth = 6, .first_pause = 0}; }
  void Remove(int64_t sequence_id) final;
  void Clear() noexcept final;

 private:
  /*! \brief What the model has of a sequence. */
  struct Cached {
    /*! \brief The sequence's own tokens. */
    int64_t num_tokens = 0;
    /*! \brief Those that were guessed after them. */
    std::vector<int32_t> guessed;
    int64_t num_pages = 0;
  };

  /*! \brief A sequence that takes part in the guessing. */
  struct Row {
    Sequence* sequence;
    /*! \brief Tokens to guess; 0 while it only catches up. */
    int64_t depth;
    /*! \brief Tokens of the sequence to read first. */
    int64_t num_missing;
    /*! \brief Set where logits are to be adjusted: what it would be after the guesses. */
    std::optional<LogitAdjuster> adjuster;
  };

  /*! \brief Begin a sequence, or take what was guessed wrong off it. */
  Cached* Align(const Sequence& sequence);
  std::vector<Row> PlanRows(const std::vector<DraftRequest>& requests);
  /*! \brief Read the missing tokens of all rows. \return The rows that caught up. */
  std::vector<Row> CatchUp(std::vector<Row> rows);
  /*! \brief Feed every row its last guess. */
  void Continue(const std::vector<Row>& rows);
  /*! \brief Guess a token for each row of the last pass. \return The rows that are to go on. */
  std::vector<Row> Guess(std::vector<Row> rows);

  Model* const model_;
  const int64_t step_token_budget_;
  PageBudget pages_;
  Sampler sampler_;
  std::unordered_map<int64_t, Cached> cached_;
  /*! \brief Scratch: the logits of a row that is not plain. */
  std::vector<float> adjusted_logits_;
  /*! \brief Of the last forward pass. */
  const float* logits_ = nullptr;
  /*! \brief The sequences of this call whose logits were not finite. */
  std::vector<int64_t> spoiled_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_MODEL_DRAFTER_H_
