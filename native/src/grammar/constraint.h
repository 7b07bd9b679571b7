/*!
 * \file grammar/constraint.h
 * \brief A grammar's hold on one sequence, and the thread that prepares its masks.
 */
#ifndef AIOMLC_GRAMMAR_CONSTRAINT_H_
#define AIOMLC_GRAMMAR_CONSTRAINT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grammar/grammar.h"

namespace aiomlc {

/*!
 * \brief The matcher of one sequence and the mask of its next token.
 *
 * From `MaskWorker::Enqueue` until `is_ready` it belongs to the worker; else to the engine's thread.
 */
class Constraint {
 public:
  Constraint(std::unique_ptr<GrammarMatcher> matcher, int64_t vocab_size);

  /*!
   * \brief Go on by a token of the sequence.
   * \return Whether nothing can follow it.
   * \throws GrammarError when the grammar cannot go on.
   */
  bool AcceptToken(int32_t token_id);

  /*! \throws GrammarError */
  std::vector<int32_t> ForcedTokens() { return matcher_->ForcedTokens(); }

  /*! \brief Whether the last mask took long; the first one may, so it counts as if it had. */
  bool is_slow() const { return is_slow_; }

  /*! \brief Whether the mask of the next token is there, or its failure. */
  bool is_ready() const { return is_ready_.load(std::memory_order_acquire); }

  /*!
   * \brief Exclude the tokens that may not come. NaN stays, so that a broken model is not hidden.
   * \pre is_ready()
   * \throws GrammarError when the mask could not be computed, or allows no token.
   */
  void Apply(float* logits, int64_t vocab_size) const;

 private:
  friend class MaskWorker;
  /*! \brief Compute the mask; the failure is kept for `Apply`. */
  void Compute() noexcept;

  std::unique_ptr<GrammarMatcher> matcher_;
  std::vector<uint32_t> mask_;
  std::string failure_;
  bool is_slow_ = true;
  std::atomic<bool> is_ready_{false};
};

/*!
 * \brief Computes masks beside the engine, in a thread that starts with the first of them.
 *
 * Slow masks are that thread's alone, beside the forward pass. The others are computed between two
 * passes, while the kernels rest: the thread begins as soon as a row has its token, and the engine
 * takes part once it has sampled them all. Beside a pass even quick masks would cost more: they
 * take a processor from a kernel whose other threads then wait.
 *
 * One thread at a time may call its methods.
 */
class MaskWorker {
 public:
  MaskWorker() = default;
  /*! \brief Drops what has not begun. */
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  /*! \brief Begin the mask of the constraint's next token. */
  void Enqueue(std::shared_ptr<Constraint> constraint);

  /*! \brief Compute in the calling thread what is queued and quick. */
  void RunFastJobs();

  /*! \brief Sleep until the mask is there. */
  void Wait(const Constraint& constraint);

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable begun_;
  std::condition_variable done_;
  std::deque<std::shared_ptr<Constraint>> jobs_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace aiomlc

#endif  // AIOMLC_GRAMMAR_CONSTRAINT_H_
