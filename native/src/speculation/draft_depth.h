/*!
 * \file speculation/draft_depth.h
 * \brief The adaptive draft length of a sequence.
 */
#ifndef AIOMLC_SPECULATION_DRAFT_DEPTH_H_
#define AIOMLC_SPECULATION_DRAFT_DEPTH_H_

#include <cstdint>

namespace aiomlc {

/*! \brief The parameters of adaptive draft lengths, which depend on the drafter. */
struct DraftPolicy {
  /*! \brief The maximum number of tokens per draft. */
  int64_t max_depth = 12;
  /*! \brief Steps without a draft after a rejected draft; 0 ignores the first one. */
  int64_t first_pause = 4;
};

/*!
 * \brief The number of draft tokens to propose for one sequence.
 *
 * The depth is fixed or adaptive. An adaptive depth doubles when all tokens of a draft are
 * accepted, and otherwise follows the number of accepted tokens. A fully rejected draft pauses
 * drafting. Consecutive pauses double in length (back-off), so text that drafts badly costs little.
 */
class DraftDepth {
 public:
  static constexpr int64_t kFirstDepth = 3;
  static constexpr int64_t kMaxPause = 128;

  /*! \param fixed_depth The tokens of every draft; 0 adapts them. */
  DraftDepth(int64_t fixed_depth, const DraftPolicy& policy)
      : is_fixed_(fixed_depth > 0),
        policy_(policy),
        depth_(is_fixed_ ? fixed_depth : kFirstDepth),
        pause_(policy.first_pause) {}

  /*! \return The tokens to propose in this step; 0 during a pause. */
  int64_t depth() const { return steps_to_wait_ > 0 ? 0 : depth_; }

  /*! \brief Advance by one step, which shortens a pause. */
  void AdvanceStep();

  /*! \brief Adapt to a draft. \param proposed Its tokens that were verified, at least 1. */
  void OnDraftVerified(int64_t proposed, int64_t accepted);

 private:
  bool is_fixed_;
  DraftPolicy policy_;
  int64_t depth_;
  int64_t pause_;
  int64_t steps_to_wait_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_DRAFT_DEPTH_H_
