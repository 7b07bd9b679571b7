/*!
 * \file speculation/draft_depth.h
 * \brief How many tokens of a sequence are worth guessing.
 */
#ifndef AIOMLC_SPECULATION_DRAFT_DEPTH_H_
#define AIOMLC_SPECULATION_DRAFT_DEPTH_H_

#include <cstdint>

namespace aiomlc {

/*! \brief How to adapt drafts to whoever guesses. */
struct DraftPolicy {
  /*! \brief Tokens of a draft at most. */
  int64_t max_depth = 12;
  /*! \brief Steps without a draft after one that was wrong; 0 forgives the first. */
  int64_t first_pause = 4;
};

/*!
 * \brief The depth of one sequence's drafts.
 *
 * Fixed, or adaptive: it doubles where a whole draft was right and follows what was right else. A
 * draft of which nothing was right begins a pause, and each one in a row is twice as long as the
 * one before: where guessing is of no use, few guesses are made.
 */
class DraftDepth {
 public:
  static constexpr int64_t kFirstDepth = 3;
  static constexpr int64_t kMaxPause = 128;

  /*! \param fixed_depth Tokens of every draft; 0 is adaptive. */
  DraftDepth(int64_t fixed_depth, const DraftPolicy& policy)
      : is_fixed_(fixed_depth > 0),
        policy_(policy),
        depth_(is_fixed_ ? fixed_depth : kFirstDepth),
        pause_(policy.first_pause) {}

  /*! \return Tokens to guess now, 0 in a pause. */
  int64_t depth() const { return steps_to_wait_ > 0 ? 0 : depth_; }

  /*! \brief A step without a draft went by. */
  void AdvanceStep();

  /*! \brief A draft was verified. \param proposed At least 1. \param accepted Of these. */
  void RecordVerification(int64_t proposed, int64_t accepted);

 private:
  bool is_fixed_;
  DraftPolicy policy_;
  int64_t depth_;
  int64_t pause_;
  int64_t steps_to_wait_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_DRAFT_DEPTH_H_
