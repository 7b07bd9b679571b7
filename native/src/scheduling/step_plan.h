/*!
 * \file scheduling/step_plan.h
 * \brief The plan of one step.
 */
#ifndef AIOMLC_SCHEDULING_STEP_PLAN_H_
#define AIOMLC_SCHEDULING_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "scheduling/radix_tree.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief The row of one sequence in a step. */
struct StepRow {
  Sequence* sequence;
  /*! \brief Tokens to append, at least 1. */
  int64_t num_tokens;
  /*! \brief Whether they are its last uncomputed tokens, so that its next token can be sampled. */
  bool needs_logits;
  /*! \brief Draft tokens to append after them; 0 unless the sequence is decoding. */
  int64_t num_draft = 0;
  /*! \brief Prompt positions whose logits are needed for prompt logprobs. */
  int64_t num_scored = 0;
};

/*! \brief A waiting sequence that is admitted. */
struct StepAdmission {
  Sequence* sequence;
  /*! \brief The tokens to fork from another sequence instead of computing them. */
  PrefixMatch prefix;
};

/*! \brief The decisions of `Scheduler::Plan`, which `Scheduler::ApplyPlan` carries out. */
struct StepPlan {
  /*! \brief Running sequences that lose their pages and wait again, lowest precedence first. */
  std::vector<Sequence*> preempted;
  std::vector<StepAdmission> admitted;
  /*!
   * \brief Entries of the prefix cache to evict.
   *
   * An admitted sequence may fork from an evicted entry, but only at a page boundary: such a fork
   * takes no additional page, so it can precede the eviction. All other forks follow the evictions.
   */
  std::vector<int64_t> evicted;
  /*! \brief One entry for each time that a later arrival is admitted before the sequence. */
  std::vector<Sequence*> bypassed;
  /*! \brief Decodes first, then prefills. */
  std::vector<StepRow> rows;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t draft_tokens = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_STEP_PLAN_H_
