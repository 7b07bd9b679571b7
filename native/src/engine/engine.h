/*!
 * \file engine/engine.h
 * \brief Continuous batching over one model: prompts in, records out.
 */
#ifndef AIOMLC_ENGINE_ENGINE_H_
#define AIOMLC_ENGINE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/engine_invariants.h"
#include "engine/inbox.h"
#include "engine/outbox.h"
#include "grammar/constraint.h"
#include "metrics/meter.h"
#include "metrics/statistics.h"
#include "model/model.h"
#include "options/engine_error.h"
#include "options/sequence_options.h"
#include "sampling/sampler.h"
#include "scheduling/scheduler.h"
#include "sequence/deadline_queue.h"
#include "sequence/record.h"
#include "sequence/sequence.h"
#include "speculation/speculation.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*! \brief Settings of an engine. */
struct EngineOptions {
  /*! \brief The most tokens of one step, at least 1; capped by the model's prefill_chunk_size(). */
  int64_t step_token_budget = 512;
  /*! \brief Ended sequences to keep for prompts that begin like them; -1: no limit, 0: none, and
   * running sequences are not shared either. */
  int64_t max_recycling_sequences = 0;
  /*! \brief Sequences that may wait while as many run as can, at least 0; one more is refused. */
  int64_t max_queue_size = std::numeric_limits<int32_t>::max();
  /*! \brief Whether a step that computes prompts has no decodes. */
  bool separate_prefill = false;
  /*! \brief What time it is, for deadlines. */
  std::function<TimePoint()> now = Clock::now;
  SpeculativeMode speculative_mode = SpeculativeMode::kDisable;
  /*! \brief Tokens of every draft; 0 adapts it to each sequence. */
  int64_t draft_length = 0;
  /*! \brief What guesses with kSmallDraft; not owned, as the model. */
  Model* draft_model = nullptr;
};

/*!
 * \brief Serves concurrent sequences from one model.
 *
 * Threads: every method may be called from any thread. One thread at a time steps the model;
 * `Submit`, `Cancel`, `Pause`, `Resume`, `Unpin`, `Reset`, `Stop`, `Drain` and `GetStatistics`
 * never wait for a step.
 *
 * Life: `Run` serves until `Stop`, any number of times; `Close` ends the engine for good. When the
 * model throws, every live sequence ends with an error record and the engine is dead: `Run`, `Step`
 * and `Submit` throw EngineDeadError from then on. When a draft model throws, there are no drafts
 * from then on, and that is all.
 *
 * Every submitted sequence gets exactly one record with a finish reason, and it is its last.
 */
class Engine {
 public:
  /*!
   * \param model Not owned; must outlive the engine, and is the engine's alone until then.
   * \param vocabulary The bytes of every token; ids beyond its end have no text.
   * \throws EngineError kBadRequest for a bad option.
   */
  Engine(Model* model, Vocabulary vocabulary, EngineOptions options);
  /*! \brief Closes. No other thread may be in a method. */
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /*!
   * \brief Queue a prompt.
   * \return Our id of the new sequence, never used twice.
   * \throws EngineError kBadRequest, kPromptTooLong, kEngineOverloaded, kEngineClosed or
   *     kEngineDead.
   */
  int64_t Submit(std::vector<int32_t> prompt_ids, SequenceOptions options);

  /*! \brief End a sequence at the next step. An unknown or finished id does nothing. */
  void Cancel(int64_t sequence_id);

  /*!
   * \brief Give up a sequence's row until `Resume`, for a reader that falls behind.
   *
   * What is computed of it stays in the prefix cache, where it gives way before any other; then it
   * is computed again. An unknown or finished id does nothing, nor does pausing twice.
   */
  void Pause(int64_t sequence_id);
  void Resume(int64_t sequence_id);

  /*!
   * \brief Let go of what a sequence with `is_pinned` left in the prefix cache.
   *
   * A sequence that lives is not affected, one that is cancelled before is never pinned.
   */
  void Unpin(int64_t sequence_id);

  /*! \brief Empty the prefix cache and set the counters to 0 before the next step, after the
   * cancellations so far. */
  void Reset();

  /*!
   * \brief Step while there is work, sleep while there is none, until `Stop` or `Close`.
   * \throws EngineError kEngineDead when the model failed, now or before.
   */
  void Run();

  /*! \brief Make the current `Run` return after the step it is in, or else the next one at once. */
  void Stop();

  /*!
   * \brief Do one step in the calling thread.
   * \return Whether there is work left; a paused sequence is none.
   * \throws EngineError kEngineDead when the model failed, now or before.
   */
  bool Step();

  /*!
   * \brief End every sequence with an abort record, free its pages and refuse new ones. Idempotent.
   *
   * Waits for the step that another thread is in. A `Run` that is still active returns.
   * \throws EngineError kEngineDead when the model failed to free a page; all else is done then.
   */
  void Close();

  /*!
   * \brief Take what happened since the last call: at most one record for each sequence.
   *
   * Makes the wake descriptor unreadable.
   */
  std::vector<Record> Drain();

  /*! \return A descriptor, owned by the engine, that is readable while there are records. */
  int wake_fd() const { return outbox_.wake_fd(); }

  /*! \return What whoever runs the engine should know, once each; sentences. */
  std::vector<std::string> TakeNotices();

  Statistics GetStatistics() const;

  /*! \brief Record events from now on. */
  void EnableTrace() { meter_.trace().Enable(); }

  /*! \return The events from a number on; see EventTrace. */
  EventBatch ReadTrace(int64_t from) { return meter_.trace().Read(from); }

  /*! \return Why the engine is dead; empty while it is not. Never behind its error records. */
  std::string Failure() const;

  /*!
   * \brief Compare everything that is counted in two places.
   * \throws std::logic_error that lists every contradiction.
   */
  void CheckInvariants();

 private:
  /*! \brief Sleep while there is no work. \return Whether to step; else `Run` is to return. */
  bool WaitForWork();
  void Validate(const std::vector<int32_t>& prompt_ids, const SequenceOptions& options) const;
  void PutPause(int64_t sequence_id, bool is_paused);
  /*! \brief Refuse a sequence that would be too many; needs mutex_. */
  void CheckLoad() const;

  // All of these need step_mutex_.
  void TakeInbox();
  void RunPlan();
  /*! \brief Let decoding sequences be guessed for. */
  void Guess();
  /*! \brief Tell what became of guesses that failed. */
  void TellDraftFailures();
  /*! \brief Bring the model's sequences to where the plan wants them. */
  void ChangeSequences(const StepPlan& plan);
  const float* Forward(const StepPlan& plan);
  void Commit(const StepPlan& plan, const float* logits);
  /*! \brief Score a row's part of its prompt. \return Whether the sequence goes on. */
  bool Score(const StepRow& row, const float* logits);
  /*! \param logits Of the row's last token, and of each of its draft tokens. */
  void CommitRow(const StepRow& row, const float* logits);
  /*! \brief Go on by one token after the other, as long as they are those of the draft. */
  void Verify(Sequence* sequence, std::span<const int32_t> draft, const float* logits);
  /*! \brief Take the draft tokens that are not found right off the model. */
  void PopUnverified(Sequence* sequence);
  /*! \brief Keep a row's logits until the grammar's mask is there. */
  void Hold(Sequence* sequence, const float* logits);
  /*! \brief Go on with the held sequences whose masks are there. */
  void SettleHeld();
  void DropHeld(Sequence* sequence);
  /*! \brief Choose the next token and go on by it. \return Whether the sequence goes on. */
  bool Settle(Sequence* sequence, const float* logits);
  /*! \return The next token; nothing when the logits are not finite numbers. */
  std::optional<int32_t> Choose(const Sequence& sequence, const float* logits);
  /*!
   * \param logits What the model gave, before any change; null for a token that was not chosen.
   * \return Whether the sequence goes on.
   */
  bool Accept(Sequence* sequence, int32_t token_id, const float* logits);
  /*!
   * \brief Take the tokens that the grammar forces, and begin the mask of the one after.
   * \return Whether the sequence goes on.
   */
  bool FollowGrammar(Sequence* sequence);
  void Fail(Sequence* sequence, std::string error);
  /*! \brief End a sequence whose row of logits is not finite, and empty the prefix cache. */
  void FailOfModel(Sequence* sequence);
  /*! \brief Take a sequence out of the schedule, or put it back. */
  void Park(Sequence* sequence);
  void Unpark(Sequence* sequence);
  /*! \brief End the sequences whose time is over. */
  void EndExpired();
  /*! \brief Queue a sequence's next deadline. */
  void QueueDeadline(Sequence* sequence);
  int64_t NewId();
  /*! \brief Report a sequence's last record and forget it. Throws only what the model throws. */
  void End(Sequence* sequence, Record record, FinishReason reason);
  /*!
   * \brief Remove all, whatever the model throws, and then throw the first of it.
   * \param ended_id A sequence that gets no more drafts.
   */
  void RemoveFromModel(const std::vector<int64_t>& sequence_ids,
                       std::optional<int64_t> ended_id = std::nullopt);
  /*! \brief End every sequence, empty the cache. \return What the model threw at it, or nothing. */
  std::string EndAll(FinishReason reason, const std::string& error);
  /*! \return The ids of what was submitted since the last call. */
  std::vector<int64_t> AdoptSubmitted();
  [[noreturn]] void Die(const std::string& cause);
  void Publish();

  Model* const model_;
  const Vocabulary vocabulary_;
  /*! \brief Tokens that prompt and completion share. */
  const int64_t max_sequence_tokens_;
  const std::function<TimePoint()> now_;
  /*! \brief Sequences that may live at once: those that run and those that wait. */
  const int64_t max_live_sequences_;

  // What the stepping thread owns: guarded by step_mutex_, which is taken before mutex_.
  std::mutex step_mutex_;
  Scheduler scheduler_;
  Sampler sampler_;
  /*! \brief Null where there is none. */
  std::unique_ptr<Speculation> speculation_;
  /*! \brief Scratch: the logits of a row that is not plain. */
  std::vector<float> adjusted_logits_;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> sequences_;
  std::vector<Record> records_;
  Statistics totals_;
  /*! \brief Sequences that have everything but the mask of their next token. */
  std::vector<Sequence*> held_;
  std::unordered_set<Sequence*> paused_;
  /*! \brief The entries of pinned sequences whose own id is the name of another, after a pause. */
  std::unordered_map<int64_t, int64_t> pin_names_;
  DeadlineQueue deadlines_;
  MaskWorker mask_worker_;
  Meter meter_{&totals_};

  // What the threads share: guarded by mutex_, which is never held during a step.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;
  Outbox outbox_;
  std::vector<std::string> notices_;
  Statistics published_;
  int64_t next_sequence_id_ = 0;
  /*! \brief Whether a sequence lives that is not paused. */
  bool has_live_sequences_ = false;
  TimePoint next_deadline_ = TimePoint::max();
  bool is_running_ = false;
  bool stop_requested_ = false;
  bool closed_ = false;
  /*! \brief Why the engine is dead; empty while it is not. */
  std::string death_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_H_
