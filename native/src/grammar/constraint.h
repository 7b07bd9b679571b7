/*!
 * \file grammar/constraint.h
 * \brief The grammar constraint of a sequence, and the thread that computes token masks.
 */
#ifndef AIOMLC_GRAMMAR_CONSTRAINT_H_
#define AIOMLC_GRAMMAR_CONSTRAINT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grammar/grammar.h"

namespace aiomlc {

/*!
 * \brief The grammar matcher of one sequence and the mask of its next token.
 *
 * Only the worker may use it between `MaskWorker::Enqueue` and `is_ready`; otherwise only the
 * step thread may.
 */
class Constraint {
 public:
  Constraint(std::unique_ptr<GrammarMatcher> matcher, int64_t vocab_size);

  /*!
   * \brief Advance the grammar by a token of the sequence.
   * \return Whether the output is complete and cannot be continued.
   * \throws GrammarError if the token is not allowed, or the grammar fails.
   */
  bool AcceptToken(int32_t token_id);

  /*! \brief See `GrammarMatcher::ForcedTokens`. \throws GrammarError */
  std::vector<int32_t> ForcedTokens();

  /*! \brief Whether the last computed mask was slow; true before the first mask. */
  bool is_slow() const { return is_slow_.load(std::memory_order_relaxed); }

  /*! \brief Whether the mask of the next token is computed, or has failed. */
  bool is_ready() const { return is_ready_.load(std::memory_order_acquire); }

  /*!
   * \brief Set the logits of disallowed tokens to minus infinity.
   *
   * NaN and infinity are kept, so that the mask does not hide a broken model.
   * \pre is_ready()
   * \throws GrammarError if the mask could not be computed, allows no token, or if the slow masks
   *     of the sequence have taken too long.
   */
  void Apply(float* logits, int64_t vocab_size) const;

 private:
  friend class MaskWorker;
  /*! \brief Compute the mask; store an error for `Apply` to throw. */
  void ComputeMask() noexcept;
  /*! \brief Count processor time of the grammar. \throws GrammarError if it is too much. */
  void CountTime(std::chrono::nanoseconds time);

  std::unique_ptr<GrammarMatcher> matcher_;
  std::vector<uint32_t> mask_;
  std::string failure_;
  std::chrono::nanoseconds costly_time_{0};
  std::atomic<bool> is_slow_{true};
  std::atomic<bool> is_ready_{false};
};

/*!
 * \brief Computes masks in a background thread, which starts with the first mask.
 *
 * Slow masks are computed only by the background thread, concurrently with the forward pass. Fast
 * masks are computed between two passes, while the kernels are idle: the background thread starts
 * as soon as a row is sampled, and the step thread joins in once all rows are sampled. During a
 * pass even a fast mask would cost more, since it takes a core from a kernel whose other threads
 * then wait.
 *
 * Its methods must not be called concurrently.
 */
class MaskWorker {
 public:
  MaskWorker() = default;
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  /*!
   * \brief Queue the computation of the constraint's next mask.
   *
   * If the thread cannot be started, or was stopped, the mask is computed here.
   */
  void Enqueue(std::shared_ptr<Constraint> constraint);

  /*! \brief Compute all queued fast masks in the calling thread. */
  void RunFastJobs();

  /*!
   * \brief Block until a condition holds, which is checked after each mask, or for a millisecond.
   *
   * So the engine can take new requests while all of its masks are slow.
   */
  void WaitBriefly(const std::function<bool()>& condition);

  /*!
   * \brief Compute a queued fast mask in the calling thread, or wait for one that is being
   * computed, as long as a fast one takes.
   * \return Whether the mask is ready; false if it is queued as slow, or takes longer.
   */
  bool Get(const Constraint& constraint);

  /*!
   * \brief Discard the queued masks, and join the thread. Idempotent.
   *
   * A mask may wait for a lock that its grammar needs, so the caller must not hold one.
   */
  void Stop();

 private:
  void Run();
  /*! \brief Start the thread, if it does not run. \return Whether it runs. */
  bool HasThread();

  std::mutex mutex_;
  std::condition_variable job_ready_;
  std::condition_variable mask_ready_;
  std::deque<std::shared_ptr<Constraint>> jobs_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_CONSTRAINT_H_
