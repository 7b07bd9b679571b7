/*!
 * \file aiomlc/inbox.h
 * \brief What callers ask of the engine between two steps.
 */
#ifndef AIOMLC_INBOX_H_
#define AIOMLC_INBOX_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "aiomlc/sequence.h"

namespace aiomlc {

/*! \brief Submissions and cancellations, each in the order of arrival. Not thread-safe by itself.
 */
struct Inbox {
  std::vector<std::unique_ptr<Sequence>> submitted;
  /*! \brief May name sequences of `submitted`, and sequences that have ended since. */
  std::vector<int64_t> cancelled;

  bool empty() const { return submitted.empty() && cancelled.empty(); }
};

}  // namespace aiomlc

#endif  // AIOMLC_INBOX_H_
