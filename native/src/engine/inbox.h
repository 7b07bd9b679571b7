/*!
 * \file engine/inbox.h
 * \brief The calls that wait for the next step.
 */
#ifndef AIOMLC_ENGINE_INBOX_H_
#define AIOMLC_ENGINE_INBOX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief Calls of each kind, in the order of arrival. Not thread-safe by itself. */
struct Inbox {
  std::vector<std::unique_ptr<Sequence>> submitted;
  /*! \brief May name sequences of `submitted`, and sequences that have ended since. */
  std::vector<int64_t> cancelled;
  /*! \brief Sequences to pause (true) or resume (false), in the order of the calls. */
  std::vector<std::pair<int64_t, bool>> paused;
  /*! \brief May name sequences of `cancelled`, and prefix cache entries that are gone. */
  std::vector<int64_t> unpinned;
  /*! \brief Whether to empty the prefix cache and reset the counters. */
  bool is_reset = false;

  bool empty() const {
    return submitted.empty() && cancelled.empty() && paused.empty() && unpinned.empty() &&
           !is_reset;
  }

  /*! \return Everything so far; the inbox is empty afterwards. */
  Inbox Take() { return std::exchange(*this, {}); }
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_INBOX_H_
