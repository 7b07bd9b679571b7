/*!
 * \file platform/aligned_buffer.h
 * \brief Working memory that starts on a cache line.
 */
#ifndef AIOMLC_PLATFORM_ALIGNED_BUFFER_H_
#define AIOMLC_PLATFORM_ALIGNED_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>

namespace aiomlc {

/*! \brief Bytes that are kept for the next use and only ever grow. */
class AlignedBuffer {
 public:
  /*! \return At least `size` bytes. What an earlier call returned is no longer valid. */
  std::byte* Reserve(size_t size) {
    if (size > size_) {
      bytes_.reset();
      size_ = 0;
      bytes_.reset(static_cast<std::byte*>(::operator new(size, kAlignment)));
      size_ = size;
    }
    return bytes_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  struct Free {
    void operator()(std::byte* bytes) const { ::operator delete(bytes, kAlignment); }
  };

  std::unique_ptr<std::byte, Free> bytes_;
  size_t size_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_PLATFORM_ALIGNED_BUFFER_H_
