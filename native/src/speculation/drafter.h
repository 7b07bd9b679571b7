/*!
 * \file speculation/drafter.h
 * \brief The interface of drafters, which propose draft tokens.
 */
#ifndef AIOMLC_SPECULATION_DRAFTER_H_
#define AIOMLC_SPECULATION_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "sequence/sequence.h"
#include "speculation/draft_depth.h"

namespace aiomlc {

/*! \brief A sequence to draft for. */
struct DraftRequest {
  Sequence* sequence;
  /*! \brief The maximum number of draft tokens, at least 1. */
  int64_t max_tokens;
};

/*!
 * \brief Proposes draft tokens. Drafts are verified, so a wrong draft costs only time.
 *
 * An exception disables drafting but ends no sequence; afterwards only `Clear` is called.
 */
class Drafter {
 public:
  virtual ~Drafter() = default;

  /*!
   * \brief Fill the empty `draft_ids` of the sequences; a sequence may get no draft.
   * \return The ids of the sequences for which drafting failed for good.
   */
  virtual std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests) = 0;

  /*! \brief The parameters of adaptive draft lengths. */
  virtual DraftPolicy policy() const = 0;

  /*! \brief Discard the state of a sequence that ended or was preempted, if there is any. */
  virtual void Remove(int64_t sequence_id) = 0;

  /*! \brief Discard the state of all sequences, ignoring errors. */
  virtual void Clear() noexcept = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_DRAFTER_H_
