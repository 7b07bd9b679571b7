/*!
 * \file scheduling/scheduler.h
 * \brief The scheduler: running and waiting sequences, and the plan of the next step.
 */
#ifndef AIOMLC_SCHEDULING_SCHEDULER_H_
#define AIOMLC_SCHEDULING_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "model/sequence_state.h"
#include "prompt/prefix_key.h"
#include "scheduling/prefix_cache.h"
#include "scheduling/resource_budget.h"
#include "scheduling/scheduler_policy.h"
#include "scheduling/step_plan.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief The limits of a scheduler; at least 1, except max_recycling. */
struct SchedulerLimits {
  int64_t max_batch_size = 1;
  int64_t step_token_budget = 1;
  /*! \brief The same of a step with one sequence while none is waiting, if it is more. */
  int64_t idle_step_token_budget = 1;
  /*! \brief See PrefixCache. */
  int64_t max_recycling = 0;
  /*!
   * \brief The maximum number of logits per step for prompt logprobs, which limits their memory.
   */
  int64_t max_scored = 128;
  /*! \brief Whether a step with prefills has no decodes. */
  bool separate_prefill = false;
  /*! \brief Whether a step must have all positions of an embedded piece, or none. */
  bool needs_whole_pieces = false;
};

/*!
 * \brief Owns the queue, the running set, the prefix cache and the resource budget, but not the
 * sequences.
 *
 * The resources of sequences and prefix cache entries are reserved as if nothing were shared, so
 * sharing saves computation but no pages. The reason: TVM's KV cache lists the pages of all rows of
 * a step in a table with one entry per page of the cache, without bounds checks. The model
 * therefore always has at least as many free pages as this class counts.
 *
 * A step consists of `Plan`, `ApplyPlan`, the forward pass and the caller's commit. `Plan` makes
 * all decisions with the functions of scheduler_policy.h and changes nothing. Of the model it asks
 * only the costs and the checkpoints of its state.
 */
class Scheduler {
 public:
  /*! \param state The state of the model. Not owned; must outlive this object. */
  Scheduler(const SequenceState* state, const SchedulerLimits& limits);

  /*! \brief Queue a sequence by priority and arrival. */
  void Add(Sequence* sequence);

  /*! \brief Remove a sequence and free what it holds. */
  void Remove(Sequence* sequence);

  /*!
   * \brief Remove a sequence, and keep its computed tokens in the prefix cache if possible.
   * \return The ids that the caller must remove from the model: evicted entries, or the sequence.
   */
  std::vector<int64_t> Recycle(Sequence* sequence);

  /*!
   * \brief Like `Recycle`, but pin the entry: it is evicted only after `Unpin`, or if a sequence
   * could not run otherwise.
   */
  std::vector<int64_t> Pin(Sequence* sequence);

  /*! \brief Unpin an entry; an unknown id has no effect. \return See `Recycle`. */
  std::vector<int64_t> Unpin(int64_t id);

  /*! \brief Free what a running sequence holds beyond its computed tokens, for rejected drafts. */
  void Trim(Sequence* sequence);

  /*! \return The tokens of the next step that are left for drafts; may be negative. */
  int64_t DraftTokenBudget() const;

  /*!
   * \brief Add a prefix cache entry whose tokens the caller imports into the model.
   * \param id The id of the new entry.
   * \param key At least one token.
   * \param source_id An entry that the caller forks, which is evicted after the others; -1 if none.
   * \return The entries to remove from the model after the fork; empty if too little is
   *     available, and nothing has changed.
   */
  std::optional<std::vector<int64_t>> AddImported(int64_t id, const PrefixKey& key,
                                                  int64_t source_id);

  /*! \brief Mark a prefix cache entry as used, so that it is evicted last. */
  void Touch(int64_t id) { prefix_cache_.Touch(id); }

  /*! \brief Let other sequences fork from the computed tokens of a running sequence. */
  void Share(const Sequence& sequence);

  /*! \brief Empty the prefix cache. \return Its entries, to be removed from the model. */
  std::vector<int64_t> EvictAll();

  /*! \brief Plan the next step; it has rows whenever there are sequences. */
  StepPlan Plan() const;

  /*! \brief Preempt, evict and admit as planned, and reserve what the step needs. */
  void ApplyPlan(const StepPlan& plan);

  const ResourceBudget& budget() const { return budget_; }
  const PrefixCache& prefix_cache() const { return prefix_cache_; }
  /*! \brief The free resources, and those of recycling prefix cache entries. */
  Resources available() const { return budget_.free() + prefix_cache_.recycling_cost(); }
  /*!
   * \return The entry or running sequence with the longest common prefix, up to a checkpoint that
   * divides no piece which must be whole.
   */
  PrefixMatch FindPrefix(const PrefixKey& key) const;
  /*! \brief The running sequences by priority and arrival. */
  const std::vector<Sequence*>& running() const { return running_; }
  /*! \brief The waiting sequences by priority and arrival. */
  const std::deque<Sequence*>& waiting() const { return waiting_; }
  /*! \brief The maximum number of running sequences, so that each can get a token in every step. */
  int64_t max_running() const { return max_running_; }

 private:
  /*! \brief Return what a sequence needs for its next step. */
  Resources CostOfNextStep(const Sequence& sequence, int64_t num_draft = 0) const;
  /*! \return The number of running sequences that keep running; the rest is added to `plan`. */
  size_t PlanPreemptions(StepPlan* plan) const;
  void PlanAdmissions(StepPlan* plan) const;
  /*! \brief Choose among the first `num_waiting` waiting sequences. */
  Admissions SelectAdmissions(size_t num_waiting, const Resources& free) const;
  /*!
   * \return The largest number of tokens, at most `num_tokens`, that divides no piece which
   * must be whole.
   */
  int64_t WithoutCutPiece(std::span<const PieceKey> pieces, int64_t num_tokens) const {
    return needs_whole_pieces_ ? BeginOfCutPiece(pieces, num_tokens) : num_tokens;
  }
  enum class ForkKind { kAny, kShared };
  /*!
   * \return The most tokens, at most `num_tokens`, at which a sequence with these pieces can be
   * forked from `id`; with kShared, as `LastSharedFork`.
   */
  int64_t LastFork(int64_t id, std::span<const PieceKey> pieces, int64_t num_tokens,
                   ForkKind kind) const;
  /*! \brief Whether to delay an admission, to fork from a sequence that is being computed. */
  bool ShouldWait(const Sequence& sequence, int64_t num_cached, const StepPlan& plan) const;
  void PlanEvictions(size_t num_survivors, StepPlan* plan) const;
  void PlanRows(size_t num_survivors, StepPlan* plan) const;
  /*! \brief Give the remaining tokens and resources to drafts; drafts never cause a preemption. */
  void PlanDrafts(StepPlan* plan) const;
  /*!
   * \return The recycling entries, in the order of their eviction, that hold `missing` together;
   * those of `sources` come last.
   */
  std::vector<int64_t> ChooseEvictions(Resources missing, const std::set<int64_t>& sources,
                                       bool evicts_pinned) const;
  void Evict(int64_t id);
  std::vector<int64_t> EvictEach(std::vector<int64_t> ids);

  const SequenceState* const state_;
  int64_t step_token_budget_;
  int64_t idle_step_token_budget_;
  int64_t max_scored_;
  bool separate_prefill_;
  bool needs_whole_pieces_;
  int64_t max_running_;
  ResourceBudget budget_;
  PrefixCache prefix_cache_;
  std::vector<Sequence*> running_;
  std::deque<Sequence*> waiting_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_SCHEDULER_H_
