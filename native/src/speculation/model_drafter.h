/*!
 * \file speculation/model_drafter.h
 * \brief A drafter that uses a smaller model with the same vocabulary.
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
#include "scheduling/resource_budget.h"
#include "speculation/drafter.h"

namespace aiomlc {

/*!
 * \brief Drafts with a draft model, which has a state of its own.
 *
 * It samples with the options, the seed and the position of the sequence. Both models thus use the
 * same random number for a token, and mostly choose the same token if their distributions agree.
 *
 * A sequence gets no draft while the draft model still has more tokens to prefill than fit in a
 * step, when its context is full, and when the draft model has no room. It never gets another draft
 * after a row of logits that is not finite, since the KV cache may be corrupted.
 */
class ModelDrafter final : public Drafter {
 public:
  /*!
   * \param model Not owned; must outlive this object, which has exclusive use of it.
   * \param step_token_budget The maximum number of tokens per forward pass, at least 1.
   */
  ModelDrafter(Model* model, int64_t step_token_budget);

  std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests,
                               const TargetPass& pass) final;
  /*! \brief Each draft token costs a forward pass, and a rejected one predicts little. */
  DraftPolicy policy() const final { return {.max_depth = 6, .first_pause = 0}; }
  void Remove(int64_t sequence_id) final;
  void Clear() noexcept final;

 private:
  /*! \brief The tokens of a sequence in the KV cache of the draft model. */
  struct CacheState {
    /*! \brief Tokens of the sequence. */
    int64_t num_tokens = 0;
    /*! \brief Draft tokens after them. */
    std::vector<int32_t> draft_ids;
    Resources reserved;
  };

  /*! \brief A sequence of the current `Propose` call. */
  struct Row {
    Sequence* sequence;
    /*! \brief Draft tokens to sample; 0 if the row is only prefilled. */
    int64_t depth;
    /*! \brief Tokens of the sequence to prefill first. */
    int64_t num_missing;
    /*! \brief The adjuster with the draft tokens counted; empty if logits need no adjustment. */
    std::optional<LogitAdjuster> adjuster;
  };

  /*!
   * \brief Return the draft KV state of a sequence: created on first use, otherwise rolled back to
   * the last checkpoint of the accepted tokens.
   */
  CacheState* AlignCache(const Sequence& sequence);
  /*! \brief Choose the rows of this call, and reserve what they need. */
  std::vector<Row> PlanRows(const std::vector<DraftRequest>& requests);
  /*! \brief Prefill the missing tokens of all rows. \return The rows to sample. */
  std::vector<Row> Prefill(std::vector<Row> rows);
  /*! \brief Compute the last draft token of each row. */
  void Decode(const std::vector<Row>& rows);
  /*! \brief Sample a draft token for each row of the last pass. \return The unfinished rows. */
  std::vector<Row> SampleDrafts(std::vector<Row> rows);

  Model* const model_;
  const int64_t step_token_budget_;
  SequenceState& state_;
  ResourceBudget budget_;
  Sampler sampler_;
  std::unordered_map<int64_t, CacheState> cache_states_;
  /*! \brief Scratch memory for adjusted logits. */
  std::vector<float> adjusted_logits_;
  /*! \brief The logits of the last forward pass. */
  const float* logits_ = nullptr;
  /*! \brief The sequences of this call whose logits are not finite. */
  std::vector<int64_t> failed_ids_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_MODEL_DRAFTER_H_
