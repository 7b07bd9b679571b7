/*!
 * \file engine/outbox.h
 * \brief Records on their way out of the engine.
 */
#ifndef AIOMLC_ENGINE_OUTBOX_H_
#define AIOMLC_ENGINE_OUTBOX_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/wake_fd.h"
#include "sequence/record.h"

namespace aiomlc {

/*!
 * \brief Holds at most one record for each sequence, however slow the reader is.
 *
 * Not thread-safe by itself, but the descriptor may be waited for from any thread.
 */
class Outbox {
 public:
  int wake_fd() const { return wake_.fd(); }

  /*! \brief Add a record, or merge it into the sequence's waiting one. */
  void Put(Record&& record);

  /*! \brief Take all records, in the order in which their sequences first appeared. */
  std::vector<Record> Drain();

 private:
  WakeFd wake_;
  std::vector<Record> records_;
  std::unordered_map<int64_t, size_t> index_by_sequence_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_OUTBOX_H_
