/*!
 * \file engine/inbox.h
 * \brief What callers ask of the engine between two steps.
 */
#ifndef AIOMLC_ENGINE_INBOX_H_
#define AIOMLC_ENGINE_INBOX_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief Submissions, cancellations and pauses, each in the order of arrival. Not thread-safe by
 * itself.
 */
struct Inbox {
  std::vector<std::unique_ptr<Sequence>> submitted;
  /*! \brief May name sequences of `submitted`, and sequences that have ended since. */
  std::vector<int64_t> cancelled;
  /*! \brief Sequences to pause or, if false, to let go on; in the order of the calls. */
  std::vector<std::pair<int64_t, bool>> paused;

  /*! \brief May name sequences of `cancelled`, and entries that are gone. */
  std::vector<int64_t> unpinned;

  /*! \brief Whether to forget what ended sequences left. */
  bool is_reset = false;

  bool empty() const {
    return submitted.empty() && cancelled.empty() && paused.empty() && unpinned.empty() &&
           !is_reset;
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_INBOX_H_
