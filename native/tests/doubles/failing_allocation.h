/*!
 * \file tests/doubles/failing_allocation.h
 * \brief Memory that is exhausted once.
 */
#ifndef AIOMLC_TESTS_DOUBLES_FAILING_ALLOCATION_H_
#define AIOMLC_TESTS_DOUBLES_FAILING_ALLOCATION_H_

#include <cstdint>

namespace aiomlc {

/*! \brief While it lives, one allocation of this thread throws std::bad_alloc. */
class FailingAllocation {
 public:
  /*! \param index The number of allocations before it. */
  explicit FailingAllocation(int64_t index);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /*! \return Whether it has thrown. */
  static bool has_failed();
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_FAILING_ALLOCATION_H_
