/*!
 * \file engine/engine.h
 * \brief The engine: continuous batching for one model.
 */
#ifndef AIOMLC_ENGINE_ENGINE_H_
#define AIOMLC_ENGINE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
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
#include "prompt/prefix_key.h"
#include "prompt/prompt.h"
#include "sequence/record.h"
#include "text/streaming_detokenizer.h"

namespace aiomlc {

/*!
 * \brief Serves concurrent sequences with one model.
 *
 * Calls are queued in an inbox, and their results are records in an outbox. Between them, one
 * thread at a time runs the stepper.
 *
 * Threads: every method may be called from any thread. `Submit`, `Cancel`, `Pause`, `Resume`,
 * `Unpin`, `Reset`, `Stop`, `Drain` and `GetStatistics` never wait for a step.
 *
 * Lifetime: `Run` serves until `Stop`, and may be called again; `Close` is final. If the model
 * throws, every live sequence ends with an error record and the engine is dead: from then on `Run`,
 * `Step` and `Submit` throw EngineError kEngineDead. If a draft model throws, speculative decoding
 * is disabled, and no sequence is affected.
 *
 * The last record of each submitted sequence, and only the last, has a finish reason.
 */
class Engine {
 public:
  /*!
   * \param model Not owned; must outlive the engine and must not be used by others.
   * \param vocabulary The bytes of every token; ids beyond its end have no text.
   * \throws EngineError kBadRequest for an invalid option.
   */
  Engine(Model* model, Vocabulary vocabulary, const EngineOptions& options);
  /*!
   * \brief Close the engine. No other thread may be running a method.
   *
   * A caller that holds a lock that a grammar needs, as Python's GIL, must call `Close` before.
   */
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /*!
   * \brief Queue a prompt.
   * \return The id of the new sequence, which is never reused.
   * \throws EngineError kBadRequest, kPromptTooLong, kEngineOverloaded, kEngineClosed or
   *     kEngineDead.
   */
  int64_t Submit(Prompt prompt, SequenceOptions options);

  /*! \brief End a sequence at the next step. An unknown or ended id has no effect. */
  void Cancel(int64_t sequence_id);

  /*!
   * \brief Suspend a sequence until `Resume`, as back-pressure for a slow reader.
   *
   * The sequence releases its row and its pages. The computed tokens stay in the prefix cache; if
   * they are evicted, they are computed again. Pausing twice, or pausing an unknown or ended id,
   * has no effect.
   */
  void Pause(int64_t sequence_id);
  void Resume(int64_t sequence_id);

  /*!
   * \brief Unpin the prefix cache entry of an ended sequence that had `is_pinned`.
   *
   * A live sequence is not affected. A cancelled sequence has no pinned entry.
   */
  void Unpin(int64_t sequence_id);

  /*!
   * \brief Between two steps and after the preceding calls: this method and the next two wait for
   * the end of a step. An error of the model kills the engine.
   *
   * \return The number of first tokens that are in the prefix cache.
   * \throws EngineError kEngineClosed or kEngineDead.
   */
  int64_t CountCached(const PrefixKey& key);
  /*! \brief See PrefixTransfer. */
  void ExportPrefix(const PrefixKey& key, int64_t begin, std::span<std::byte> data);
  void ImportPrefix(const PrefixKey& key, int64_t begin, std::span<const std::byte> data);

  /*!
   * \brief Empty the prefix cache and reset the counters before the next step, after the preceding
   * cancellations.
   */
  void Reset();

  /*!
   * \brief Step while there is work, and sleep while there is none, until `Stop` or `Close`.
   * \throws EngineError kEngineDead if the model fails, or failed before.
   */
  void Run();

  /*! \brief Make the current `Run` return after the current step, or the next `Run` at once. */
  void Stop();

  /*!
   * \brief Run one step in the calling thread.
   * \return Whether there is more work; paused sequences do not count.
   * \throws EngineError kEngineDead if the model fails, or failed before.
   */
  bool Step();

  /*!
   * \brief End every sequence with an abort record, free its pages and reject new sequences.
   *
   * Waits for a step that is running in another thread, and for a mask that is being computed. An
   * active `Run` returns. Idempotent.
   * \throws EngineError kEngineDead if the model failed to free a page; the rest is done.
   */
  void Close();

  /*!
   * \brief Take the records since the last call, at most one per sequence.
   *
   * The wake descriptor is not readable afterwards.
   */
  std::vector<Record> Drain();

  /*! \return A file descriptor, owned by the engine, that is readable while there are records. */
  int wake_fd() const { return outbox_.wake_fd(); }

  /*! \return The messages for the log since the last call. */
  std::vector<std::string> TakeNotices();

  Statistics GetStatistics() const;

  /*! \brief The event trace, which may be enabled and read from any thread. */
  EventTrace& trace() { return stepper_.trace(); }

  /*! \return Why the engine is dead, or empty. Set before the error records can be drained. */
  std::string Failure() const;

  /*!
   * \brief Check the invariants of all counters; waits for the step in progress.
   * \throws std::logic_error that lists every violation.
   */
  void CheckInvariants();

 private:
  /*! \brief Change the inbox, unless the engine is closed or dead, and wake the loop. */
  template <typename Change>
  void Post(Change change);
  /*! \brief Call `action` between two steps; `Run` waits for one such call before each step. */
  template <typename Action>
  void CallBetweenSteps(Action action);
  /*! \brief Throw kEngineClosed or kEngineDead if no call can be served; needs mutex_. */
  void CheckServing() const;
  /*! \brief Throw kEngineOverloaded if no more sequences may be live; needs mutex_. */
  void CheckLoad() const;
  /*! \brief Sleep while there is no work. \return Whether to step; otherwise `Run` returns. */
  bool WaitForWork();
  /*! \brief Take the calls from the inbox; needs mutex_. */
  Inbox TakeCalls();
  /*! \brief Mark the engine as dead, end every sequence with an error, and throw the error. */
  [[noreturn]] void Fail(const std::string& cause);
  /*! \brief Copy the results of the step to the members guarded by mutex_; needs step_mutex_. */
  void Publish();

  // Held during a step. Locked before mutex_.
  std::mutex step_mutex_;
  IdSource ids_;
  /*! \brief Guarded by step_mutex_, except for its trace. */
  Stepper stepper_;
  const SequenceFactory factory_;
  /*! \brief The maximum number of sequences that run or wait. */
  const int64_t max_live_sequences_;
  const std::function<TimePoint()> now_;

  // The state shared between threads: guarded by mutex_, which is never held during a step.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Inbox inbox_;
  Outbox outbox_;
  std::vector<std::string> notices_;
  /*! \brief The statistics after the last step. */
  Statistics published_;
  /*! \brief Whether a live sequence is not paused. */
  bool has_unpaused_ = false;
  TimePoint next_deadline_ = TimePoint::max();
  /*! \brief The calls that wait for the end of a step, and the number of those that have ended. */
  int64_t num_waiting_calls_ = 0;
  int64_t num_ended_calls_ = 0;
  bool is_running_ = false;
  bool stop_requested_ = false;
  bool closed_ = false;
  /*! \brief Why the engine is dead; empty if it is not. */
  std::string failure_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_ENGINE_H_
