/*!
 * \file platform/aligned_buffer.h
 * \brief Scratch memory aligned to cache lines.
 */
#ifndef AIOMLC_PLATFORM_ALIGNED_BUFFER_H_
#define AIOMLC_PLATFORM_ALIGNED_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>

namespace aiomlc {

/*! \brief A reusable buffer that only grows. */
class AlignedBuffer {
 public:
  /*! \brief Return at least `size` bytes; invalidates the result of earlier calls. */
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
