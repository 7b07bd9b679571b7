/*!
 * \file scheduling/page_budget.h
 * \brief The accounting of KV cache pages.
 */
#ifndef AIOMLC_SCHEDULING_PAGE_BUDGET_H_
#define AIOMLC_SCHEDULING_PAGE_BUDGET_H_

#include <cstdint>

namespace aiomlc {

/*! \brief Counts reserved pages; never more than exist. */
class PageBudget {
 public:
  /*! \param total_pages At least 1. \param page_size Tokens per page, at least 1. */
  PageBudget(int64_t total_pages, int64_t page_size);

  int64_t total_pages() const { return total_pages_; }
  int64_t free_pages() const { return free_pages_; }
  int64_t page_size() const { return page_size_; }

  /*! \return The number of pages that hold `num_tokens` tokens of one sequence. */
  int64_t PagesFor(int64_t num_tokens) const;

  /*! \brief Reserve pages. \throws std::logic_error if fewer are free: the plan was wrong. */
  void Reserve(int64_t num_pages);

  /*! \brief Free pages. \throws std::logic_error if fewer are reserved. */
  void Release(int64_t num_pages);

 private:
  int64_t total_pages_;
  int64_t page_size_;
  int64_t free_pages_;
};

}  // namespace aiomlc

#endif  // AIOMLC_SCHEDULING_PAGE_BUDGET_H_
