/*!
 * \file engine/token_committer.h
 * \brief Sampling the next tokens from the logits of a step, and committing them.
 */
#ifndef AIOMLC_ENGINE_TOKEN_COMMITTER_H_
#define AIOMLC_ENGINE_TOKEN_COMMITTER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/sequence_table.h"
#include "engine/step_context.h"
#include "grammar/constraint.h"
#include "sampling/sampler.h"
#include "scheduling/step_plan.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief Samples rows, one after the other. */
struct RowSampler {
  Sampler sampler;
  /*! \brief The logits of a row after biases, penalties, a logits processor or a grammar. */
  std::vector<float> adjusted_logits;

  /*! \return The next token; empty if logits are not finite or all tokens are excluded. */
  std::optional<int32_t> Sample(const Sequence& sequence, const float* logits, int64_t vocab_size);
};

/*!
 * \brief Samples tokens, verifies drafts, applies grammars and stop conditions, and ends sequences.
 *
 * If the grammar mask of a row is not ready, its logits are kept, and the row is committed before a
 * later step.
 */
class TokenCommitter {
 public:
  /*! \brief Neither is owned; both must outlive this object. */
  TokenCommitter(StepContext* context, SequenceTable* sequences)
      : context_(*context), sequences_(*sequences) {}

  /*! \brief Commit the results of a step. \param logits See `Stepper::Forward`. */
  void Commit(const StepPlan& plan, const float* logits);

  /*! \brief Commit the deferred rows whose masks are ready. */
  void CommitDeferred();

  /*!
   * \brief Commit the tokens that the grammar forces, and start computing the mask of the next
   * token.
   * \return Whether the sequence continues.
   */
  bool CommitForcedTokens(Sequence* sequence);

  /*! \brief Compute fast masks in this thread, between two forward passes. */
  void HelpWithMasks() { mask_worker_.RunFastJobs(); }
  /*! \brief Sleep until the mask of one of the sequences is ready, but not for long. */
  void WaitForAnyMask(std::span<Sequence* const> sequences);
  /*! \brief Join the thread that computes masks; no later step may need one. */
  void StopMasks() { mask_worker_.Stop(); }

 private:
  /*! \brief Compute prompt log-probabilities of a row. \return Whether the sequence continues. */
  bool ScorePrompt(const StepRow& row, const float* logits);
  /*!
   * \brief Sample the rows that need nothing but their logits, in all threads of the model.
   *
   * Fills `sampled_`; a row that is not sampled, or has no token, has none.
   */
  void SampleRows(const StepPlan& plan, const float* logits);
  /*!
   * \brief Commit a row.
   * \param logits Of the row's last token, then of each draft token.
   * \param sampled The next token, if it is sampled already.
   */
  void CommitRow(const StepRow& row, const float* logits, std::optional<int32_t> sampled);
  /*! \brief Sample and commit tokens while they equal the draft tokens, and one more token. */
  void VerifyDraft(Sequence* sequence, std::span<const int32_t> draft, const float* logits);
  /*!
   * \brief Sample the next token and commit it.
   * \param sampled The token, if it is sampled already.
   * \return Whether the sequence continues.
   */
  bool SampleAndCommit(Sequence* sequence, const float* logits,
                       std::optional<int32_t> sampled = std::nullopt);
  /*!
   * \brief Append a token, report it, and end the sequence if it is complete.
   * \param logits The unadjusted logits of the model; null for a forced token.
   * \return Whether the sequence continues.
   */
  bool CommitToken(Sequence* sequence, int32_t token_id, const float* logits);
  /*! \brief End a sequence with an error. */
  void Fail(Sequence* sequence, std::string error);
  /*! \brief End a sequence whose logits are not finite, and empty the prefix cache. */
  void FailNonFinite(Sequence* sequence);

  StepContext& context_;
  SequenceTable& sequences_;
  MaskWorker mask_worker_;
  /*! \brief One for each thread; this thread's own is the first. */
  std::vector<RowSampler> samplers_ = std::vector<RowSampler>(1);
  /*! \brief The tokens of the rows of a step, as far as `SampleRows` samples them. */
  std::vector<std::optional<int32_t>> sampled_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_TOKEN_COMMITTER_H_
