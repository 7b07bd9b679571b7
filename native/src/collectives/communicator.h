/*!
 * \file collectives/communicator.h
 * \brief Collectives of the processes that compute one model together, over shared memory.
 */
#ifndef AIOMLC_COLLECTIVES_COMMUNICATOR_H_
#define AIOMLC_COLLECTIVES_COMMUNICATOR_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace aiomlc {

/*! \brief A shard has ended or failed, so that no collective can be completed. */
class ShardError final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/*! \brief The first shard has closed the group. */
class ShardsClosed final : public std::exception {
 public:
  const char* what() const noexcept final { return "the shards are closed"; }
};

/*! \brief Map the memory of a descriptor, shared. \throws std::system_error */
std::shared_ptr<void> MapShared(int descriptor, size_t bytes);

/*!
 * \brief One member of a group of shards, which all call the same collectives in the same order.
 *
 * The members share memory that is zero at first. A collective waits for all members: it spins,
 * then sleeps in the system, and looks at times whether the others still live. All members get the
 * same bits, because each adds the parts in the order of the ranks.
 *
 * Not thread-safe, except for `Fail`, `Close` and `Interrupt`.
 */
class Communicator {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMaxSize = 64;

  struct Options {
    int rank = 0;
    int size = 1;
    /*! \brief The time to spin; 0 if the shards have more threads than there are processors. */
    std::chrono::microseconds spin{0};
    /*! \brief The longest wait for members that compute. */
    std::chrono::milliseconds patience{60'000};
    /*! \brief Called at times while this member waits; throws if another one has ended. */
    std::function<void()> watch;
  };

  /*! \return The bytes of shared memory that a group needs. */
  static size_t MemoryBytes(int size);

  /*! \param memory `MemoryBytes(options.size)` bytes, zero when the group begins. */
  Communicator(std::shared_ptr<void> memory, Options options);

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }

  /*!
   * \brief Add the arrays of all members.
   * \param in float32[count].
   * \param out float32[count]; may be `in`.
   */
  void AllReduce(const float* in, float* out, int64_t count);

  /*!
   * \brief Join the columns of all members, in the order of the ranks, in the first member.
   * \param in float32[rows, cols].
   * \param out float32[rows, size * cols]; only the first member writes it.
   */
  void Gather(const float* in, float* out, int64_t rows, int64_t cols);

  /*! \brief Send bytes from the first member to all others, which call `Receive`. */
  void Send(std::span<const std::byte> message);
  /*! \brief Wait without a limit for what the first member sends. */
  void Receive(std::vector<std::byte>* message);

  /*! \brief Make every later and waiting collective throw a ShardError with the first reason. */
  void Fail(const std::string& reason) noexcept;
  /*! \brief Make every later and waiting collective throw ShardsClosed. */
  void Close() noexcept;
  /*! \brief Limit the waits of the first member until it calls `Send` again. */
  void Interrupt(std::chrono::milliseconds grace) noexcept;

  /*!
   * \return The member of this thread's innermost `Scope`.
   * \throws std::logic_error if there is none.
   */
  static Communicator& Current();

  /*! \brief Makes a member current on this thread for the lifetime of the scope. */
  class Scope {
   public:
    explicit Scope(Communicator& communicator);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Communicator* previous_;
  };

 private:
  struct Shared;

  void Barrier(bool is_idle = false);
  void Sleep(uint32_t target, bool is_idle);
  void ThrowIfOver() const;
  /*! \return The first member that has not come to the barrier of this one. */
  std::string Missing() const;
  void Wake() noexcept;
  /*! \return The floats of a member in the buffer that the next collective uses. */
  float* Slot(int rank) const;
  std::byte* Letter() const;

  const std::shared_ptr<void> memory_;
  Shared* const shared_;
  const Options options_;
  uint32_t num_barriers_ = 0;
  uint32_t num_exchanges_ = 0;
  uint32_t num_letters_ = 0;
  /*! \brief When a wait gives up, in nanoseconds of the clock. */
  std::atomic<int64_t> interrupt_{INT64_MAX};
};

}  // namespace aiomlc

#endif  // AIOMLC_COLLECTIVES_COMMUNICATOR_H_
