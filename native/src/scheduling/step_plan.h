/*!
 * \file scheduling/step_plan.h
 * \brief What one step is going to do.
 */
#ifndef AIOMLC_SCHEDULING_STEP_PLAN_H_
#define AIOMLC_SCHEDULING_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "scheduling/radix_tree.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief The share of one sequence in a step. */
struct StepRow {
  Sequence* sequence;
  /*! \brief Tokens to append, at least 1. */
  int64_t num_tokens;
  /*! \brief Whether these are the last it has, so that its next token can be sampled. */
  bool needs_logits;
  /*! \brief Tokens of the sequence's draft to append after them; 0 unless it is decoding. */
  int64_t num_draft = 0;
  /*! \brief Logits of its tokens that score its prompt. */
  int64_t num_scored = 0;
};

/*! \brief A waiting sequence that gets pages. */
struct StepAdmission {
  Sequence* sequence;
  /*! \brief The tokens that it forks from another sequence instead of computing them. */
  PrefixMatch prefix;
};

/*! \brief Decisions only: making a plan changes nothing. */
struct StepPlan {
  /*! \brief Lose their pages and wait again, latest arrival first. */
  std::vector<Sequence*> preempted;
  std::vector<StepAdmission> admitted;
  /*!
   * \brief Entries of the prefix cache that make room.
   *
   * An admitted sequence may fork from one of them, then at the end of a page: that takes no page
   * of its own, so it can come before the eviction. Any other fork comes after.
   */
  std::vector<int64_t> evicted;
  /*! \brief One entry for each time that a later arrival is admitted before this sequence. */
  std::vector<Sequence*> passed;
  /*! \brief Decodes first, then prefills. */
  std::vector<StepRow> rows;
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  int64_t draft_tokens = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_STEP_PLAN_H_
