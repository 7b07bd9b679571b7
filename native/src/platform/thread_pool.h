/*!
 * \file platform/thread_pool.h
 * \brief Run the tasks of one kernel on a fixed set of threads.
 */
#ifndef AIOMLC_PLATFORM_THREAD_POOL_H_
#define AIOMLC_PLATFORM_THREAD_POOL_H_

#include <memory>
#include <type_traits>
#include <utility>

namespace aiomlc {

template <typename Signature>
class FunctionRef;

/*! \brief A callable that is borrowed for the length of a call; never allocates. */
template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <typename Callable, typename = std::enable_if_t<
                                   !std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>>>
  FunctionRef(Callable&& callable)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Args>(args)...);
        }) {}

  Result operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

/*!
 * \brief A fixed set of threads that work through numbered tasks together.
 *
 * A worker spins for about 50 us after its last task and then sleeps, so an idle pool uses no CPU.
 * One pool serves one caller at a time; further callers wait for their turn.
 */
class ThreadPool {
 public:
  /*! \param num_threads Threads that work, the calling one included; less than 1 counts as 1. */
  explicit ThreadPool(int num_threads);

  /*! \brief Join the workers. No `Run` may be in progress. */
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /*!
   * \brief Call `function(task)` for every task in [0, num_tasks), each once, and wait for the end.
   *
   * The caller works too. Tasks are handed out in ascending order, to whichever thread is free.
   * A call from inside a task runs its tasks on the calling thread.
   * \throws The first exception a task threw, once every task has ended.
   */
  void Run(int num_tasks, FunctionRef<void(int)> function);

  /*!
   * \return The pool of the innermost `Scope` of this thread, or the one this thread works for,
   * else one shared by the process.
   */
  static ThreadPool& Current();

  /*! \brief Makes a pool the current one of this thread for as long as it lives. */
  class Scope {
   public:
    explicit Scope(ThreadPool& pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ThreadPool* previous_;
  };

 private:
  struct State;

  int num_threads_;
  std::unique_ptr<State> state_;
};

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_THREAD_POOL_H_
