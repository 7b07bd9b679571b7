#include "weights/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace aiomlc {

namespace {

// The maximum number of bytes per call; some systems reject more than 2 GiB.
constexpr uint64_t kMaxTransfer = uint64_t{1} << 30;

std::string ErrorText(int number) { return std::generic_category().message(number); }

}  // namespace

File::~File() {
  if (descriptor_ >= 0) close(descriptor_);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

std::string File::Open(const std::string& path, int flags) {
  path_ = path;
  do {
    descriptor_ = open(path.c_str(), flags | O_CLOEXEC, 0644);
  } while (descriptor_ < 0 && errno == EINTR);
  return descriptor_ < 0 ? ErrorText(errno) : std::string();
}

std::string File::OpenForReading(const std::string& path) { return Open(path, O_RDONLY); }

std::string File::OpenDuplicate(int descriptor) {
  descriptor_ = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  return descriptor_ < 0 ? ErrorText(errno) : std::string();
}

std::string File::Create(const std::string& path) { return Open(path, O_RDWR | O_CREAT | O_TRUNC); }

std::string File::ReadAt(uint64_t offset, void* data, uint64_t bytes) const {
  char* out = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t count =
        pread(descriptor_, out, std::min(bytes, kMaxTransfer), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrorText(errno);
    if (count == 0) return "file ends at byte " + std::to_string(offset);
    out += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return {};
}

std::string File::WriteAt(uint64_t offset, const void* data, uint64_t bytes) const {
  const char* in = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count =
        pwrite(descriptor_, in, std::min(bytes, kMaxTransfer), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrorText(errno);
    in += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<uint64_t>(count);
  }
  return {};
}

std::string File::Allocate(uint64_t bytes) const {
  if (ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) return ErrorText(errno);
#if defined(__linux__)
  // Unlike posix_fallocate, fallocate never falls back to writing zeros. If it is not supported, a
  // full disk is detected only by `WriteAt`.
  if (bytes > 0 && fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
    return ErrorText(errno);
  }
#endif
  return {};
}

std::string File::Sync() const {
  while (fsync(descriptor_) != 0) {
    if (errno == EINVAL) return {};  // The file does not support syncing, for example a pipe.
    if (errno != EINTR) return ErrorText(errno);
  }
  return {};
}

bool File::IsCached(uint64_t offset) const {
#if defined(RWF_NOWAIT)
  char byte;
  const iovec target{&byte, 1};
  return preadv2(descriptor_, &target, 1, static_cast<off_t>(offset), RWF_NOWAIT) >= 0 ||
         errno != EAGAIN;
#else
  static_cast<void>(offset);
  return true;
#endif
}

void File::ReadIntoCache(uint64_t offset, uint64_t bytes) const {
#if defined(MADV_POPULATE_READ)
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor_, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return;
  madvise(data, bytes, MADV_HUGEPAGE);
  madvise(data, bytes, MADV_POPULATE_READ);  // Unlike an access, it never raises a SIGBUS.
  munmap(data, bytes);
#else
  static_cast<void>(offset);
  static_cast<void>(bytes);
#endif
}

void File::LockShared() const { flock(descriptor_, LOCK_SH | LOCK_NB); }

void File::DropCache() const {
#if defined(POSIX_FADV_DONTNEED)
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
#endif
}

}  // namespace aiomlc
