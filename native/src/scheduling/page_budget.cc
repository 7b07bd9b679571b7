#include "scheduling/page_budget.h"

#include <stdexcept>
#include <string>

namespace aiomlc {

PageBudget::PageBudget(int64_t total_pages, int64_t page_size)
    : total_pages_(total_pages), page_size_(page_size), free_pages_(total_pages) {}

int64_t PageBudget::PagesFor(int64_t num_tokens) const {
  return (num_tokens + page_size_ - 1) / page_size_;
}

void PageBudget::Reserve(int64_t num_pages) {
  if (num_pages > free_pages_) {
    throw std::logic_error("cannot reserve " + std::to_string(num_pages) + " pages: only " +
                           std::to_string(free_pages_) + " are free");
  }
  free_pages_ -= num_pages;
}

void PageBudget::Release(int64_t num_pages) {
  const int64_t reserved = total_pages_ - free_pages_;
  if (num_pages > reserved) {
    throw std::logic_error("cannot release " + std::to_string(num_pages) + " pages: only " +
                           std::to_string(reserved) + " are reserved");
  }
  free_pages_ += num_pages;
}

}  // namespace aiomlc
