/*!
 * \file speculation/drafter.h
 * \brief Whoever guesses how sequences go on.
 */
#ifndef AIOMLC_SPECULATION_DRAFTER_H_
#define AIOMLC_SPECULATION_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "sequence/sequence.h"
#include "speculation/draft_depth.h"

namespace aiomlc {

/*! \brief A sequence that wants a guess at its next tokens. */
struct DraftRequest {
  Sequence* sequence;
  /*! \brief Tokens at most, at least 1. */
  int64_t max_tokens;
};

/*!
 * \brief A guess costs time when it is wrong, and nothing else: drafts are verified.
 *
 * Whatever it throws ends the guessing and no sequence; only `Clear` is called then.
 */
class Drafter {
 public:
  virtual ~Drafter() = default;

  /*!
   * \brief Fill `draft_ids` of these sequences, which are empty, where there is a guess.
   * \return The ids of those for which it cannot guess, now or later.
   */
  virtual std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests) = 0;

  /*! \brief How long its drafts are to be, where that is adapted. */
  virtual DraftPolicy policy() const = 0;

  /*! \brief Forget what is kept of a sequence, if anything is: it ended or is preempted. */
  virtual void Remove(int64_t sequence_id) = 0;

  /*! \brief Forget all, whatever fails meanwhile. */
  virtual void Clear() noexcept = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_DRAFTER_H_
