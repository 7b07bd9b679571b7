#include "scheduling/resource_budget.h"

#include <stdexcept>

namespace aiomlc {

void ResourceBudget::Reserve(const Resources& resources) {
  if (!resources.FitsIn(free_)) {
    throw std::logic_error("cannot reserve " + resources.ToString() + ": only " + free_.ToString() +
                           " are free");
  }
  free_ -= resources;
}

void ResourceBudget::Release(const Resources& resources) {
  const Resources reserved = total_ - free_;
  if (!resources.FitsIn(reserved)) {
    throw std::logic_error("cannot release " + resources.ToString() + ": only " +
                           reserved.ToString() + " are reserved");
  }
  free_ += resources;
}

}  // namespace aiomlc
