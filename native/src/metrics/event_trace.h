/*!
 * \file metrics/event_trace.h
 * \brief What the engine did and when, in a ring of bounded size.
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

/*! \brief In brackets: the values of the event, in order. */
enum class EventKind : int32_t {
  kSubmitted,   /*!< [prompt tokens] */
  kAdmitted,    /*!< [tokens found in the prefix cache] */
  kPrefill,     /*!< [tokens]; lasts for a forward pass, as kDecode does */
  kDecode,      /*!< [] */
  kFirstToken,  /*!< [] */
  kPreempted,   /*!< [tokens lost from the cache] */
  kEnded,       /*!< [finish reason, completion tokens] */
  kStep,        /*!< [rows, prefill tokens, decode tokens, running, waiting, free pages] */
  kDraftFailed, /*!< []; of a sequence, or of all that come */
};

struct Event {
  EventKind kind = EventKind::kStep;
  std::array<int32_t, 6> values{};
  /*! \brief -1 in kStep, and in kDraftFailed where it is of all. */
  int64_t sequence_id = -1;
  /*! \brief Nanoseconds of the steady clock. */
  int64_t start_ns = 0;
  int64_t duration_ns = 0;
};

/*! \brief Events in the order in which they were recorded, and the number of the first. */
struct EventBatch {
  int64_t first = 0;
  std::vector<Event> events;
};

/*! \brief Off until it is enabled, and then it forgets the oldest events. Thread-safe. */
class EventTrace {
 public:
  /*! \brief Events that are kept: about 4 MB, allocated when it is enabled. */
  static constexpr size_t kCapacity = 65536;

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  void Enable();
  /*! \brief Only when it is on. */
  void Record(const Event& event);
  /*! \return The events from a number on, as far as they are kept. The first ever has number 0. */
  EventBatch Read(int64_t from) const;

 private:
  std::atomic<bool> is_on_ = false;
  mutable std::mutex mutex_;
  std::vector<Event> ring_;
  /*! \brief Events recorded so far. */
  int64_t num_recorded_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_METRICS_EVENT_TRACE_H_
