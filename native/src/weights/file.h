/*!
 * \file weights/file.h
 * \brief A file with positioned reads and writes.
 */
#ifndef AIOMLC_WEIGHTS_FILE_H_
#define AIOMLC_WEIGHTS_FILE_H_

#include <cstdint>
#include <string>

namespace aiomlc {

/*! \brief Owns a file descriptor. `ReadAt` and `WriteAt` may be called concurrently. */
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  /*! \brief Open for reading. \return Empty, or the error. */
  std::string OpenForReading(const std::string& path);

  /*! \brief Duplicate an open descriptor, which stays the caller's. \return Empty, or the error. */
  std::string OpenDuplicate(int descriptor);

  /*! \brief Create or truncate for writing. \return Empty, or the error. */
  std::string Create(const std::string& path);

  /*! \brief Read exactly `bytes` bytes. \return Empty, or the error. */
  std::string ReadAt(uint64_t offset, void* data, uint64_t bytes) const;

  /*! \brief Write exactly `bytes` bytes. \return Empty, or the error. */
  std::string WriteAt(uint64_t offset, const void* data, uint64_t bytes) const;

  /*! \brief Set the size and allocate disk space. \return Empty, or the error. */
  std::string Allocate(uint64_t bytes) const;

  /*! \brief Flush the contents to disk. \return Empty, or the error. */
  std::string Sync() const;

  /*! \return Whether a byte is in the page cache; true if the system cannot tell. */
  bool IsCached(uint64_t offset) const;

  /*!
   * \brief Read a range into the page cache, in huge pages if the system has them.
   *
   * Errors are left to the `ReadAt` that follows.
   */
  void ReadIntoCache(uint64_t offset, uint64_t bytes) const;

  /*! \brief Lock the file for shared use until it is closed, unless it is locked exclusively. */
  void LockShared() const;

  /*!
   * \brief Drop the file from the page cache, once it is on disk.
   *
   * Small writes leave small pages in the cache; a later read can then use large ones.
   */
  void DropCache() const;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }

 private:
  std::string Open(const std::string& path, int flags);

  int descriptor_ = -1;
  std::string path_;
};

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_FILE_H_
