/*!
 * \file tests/doubles/no_new_threads.h
 * \brief A scope in which no thread can be started.
 */
#ifndef AIOMLC_TESTS_DOUBLES_NO_NEW_THREADS_H_
#define AIOMLC_TESTS_DOUBLES_NO_NEW_THREADS_H_

#include <pthread.h>

#include <cstddef>

namespace aiomlc {

/*! \brief Asks for stacks that are larger than the address space. */
class NoNewThreads {
 public:
  NoNewThreads() {
    pthread_attr_init(&attributes_);
    pthread_getattr_default_np(&attributes_);
    pthread_attr_getstacksize(&attributes_, &stack_size_);
    SetStackSize(size_t{1} << 47);
  }
  ~NoNewThreads() {
    SetStackSize(stack_size_);
    pthread_attr_destroy(&attributes_);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;

 private:
  void SetStackSize(size_t size) {
    pthread_attr_setstacksize(&attributes_, size);
    pthread_setattr_default_np(&attributes_);
  }

  pthread_attr_t attributes_;
  size_t stack_size_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_NO_NEW_THREADS_H_
