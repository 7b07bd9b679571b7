/*!
 * \file platform/thread_pool.h
 * \brief A thread pool that runs the tasks of one kernel at a time.
 */
#ifndef AIOMLC_PLATFORM_THREAD_POOL_H_
#define AIOMLC_PLATFORM_THREAD_POOL_H_

#include <memory>
#include <type_traits>
#include <utility>

namespace aiomlc {

template <typename Signature>
class FunctionRef;

/*! \brief A non-owning reference to a callable; never allocates. */
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
 * \brief A fixed set of threads that run batches of numbered tasks.
 *
 * A worker spins for about 50 us after its last task and then sleeps, so an idle pool uses no CPU.
 * Concurrent callers are serialized.
 */
class ThreadPool {
 public:
  /*!
   * \param num_threads The number of threads, including the caller; less than 1 means 1.
   * \throws std::system_error If the threads cannot be started; none of them is left.
   */
  explicit ThreadPool(int num_threads);

  /*! \brief Join the workers. No call to `Run` may be in progress. */
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  /*!
   * \brief Call `function(task)` once for every task in [0, num_tasks), and wait until all end.
   *
   * The caller runs tasks, too. Idle threads take the tasks in ascending order. A nested call from
   * a task runs all its tasks on the calling thread.
   * \throws The first exception of a task, after all tasks have ended.
   */
  void Run(int num_tasks, FunctionRef<void(int)> function);

  /*!
   * \return The pool of this thread's innermost `Scope`; in a worker, its own pool; otherwise the
   * default pool of the process.
   */
  static ThreadPool& Current();

  /*! \brief Makes a pool current on this thread for the lifetime of the scope. */
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
