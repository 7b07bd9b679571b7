/*!
 * \file speculation/speculation.h
 * \brief Which sequences are given drafts, and how long ones.
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

/*! \brief Where drafts come from. */
enum class SpeculativeMode { kDisable, kPromptLookup, kSmallDraft };

/*! \brief A sequence for which there are no guesses any more, and why. */
struct DraftFailure {
  /*! \brief -1 where it is every sequence. */
  int64_t sequence_id;
  std::string cause;
};

/*!
 * \brief A drafter, and what was learnt of each sequence about its use.
 *
 * Nothing here throws what the drafter throws: that is the end of the drafter.
 */
class Speculation {
 public:
  /*! \param draft_length Tokens of every draft; 0 adapts it to each sequence. */
  Speculation(std::unique_ptr<Drafter> drafter, int64_t draft_length)
      : drafter_(std::move(drafter)), draft_length_(draft_length) {}

  /*!
   * \brief Give those of the sequences that decode a draft for the next step.
   * \param room Tokens that the step has left for drafts, any number.
   * \return Sequences that the drafter was asked about.
   */
  int64_t Propose(const std::vector<Sequence*>& running, int64_t room);

  /*! \brief A draft of a sequence was verified. \param proposed At least 1. */
  void RecordVerification(int64_t sequence_id, int64_t proposed, int64_t accepted);

  /*! \brief A sequence ended or is preempted. */
  void Remove(int64_t sequence_id);

  /*! \brief Why there are no drafts any more; empty while there may be. */
  const std::string& failure() const { return failure_; }

  /*! \return What failed since the last call. */
  std::vector<DraftFailure> TakeFailures() { return std::exchange(failures_, {}); }

  /*!
   * \brief What the decodes of a step with adaptive drafts have at most, in tokens.
   *
   * The linear kernels take eight rows at a time: up to here a token more costs a fraction of a
   * step, beyond it costs what a step of its own would, so that no guess can win.
   */
  static constexpr int64_t kMaxVerifiedTokens = 8;

 private:
  /*! \brief Cut requests to equal shares of a room that may be negative. */
  static void ShareRoom(int64_t room, std::vector<DraftRequest>* requests);
  /*! \return What the sequences that decode may be guessed. */
  std::vector<DraftRequest> Requests(const std::vector<Sequence*>& running, int64_t room);
  /*! \brief Do something with the drafter, and do without it from then on if that fails. */
  template <typename Action>
  void Attempt(Action action);
  void GiveUp(const std::string& cause);

  /*! \brief Null once it failed. */
  std::unique_ptr<Drafter> drafter_;
  int64_t draft_length_;
  std::unordered_map<int64_t, DraftDepth> depths_;
  /*! \brief Sequences for which there are no guesses any more. */
  std::unordered_set<int64_t> disabled_;
  std::string failure_;
  std::vector<DraftFailure> failures_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SPECULATION_SPECULATION_H_
