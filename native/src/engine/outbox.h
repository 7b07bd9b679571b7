/*!
 * \file engine/outbox.h
 * \brief The queue of records for the reader.
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
 * \brief Holds at most one record per sequence: new records are merged into an undrained one.
 *
 * Not thread-safe, except that any thread may wait for the file descriptor.
 */
class Outbox {
 public:
  int wake_fd() const { return wake_.fd(); }

  /*!
   * \brief Add a record, or merge it into the undrained record of its sequence.
   * \throws std::bad_alloc Then nothing has changed.
   */
  void Put(Record&& record);

  /*! \brief Take all records, in the order of their sequences' first `Put`. */
  std::vector<Record> Drain();

 private:
  WakeFd wake_;
  std::vector<Record> records_;
  std::unordered_map<int64_t, size_t> index_by_sequence_;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_OUTBOX_H_
