/*!
 * \file engine/wake_fd.h
 * \brief A file descriptor that another thread's event loop can wait for.
 */
#ifndef AIOMLC_ENGINE_WAKE_FD_H_
#define AIOMLC_ENGINE_WAKE_FD_H_

namespace aiomlc {

/*! \brief Readable from `Signal` until `Clear`. An eventfd on Linux, a pipe elsewhere. */
class WakeFd {
 public:
  /*! \throws std::system_error when the process has no descriptor left. */
  WakeFd();
  ~WakeFd();
  WakeFd(const WakeFd&) = delete;
  WakeFd& operator=(const WakeFd&) = delete;

  /*! \brief The descriptor to wait for. Owned by this object. */
  int fd() const { return read_fd_; }

  /*! \brief Make it readable. Never blocks. */
  void Signal();

  /*! \brief Make it unreadable. Never blocks. */
  void Clear();

 private:
  int read_fd_ = -1;
  int write_fd_ = -1;
};

}  // namespace aiomlc

#endif  // AIOMLC_ENGINE_WAKE_FD_H_
