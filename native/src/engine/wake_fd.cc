#include "engine/wake_fd.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#ifdef __linux__
#include <sys/eventfd.h>
#else
#include <fcntl.h>
#endif

namespace aiomlc {

namespace {

[[noreturn]] void ThrowErrno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

#ifdef __linux__

WakeFd::WakeFd() : read_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), write_fd_(read_fd_) {
  if (read_fd_ < 0) ThrowErrno("eventfd");
}

WakeFd::~WakeFd() { close(read_fd_); }

#else

WakeFd::WakeFd() {
  int fds[2];
  if (pipe(fds) != 0) ThrowErrno("pipe");
  read_fd_ = fds[0];
  write_fd_ = fds[1];
  for (int fd : fds) {
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
}

WakeFd::~WakeFd() {
  close(read_fd_);
  close(write_fd_);
}

#endif

void WakeFd::Signal() {
  const uint64_t one = 1;
  while (write(write_fd_, &one, sizeof(one)) < 0) {
    if (errno == EAGAIN) return;  // The pipe or counter is full, hence readable.
    if (errno != EINTR) ThrowErrno("write to the wake descriptor");
  }
}

void WakeFd::Clear() {
  uint64_t values[8];
  while (true) {
    // Read until EAGAIN: a pipe may contain more than one buffer.
    if (read(read_fd_, values, sizeof(values)) >= 0 || errno == EINTR) continue;
    if (errno == EAGAIN) return;
    ThrowErrno("read from the wake descriptor");
  }
}

}  // namespace aiomlc
