/*!
 * \file engine/inbox.h
 * \brief The queue of calls for the next step.
 */
#ifndef AIOMLC_ENGINE_INBOX_H_
#define AIOMLC_ENGINE_INBOX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief The calls of each kind, in order of arrival. Not thread-safe. */
struct Inbox {
  std::vector<std::unique_ptr<Sequence>> submitted;
  /*! \brief Sequence ids; may include ids of `submitted` and of sequences that have ended. */
  std::vector<int64_t> cancelled;
  /*! \brief Sequences to pause (true) or resume (false), in the order of the calls. */
  std::vector<std::pair<int64_t, bool>> paused;
  /*! \brief Sequence ids; may include ids of `cancelled` and of evicted entries. */
  std::vector<int64_t> unpinned;
  /*! \brief Whether to empty the prefix cache and reset the counters. */
  bool is_reset = false;

  bool empty() const {
    return submitted.empty() && cancelled.empty() && paused.empty() && unpinned.empty() &&
           !is_reset;
  }

  /*! \brief Return all calls, and empty the inbox. */
  Inbox Take() { return std::exchange(*this, {}); }
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_INBOX_H_
