/*!
 * \file weights/checksum.h
 * \brief A fast checksum of files, which detects damage. It is not cryptographic.
 */
#ifndef AIOMLC_WEIGHTS_CHECKSUM_H_
#define AIOMLC_WEIGHTS_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "platform/thread_pool.h"
#include "weights/file.h"

namespace aiomlc {

/*! \brief Bytes that are hashed as one unit: a huge page of x86-64. */
inline constexpr uint64_t kChecksumBlock = uint64_t{2} << 20;

struct Checksum {
  uint64_t low = 0;
  uint64_t high = 0;

  bool operator==(const Checksum&) const = default;
};

/*!
 * \brief Hash up to one block.
 *
 * Eight lanes each take every eighth word: `lane = rotl(lane ^ word, 27) * odd`, `sum += word`. The
 * lanes give one half of the result and the sums the other. Each step is a bijection, so damage
 * within one word always changes both halves; damage that cancels out in a lane changes its sum.
 * \param seed Distinguishes equal blocks at different positions.
 */
Checksum HashBlock(const std::byte* data, size_t bytes, uint64_t seed);

/*!
 * \brief Hash bytes [offset, offset + bytes) of a file, block by block on several threads.
 *
 * The result does not depend on the number of threads. The file is read with `pread`, so a file
 * that is truncated meanwhile is an error and not a SIGBUS. Bytes that are not in the page cache
 * are read into it in huge pages, which the mapping of the file then uses.
 * \return Empty, or the error.
 */
std::string ChecksumFile(const File& file, uint64_t offset, uint64_t bytes, ThreadPool& threads,
                         Checksum* result);

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_CHECKSUM_H_
