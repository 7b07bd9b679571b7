#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "weights/file.h"
#include "weights/weights.h"

namespace aiomlc {

std::shared_ptr<const MappedWeights> MappedWeights::Open(const std::string& path, uint64_t bytes,
                                                         std::string* error) {
  File file;
  *error = file.OpenForReading(path);
  if (!error->empty()) return nullptr;
  struct stat status;
  if (fstat(file.descriptor(), &status) != 0) {
    *error = std::generic_category().message(errno);
    return nullptr;
  }
  if (static_cast<uint64_t>(status.st_size) < bytes) {
    *error =
        "file has " + std::to_string(status.st_size) + " bytes, expected " + std::to_string(bytes);
    return nullptr;
  }
  if (bytes == 0) {
    *error = "cannot map 0 bytes";
    return nullptr;
  }
  file.LockShared();
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    *error = std::generic_category().message(errno);
    return nullptr;
  }
  // Errors of madvise are ignored: it only gives hints.
#if defined(MADV_HUGEPAGE)
  madvise(data, bytes, MADV_HUGEPAGE);
#endif
  madvise(data, bytes, MADV_WILLNEED);
  return std::shared_ptr<const MappedWeights>(
      new MappedWeights(std::move(file), static_cast<const std::byte*>(data), bytes));
}

MappedWeights::~MappedWeights() { munmap(const_cast<std::byte*>(data_), size_); }

}  // namespace aiomlc
