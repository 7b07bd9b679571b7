#include "weights/checksum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

namespace aiomlc {
namespace {

constexpr size_t kLanes = 8;
constexpr size_t kStripe = kLanes * sizeof(uint64_t);
// Bytes per read: a multiple of a stripe that fits into the second-level cache.
constexpr size_t kReadBytes = size_t{128} << 10;
// The fractional bits of the golden ratio, and of the square roots of 2, 3, 5, 7, 11, 13, 17, 19.
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
constexpr std::array<uint64_t, kLanes> kInitial = {
    0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
    0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};

/*! \brief A bijection whose output bits each depend on all input bits. */
constexpr uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 32)) * 0xD6E8FEB86659FD93;
  value = (value ^ (value >> 29)) * kMultiplier;
  return value ^ (value >> 32);
}

/*! \brief Hashes a stream of stripes. */
class BlockHasher {
 public:
  explicit BlockHasher(uint64_t seed) : lanes_(kInitial) {
    for (uint64_t& lane : lanes_) lane ^= Mix(seed + kMultiplier);
    sums_ = lanes_;
  }

  /*! \brief Add bytes; only the last call may add a number that is no multiple of a stripe. */
  void Add(const std::byte* data, size_t bytes) {
    const size_t whole = bytes / kStripe * kStripe;
    AddStripes(data, whole);
    if (const size_t rest = bytes - whole; rest > 0) {
      std::array<std::byte, kStripe> padded{};
      std::memcpy(padded.data(), data + whole, rest);
      AddStripes(padded.data(), kStripe);
    }
    bytes_ += bytes;
  }

  Checksum Finish() const {
    Checksum sum{bytes_, ~bytes_};
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sum.low = Mix(sum.low ^ lanes_[lane]);
      sum.high = Mix(sum.high ^ sums_[lane]);
    }
    return sum;
  }

 private:
  void AddStripes(const std::byte* data, size_t bytes) {
    std::array<uint64_t, kLanes> lanes = lanes_;  // Local copies stay in registers.
    std::array<uint64_t, kLanes> sums = sums_;
    for (const std::byte* end = data + bytes; data != end; data += kStripe) {
#pragma GCC unroll 8
      for (size_t lane = 0; lane < kLanes; ++lane) {
        uint64_t word;
        std::memcpy(&word, data + lane * sizeof word, sizeof word);
        lanes[lane] = std::rotl(lanes[lane] ^ word, 27) * kMultiplier;
        sums[lane] += word;
      }
    }
    lanes_ = lanes;
    sums_ = sums;
  }

  std::array<uint64_t, kLanes> lanes_;
  std::array<uint64_t, kLanes> sums_;
  uint64_t bytes_ = 0;
};

std::string ReadBlock(const File& file, uint64_t offset, uint64_t bytes, uint64_t seed,
                      Checksum* sum) {
  if (!file.IsCached(offset)) file.ReadIntoCache(offset, bytes);
  std::vector<std::byte> buffer(std::min<uint64_t>(bytes, kReadBytes));
  BlockHasher hasher(seed);
  for (uint64_t done = 0; done < bytes; done += buffer.size()) {
    const size_t count = std::min<uint64_t>(buffer.size(), bytes - done);
    if (std::string error = file.ReadAt(offset + done, buffer.data(), count); !error.empty()) {
      return error;
    }
    hasher.Add(buffer.data(), count);
  }
  *sum = hasher.Finish();
  return {};
}

}  // namespace

Checksum HashBlock(const std::byte* data, size_t bytes, uint64_t seed) {
  BlockHasher hasher(seed);
  hasher.Add(data, bytes);
  return hasher.Finish();
}

std::string ChecksumFile(const File& file, uint64_t offset, uint64_t bytes, ThreadPool& threads,
                         Checksum* result) {
  const uint64_t num_blocks = (bytes + kChecksumBlock - 1) / kChecksumBlock;
  std::vector<Checksum> sums(num_blocks);
  std::mutex mutex;
  std::string error;
  threads.Run(static_cast<int>(num_blocks), [&](int block) {
    const uint64_t index = static_cast<uint64_t>(block);
    const uint64_t begin = index * kChecksumBlock;
    std::string reason = ReadBlock(file, offset + begin, std::min(kChecksumBlock, bytes - begin),
                                   index, &sums[index]);
    if (reason.empty()) return;
    const std::lock_guard lock(mutex);
    error = std::move(reason);
  });
  *result = HashBlock(reinterpret_cast<const std::byte*>(sums.data()),
                      sums.size() * sizeof(Checksum), bytes);
  return error;
}

}  // namespace aiomlc
