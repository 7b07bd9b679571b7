/*!
 * \file engine/engine.h
 * \brief Continuous batching over one model: prompts in, records out.
 */
#ifndef AIOMLC_ENGINE_ENGINE_H_
#define AIOMLC_ENGINE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/engine_options.h"
#include "engine/inbox.h"
#include "engine/outbox.h"
#include "engine/sequence_factory.h"
#include "engine/stepper.h"
#include "metrics/event_trace.h"
#include "metrics/statistics.h"
#include "model/model.h"
#include "options/engine_error.h"
#include "options/sequence_options.h"
#include "sequence/record.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*!
 * \brief Serves concurrent sequences from one model.
 *
 * Callers leave their calls in an inbox and find records in an outbox; the stepper between them
 * belongs to the thread that steps.
 *
 * Threads: every method may be called from any thread. One thread at a time steps the model;
 * `Submit`, `Cancel`, `Pause`, `Resume`, `Unpin`, `Reset`, `Stop`, `Drain` and `GetStatistics`
 * never wait for a step.
 *
 * Life: `Run` serves until `Stop`, any number of times; `Close` ends the engine for good. When the
 * model throws, every live sequence ends with an error record and the engine is dead: `Run`, `Step`
 * and `Submit` throw EngineDeadError from then on. When a draft model throws, speculative decoding
 * is disabled, and no sequence is affected.
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
  Engine(Model* model, Vocabulary vocabulary, const EngineOptions& options);
  /*! \brief Closes. No other thread may be in a method. */
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /*!
   * \brief Queue a prompt.
   * \return The id of the new sequence, never used twice.
   * \throws EngineError kBadRequest, kPromptTooLong, kEngineOverloaded, kEngineClosed or
   *     kEngineDead.
   */
  int64_t Submit(std::vector<int32_t> prompt_ids, SequenceOptions options);

  /*! \brief End a sequence at the next step. An unknown or finished id does nothing. */
  void Cancel(int64_t sequence_id);

  /*!
   * \brief Give up a sequence's row until `Resume`, for a reader that falls behind.
   *
   * The computed tokens stay in the prefix cache, where they are evicted before anything else;
   * evicted tokens are computed again. An unknown or finished id does nothing, nor does pausing
   * twice.
   */
  void Pause(int64_t sequence_id);
  void Resume(int64_t sequence_id);

  /*!
   * \brief Release what a sequence with `is_pinned` left in the prefix cache.
   *
   * A live sequence is not affected; one that is cancelled before its end is never pinned.
   */
  void Unpin(int64_t sequence_id);

  /*! \brief Before the next step, and after the cancellations so far, empty the prefix cache and
   * set the counters to 0. */
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
   * \return Whether there is work left; paused sequences are no work.
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
   * \brief Take the records since the last call: at most one for each sequence.
   *
   * Makes the wake descriptor unreadable.
   */
  std::vector<Record> Drain();

  /*! \return A descriptor, owned by the engine, that is readable while there are records. */
  int wake_fd() const { return outbox_.wake_fd(); }

  /*! \return Sentences for the log, each of them once. */
  std::vector<std::string> TakeNotices();

  Statistics GetStatistics() const;

  /*! \brief Recorded events; to be enabled and read from any thread. */
  EventTrace& trace() { return stepper_.trace(); }

  /*! \return Why the engine is dead; empty while it is not. Set before its error records are. */
  std::string Failure() const;

  /*!
   * \brief Compare everything that is counted in two places; waits for the step in progress.
   * \throws std::logic_error that lists every contradiction.
   */
  void CheckInvariants();

 private:
  /*! \brief Change the inbox, unless the engine is closed or dead, and wake the loop. */
  template <typename Change>
  void Post(Change change);
  /*! \brief Refuse a sequence that would be too many; needs mutex_. */
  void CheckLoad() const;
  /*! \brief Sleep while there is no work. \return Whether to step; otherwise `Run` returns. */
  bool WaitForWork();
  /*! \brief Take the calls so far; needs mutex_. */
  Inbox TakeCalls();
  /*! \brief End every sequence with an error, and throw it; needs step_mutex_. */
  [[noreturn]] void Die(const std::string& cause);
  /*! \brief Hand what the step produced to the callers; needs step_mutex_. */
  void Publish();

  // Taken before mutex_.
  std::mutex step_mutex_;
  IdSource ids_;
  /*! \brief Guarded by step_mutex_, but for its trace. */
  Stepper stepper_;
  const SequenceFactory factory_;
  /*! \brief Sequences that may be live at once: those that run and those that wait. */
  const int64_t max_live_sequences_;
  const std::function<TimePoint()> now_;

  // What the threads share: guarded by mutex_, which is never held during a step.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;
  Outbox outbox_;
  std::vector<std::string> notices_;
  Statistics published_;
  /*! \brief Whether a live sequence is not paused. */
  bool has_unpaused_ = false;
  TimePoint next_deadline_ = TimePoint::max();
  bool is_running_ = false;
  bool stop_requested_ = false;
  bool closed_ = false;
  /*! \brief Why the engine is dead; empty while it is not. */
  std::string death_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_H_
