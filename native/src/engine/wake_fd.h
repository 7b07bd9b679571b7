/*!
 * \file engine/wake_fd.h
 * \brief A file descriptor that wakes the event loop of another thread.
 */
#ifndef AIOMLC_ENGINE_WAKE_FD_H_
#define AIOMLC_ENGINE_WAKE_FD_H_

namespace aiomlc {

/*! \brief A descriptor that is readable from `Signal` to `Clear`: an eventfd or a pipe. */
class WakeFd {
 public:
  /*! \throws std::system_error if the process has too many open descriptors. */
  WakeFd();
  ~WakeFd();
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  /*! \return The descriptor to wait for, owned by this object. */
  int fd() const { return read_fd_; }

  /*! \brief Make the descriptor readable. Never blocks. */
  void Signal();

  /*! \brief Make the descriptor unreadable. Never blocks. */
  void Clear();

 private:
  int read_fd_ = -1;
  int write_fd_ = -1;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_WAKE_FD_H_
