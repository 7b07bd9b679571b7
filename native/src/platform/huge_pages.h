/*!
 * \file platform/huge_pages.h
 * \brief Requests huge pages for the tensors of a KV cache.
 */
#ifndef AIOMLC_PLATFORM_HUGE_PAGES_H_
#define AIOMLC_PLATFORM_HUGE_PAGES_H_

#include <cstddef>
#include <unordered_set>

namespace aiomlc {

/*!
 * \brief Requests huge pages for the tensors of one KV cache.
 *
 * A long context is scattered over thousands of cache pages, which exceeds the TLB with memory
 * pages of 4 KiB. TVM allocates the cache and passes its tensors to the kernels, so the kernels
 * request huge pages on their first call, before anything is written.
 */
class HugePages {
 public:
  /*! \brief Request huge pages for a tensor, once. The system may ignore the request. */
  void Request(const void* data, size_t bytes);

  /*! \return The instance of the innermost `Scope` of this thread; null if there is none. */
  static HugePages* Current();

  /*! \brief Makes an instance current on this thread while a model runs. */
  class Scope {
   public:
    explicit Scope(HugePages& pages);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    HugePages* previous_;
  };

 private:
  std::unordered_set<const void*> requested_;
};

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_HUGE_PAGES_H_
