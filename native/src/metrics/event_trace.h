/*!
 * \file metrics/event_trace.h
 * \brief A trace of engine events in a ring buffer.
 */
#ifndef AIOMLC_METRICS_EVENT_TRACE_H_
#define AIOMLC_METRICS_EVENT_TRACE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "sequence/request_times.h"

namespace aiomlc {

/*! \brief The kind of an event; brackets list the meaning of its values, in order. */
enum class EventKind : int32_t {
  kSubmitted,   /*!< [prompt tokens] */
  kAdmitted,    /*!< [tokens forked from the prefix cache] */
  kPrefill,     /*!< [tokens]; spans the forward pass, like kDecode */
  kDecode,      /*!< [] */
  kFirstToken,  /*!< [] */
  kPreempted,   /*!< [tokens lost from the KV cache] */
  kEnded,       /*!< [finish reason, completion tokens] */
  kStep,        /*!< [rows, prefill tokens, decode tokens, running, waiting, free pages] */
  kDraftFailed, /*!< []; drafting ended for one sequence or for all */
};

/*! \brief One event of the trace. */
struct Event {
  EventKind kind = EventKind::kStep;
  std::array<int32_t, 6> values{};
  /*! \brief -1 for kStep, and for kDraftFailed if it concerns all sequences. */
  int64_t sequence_id = -1;
  /*! \brief Start in nanoseconds of the steady clock. */
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
};

/*! \brief Consecutive events, and the number of the first one. */
struct EventBatch {
  int64_t first = 0;
  std::vector<Event> events;
};

/*! \brief A ring buffer of the latest events, disabled at first. Thread-safe. */
class EventTrace {
 public:
  /*! \brief The maximum number of events that are kept: about 4 MB, allocated by `Enable`. */
  static constexpr size_t kCapacity = 65536;

  bool is_enabled() const { return is_enabled_.load(std::memory_order_relaxed); }
  void Enable();
  /*! \brief Record an event. Must be enabled. */
  void Record(const Event& event);
  /*! \return The events from number `from` that are still kept; numbers start at 0. */
  EventBatch Read(int64_t from) const;

 private:
  std::atomic<bool> is_enabled_ = false;
  mutable std::mutex mutex_;
  std::vector<Event> ring_;
  /*! \brief Number of events recorded so far. */
  int64_t num_recorded_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_EVENT_TRACE_H_
