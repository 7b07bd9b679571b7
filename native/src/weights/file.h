/*!
 * \file weights/file.h
 * \brief A file descriptor that closes itself and reads and writes at offsets.
 */
#ifndef AIOMLC_WEIGHTS_FILE_H_
#define AIOMLC_WEIGHTS_FILE_H_

#include <cstdint>
#include <string>

namespace aiomlc {

/*! \brief An open file, or none. Reading and writing at offsets is safe from several threads. */
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  /*! \brief Open for reading. \return Empty, or the reason why it failed. */
  std::string OpenForReading(const std::string& path);

  /*! \brief Create or truncate for writing. \return As above. */
  std::string Create(const std::string& path);

  /*! \brief Read exactly `bytes` bytes. \return Empty, or the reason why it failed. */
  std::string ReadAt(uint64_t offset, void* data, uint64_t bytes) const;

  /*! \brief Write all of `data`. \return As above. */
  std::string WriteAt(uint64_t offset, const void* data, uint64_t bytes) const;

  /*! \brief Give the file `bytes` bytes of space, so that a full disk shows now. */
  std::string Allocate(uint64_t bytes) const;

  /*! \brief Wait until the contents are on the disk. */
  std::string Sync() const;

  /*!
   * \brief Let go of what the system keeps of the file in memory, once it is on the disk.
   *
   * What was written in small pieces lies in small pages; read back, it comes in large ones.
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
