/*!
 * \file platform/huge_pages.h
 * \brief Ask the system for large pages of memory where small ones are looked up all the time.
 */
#ifndef AIOMLC_PLATFORM_HUGE_PAGES_H_
#define AIOMLC_PLATFORM_HUGE_PAGES_H_

#include <cstddef>
#include <unordered_set>

namespace aiomlc {

/*!
 * \brief The tensors of one KV cache that have been asked for.
 *
 * A long context lies in thousands of places, more than a processor remembers where to find in
 * pages of 4 KiB. TVM allocates the cache and shows its tensors to the functions that it calls, so
 * these ask, before anything was written.
 */
class HugePages {
 public:
  /*! \brief Ask for one tensor, at the first call with it. The system may decline. */
  void Prefer(const void* data, size_t bytes);

  /*! \return What the calling thread's model asks through; null where no model runs. */
  static HugePages* Current();

  /*! \brief A model runs on this thread. */
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
  std::unordered_set<const void*> known_;
};

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_HUGE_PAGES_H_
