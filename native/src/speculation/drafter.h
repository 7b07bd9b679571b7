/*!
 * \file speculation/drafter.h
 * \brief The interface of drafters, which propose draft tokens.
 */
#ifndef AIOMLC_SPECULATION_DRAFTER_H_
#define AIOMLC_SPECULATION_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "sequence/sequence.h"
#include "speculation/draft_depth.h"

namespace aiomlc {

/*! \brief A sequence to draft for. */
struct DraftRequest {
  Sequence* sequence;
  /*! \brief The maximum number of draft tokens, at least 1. */
  int64_t max_tokens;
};

/*! \brief The tokens of a sequence in a forward pass of the target model. */
struct TargetRow {
  int64_t sequence_id;
  /*!
   * \brief A live sequence. Of the row's tokens it keeps those before its `num_computed`; the
   * others were rejected drafts, or will be computed again.
   */
  const Sequence* sequence;
  /*! \brief The position of the first token in the sequence. */
  int64_t begin;
  int64_t num_tokens;
  /*! \brief The index of the first token among the hidden states of each layer. */
  int64_t offset;
};

/*! \brief The pass of the target model since the last proposal; there may be none. */
struct TargetPass {
  /*! \brief Sequences that have ended, or were preempted or paused, are left out. */
  std::vector<TargetRow> rows;
  /*! \brief With the hidden states of all tokens of the pass, in `Drafter::hidden_layers()`. */
  ForwardOutput output;
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
   * \brief The layers of the target model whose hidden states it reads, in ascending order.
   *
   * Constant. If there are any, `Propose` is called after every pass, also without requests.
   */
  virtual std::vector<HiddenLayer> hidden_layers() const { return {}; }

  /*!
   * \brief Fill the empty `draft_ids` of the sequences; a sequence may get no draft.
   * \param pass Without rows unless the drafter reads hidden states. Valid during the call.
   * \return The ids of the sequences for which drafting failed for good.
   */
  virtual std::vector<int64_t> Propose(const std::vector<DraftRequest>& requests,
                                       const TargetPass& pass) = 0;

  /*! \brief The parameters of adaptive draft lengths. */
  virtual DraftPolicy policy() const = 0;

  /*! \brief Discard the state of a sequence that ended or was preempted, if there is any. */
  virtual void Remove(int64_t sequence_id) = 0;

  /*! \brief Discard the state of all sequences, ignoring errors. */
  virtual void Clear() noexcept = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_DRAFTER_H_
