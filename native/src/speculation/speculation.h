/*!
 * \file speculation/speculation.h
 * \brief Speculative decoding: which sequences get drafts, and how long they are.
 */
#ifndef AIOMLC_SPECULATION_SPECULATION_H_
#define AIOMLC_SPECULATION_SPECULATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "speculation/draft_depth.h"
#include "speculation/drafter.h"

namespace aiomlc {

/*! \brief The source of drafts. */
enum class SpeculativeMode { kDisable, kPromptLookup, kSmallDraft, kCustom };

/*! \brief A sequence for which drafting is disabled, and the cause. */
struct DraftFailure {
  /*! \brief -1 if drafting is disabled for all sequences. */
  int64_t sequence_id;
  std::string cause;
};

/*!
 * \brief A drafter, with the adaptive draft length of each sequence.
 *
 * An exception of the drafter is caught here, and disables drafting for all sequences.
 */
class Speculation {
 public:
  /*! \param draft_length The tokens of every draft; 0 adapts them for each sequence. */
  Speculation(std::unique_ptr<Drafter> drafter, int64_t draft_length)
      : drafter_(std::move(drafter)),
        draft_length_(draft_length),
        hidden_layers_(drafter_->hidden_layers()) {}

  /*! \brief The layers whose hidden states `OnForward` needs; empty once drafting is disabled. */
  const std::vector<HiddenLayer>& hidden_layers() const { return hidden_layers_; }

  /*! \brief Keep a pass of the target model for the next proposal. */
  void OnForward(TargetPass pass) { last_pass_ = std::move(pass); }

  /*!
   * \brief Propose drafts for the decoding sequences of the next step.
   * \param token_budget The tokens of the step that are left for drafts; may be negative.
   * \return The number of sequences for which drafts were requested.
   */
  int64_t Propose(const std::vector<Sequence*>& running, int64_t token_budget);

  /*! \brief Adapt to a draft. \param proposed Its tokens that were verified, at least 1. */
  void OnDraftVerified(int64_t sequence_id, int64_t proposed, int64_t accepted);

  /*! \brief Discard the state of a sequence that has ended. */
  void Remove(int64_t sequence_id);

  /*! \brief Discard the draft model's state of a sequence that is preempted or paused. */
  void Evict(int64_t sequence_id);

  /*! \brief Why drafting is disabled for all sequences; empty if it is not. */
  const std::string& failure() const { return failure_; }

  /*! \brief Return the failures since the last call. */
  std::vector<DraftFailure> TakeFailures() { return std::exchange(failures_, {}); }

  /*!
   * \brief The maximum number of tokens of all decodes and drafts of a step, if draft lengths are
   * adaptive.
   *
   * The linear kernels process eight rows at a time: up to eight, another token costs a fraction of
   * a step; beyond, it costs as much as a separate step, so no draft can pay off.
   */
  static constexpr int64_t kMaxVerifiedTokens = 8;

 private:
  /*! \brief Limit the requests to equal parts of the budget, which may be negative. */
  static void SplitTokenBudget(int64_t token_budget, std::vector<DraftRequest>* requests);
  /*! \return The draft requests of the decoding sequences. */
  std::vector<DraftRequest> CreateRequests(const std::vector<Sequence*>& running,
                                           int64_t token_budget);
  /*! \brief Run an action of the drafter; disable drafting if it throws. */
  template <typename Action>
  void RunOrDisable(Action action);
  void Disable(const std::string& cause);

  /*! \brief Null once drafting is disabled. */
  std::unique_ptr<Drafter> drafter_;
  int64_t draft_length_;
  std::vector<HiddenLayer> hidden_layers_;
  TargetPass last_pass_;
  std::unordered_map<int64_t, DraftDepth> depths_;
  /*! \brief Sequences for which drafting is disabled. */
  std::unordered_set<int64_t> disabled_;
  std::string failure_;
  std::vector<DraftFailure> failures_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_SPECULATION_H_
