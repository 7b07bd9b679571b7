/*!
 * \file engine/token_committer.h
 * \brief From the logits of a step to the next tokens of its sequences.
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

/*!
 * \brief Samples, verifies drafts, follows grammars, matches stops, and ends what is complete.
 *
 * A row whose grammar mask is late keeps its logits and is committed before the next step.
 */
class TokenCommitter {
 public:
  /*! \brief Neither is owned; both must outlive this object. */
  TokenCommitter(StepContext* context, SequenceTable* sequences)
      : context_(*context), sequences_(*sequences) {}

  /*! \param logits The rows that the plan asked for, in its order. */
  void Commit(const StepPlan& plan, const float* logits);

  /*! \brief Commit the deferred rows whose masks are ready by now. */
  void CommitDeferred();

  /*!
   * \brief Commit the tokens that the grammar forces, and start the mask of the token after them.
   * \return Whether the sequence continues.
   */
  bool CommitForcedTokens(Sequence* sequence);

  /*! \brief Compute quick masks in this thread, between two forward passes. */
  void HelpWithMasks() { mask_worker_.RunFastJobs(); }
  /*! \brief Sleep until the mask of a sequence is ready. */
  void WaitForMask(const Sequence& sequence) { mask_worker_.Wait(*sequence.constraint); }

 private:
  /*! \brief Score a row's part of its prompt. \return Whether the sequence continues. */
  bool ScorePrompt(const StepRow& row, const float* logits);
  /*! \param logits Of the row's last token, then of each of its draft tokens. */
  void CommitRow(const StepRow& row, const float* logits);
  /*! \brief Commit one token after the other while they equal the draft's. */
  void VerifyDraft(Sequence* sequence, std::span<const int32_t> draft, const float* logits);
  /*! \brief Sample the next token and commit it. \return Whether the sequence continues. */
  bool SampleAndCommit(Sequence* sequence, const float* logits);
  /*! \return The next token; nothing when the logits are not finite or nothing is allowed. */
  std::optional<int32_t> SampleToken(const Sequence& sequence, const float* logits);
  /*!
   * \param logits The model's own, before any change; null for a forced token.
   * \return Whether the sequence continues.
   */
  bool CommitToken(Sequence* sequence, int32_t token_id, const float* logits);
  /*! \brief End a sequence with an error. */
  void Fail(Sequence* sequence, std::string error);
  /*! \brief End a sequence whose logits are not finite, and empty the prefix cache. */
  void FailNonFinite(Sequence* sequence);

  StepContext& context_;
  SequenceTable& sequences_;
  Sampler sampler_;
  MaskWorker mask_worker_;
  /*! \brief Scratch: the logits of a row that has biases, penalties, a processor or a grammar. */
  std::vector<float> adjusted_logits_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_TOKEN_COMMITTER_H_
