/*!
 * \file scheduling/resource_budget.h
 * \brief The accounting of what sequences hold in the model.
 */
#ifndef AIOMLC_SCHEDULING_RESOURCE_BUDGET_H_
#define AIOMLC_SCHEDULING_RESOURCE_BUDGET_H_

#include "model/resources.h"

namespace aiomlc {

/*! \brief Counts reserved resources; never more than exist. */
class ResourceBudget {
 public:
  explicit ResourceBudget(const Resources& total) : total_(total), free_(total) {}

  const Resources& total() const { return total_; }
  const Resources& free() const { return free_; }

  /*! \brief Reserve resources. \throws std::logic_error if fewer are free: the plan was wrong. */
  void Reserve(const Resources& resources);

  /*! \brief Free resources. \throws std::logic_error if fewer are reserved. */
  void Release(const Resources& resources);

 private:
  Resources total_;
  Resources free_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_RESOURCE_BUDGET_H_
