#include "scheduling/page_budget.h"

#include <stdexcept>

namespace aiomlc {

PageBudget::PageBudget(int64_t total_pages, int64_t page_size)
    : total_pages_(total_pages), page_size_(page_size), free_pages_(total_pages) {}

int64_t PageBudget::PagesFor(int64_t num_tokens) const {
  return (num_tokens + page_size_ - 1) / page_size_;
}

void PageBudget::Reserve(int64_t num_pages) {
  if (num_pages > free_pages_) throw std::logic_error("more pages are reserved than are free");
  free_pages_ -= num_pages;
}

void PageBudget::Release(int64_t num_pages) {
  if (num_pages > total_pages_ - free_pages_) {
    throw std::logic_error("more pages are released than are reserved");
  }
  free_pages_ += num_pages;
}

}  // namespace aiomlc
