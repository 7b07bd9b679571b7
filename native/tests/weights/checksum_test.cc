#include "weights/checksum.h"

#include <gtest/gtest.h>
#include <sys/file.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "weights/weights.h"

namespace aiomlc {
namespace {

namespace fs = std::filesystem;

std::vector<std::byte> RandomBytes(size_t count) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFF);
  return bytes;
}

uint64_t ReferenceMix(uint64_t value) {
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93;
  value ^= value >> 29;
  value *= 0x9E3779B97F4A7C15;
  value ^= value >> 32;
  return value;
}

/*! \brief The definition of the hash, byte by byte. */
Checksum ReferenceHash(const std::vector<std::byte>& data, uint64_t seed) {
  std::array<uint64_t, 8> lanes = {0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B,
                                   0xA54FF53A5F1D36F1, 0x510E527FADE682D1, 0x9B05688C2B3E6C1F,
                                   0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179};
  for (uint64_t& lane : lanes) lane ^= ReferenceMix(seed + 0x9E3779B97F4A7C15);
  std::array<uint64_t, 8> sums = lanes;
  const size_t num_words = (data.size() + 63) / 64 * 8;
  for (size_t index = 0; index < num_words; ++index) {
    uint64_t word = 0;
    for (size_t byte = 0; byte < 8; ++byte) {
      const size_t position = index * 8 + byte;
      if (position < data.size()) word |= static_cast<uint64_t>(data[position]) << (8 * byte);
    }
    uint64_t& lane = lanes[index % 8];
    lane ^= word;
    lane = ((lane << 27) | (lane >> 37)) * 0x9E3779B97F4A7C15;
    sums[index % 8] += word;
  }
  Checksum sum{data.size(), ~static_cast<uint64_t>(data.size())};
  for (const uint64_t lane : lanes) sum.low = ReferenceMix(sum.low ^ lane);
  for (const uint64_t value : sums) sum.high = ReferenceMix(sum.high ^ value);
  return sum;
}

Checksum Hash(const std::vector<std::byte>& data, uint64_t seed = 0) {
  return HashBlock(data.data(), data.size(), seed);
}

/*! \brief Provides a file with given content. */
class ChecksumFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "aiomlc_checksum_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path() const { return directory_ / "file"; }

  void Write(const std::vector<std::byte>& data) const {
    std::ofstream(Path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(data.data()),
               static_cast<std::streamsize>(data.size()));
  }

  Checksum Sum(uint64_t bytes, int num_threads, uint64_t offset = 0) const {
    File file;
    EXPECT_EQ(file.OpenForReading(Path()), "");
    ThreadPool threads(num_threads);
    Checksum sum;
    EXPECT_EQ(ChecksumFile(file, offset, bytes, threads, &sum), "");
    return sum;
  }

  fs::path directory_;
};

TEST(ChecksumTest, EqualsTheReferenceForEveryLength) {
  const std::vector<std::byte> data = RandomBytes(700);
  for (size_t length = 0; length <= data.size(); ++length) {
    const std::vector<std::byte> part(data.begin(), data.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_EQ(Hash(part, length * 7), ReferenceHash(part, length * 7)) << length;
  }
}

TEST(ChecksumTest, EveryFlippedBitChangesBothHalves) {
  std::vector<std::byte> data = RandomBytes(200);
  const Checksum intact = Hash(data);
  std::set<std::pair<uint64_t, uint64_t>> sums;
  for (size_t bit = 0; bit < data.size() * 8; ++bit) {
    data[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    const Checksum damaged = Hash(data);
    EXPECT_NE(damaged.low, intact.low);
    EXPECT_NE(damaged.high, intact.high);
    sums.emplace(damaged.low, damaged.high);
    data[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  EXPECT_EQ(sums.size(), data.size() * 8);
}

TEST(ChecksumTest, ZerosOfDifferentLengthsAndPositionsDiffer) {
  std::set<uint64_t> sums;
  for (size_t length = 0; length < 300; ++length) {
    sums.insert(Hash(std::vector<std::byte>(length)).low);
    sums.insert(Hash(std::vector<std::byte>(64), length + 1).low);
  }
  EXPECT_EQ(sums.size(), 600u);
}

TEST_F(ChecksumFileTest, IsTheHashOfTheHashesOfItsBlocks) {
  const std::vector<std::byte> data = RandomBytes(2 * kChecksumBlock + 12345);
  Write(data);
  std::vector<Checksum> sums;
  for (size_t begin = 0; begin < data.size(); begin += kChecksumBlock) {
    const size_t end = std::min<size_t>(data.size(), begin + kChecksumBlock);
    sums.push_back(ReferenceHash(
        {data.begin() + static_cast<ptrdiff_t>(begin), data.begin() + static_cast<ptrdiff_t>(end)},
        begin / kChecksumBlock));
  }
  std::vector<std::byte> bytes(sums.size() * sizeof(Checksum));
  std::memcpy(bytes.data(), sums.data(), bytes.size());
  const Checksum expected = ReferenceHash(bytes, data.size());
  for (const int num_threads : {1, 2, 7}) EXPECT_EQ(Sum(data.size(), num_threads), expected);
}

TEST_F(ChecksumFileTest, DoesNotDependOnThePageCache) {
  const std::vector<std::byte> data = RandomBytes(kChecksumBlock + 1);
  Write(data);
  const Checksum warm = Sum(data.size(), 2);
  File file;
  ASSERT_EQ(file.OpenForReading(Path()), "");
  ASSERT_EQ(file.Sync(), "");
  file.DropCache();
  EXPECT_EQ(Sum(data.size(), 2), warm);
}

TEST_F(ChecksumFileTest, AppliesToARange) {
  const std::vector<std::byte> data = RandomBytes(3 * kChecksumBlock);
  Write(data);
  const Checksum range = Sum(kChecksumBlock, 2, kChecksumBlock);
  Write({data.begin() + kChecksumBlock, data.begin() + 2 * kChecksumBlock});
  EXPECT_EQ(Sum(kChecksumBlock, 2), range);
}

TEST_F(ChecksumFileTest, ATruncatedFileIsAnError) {
  Write(RandomBytes(100));
  File file;
  ASSERT_EQ(file.OpenForReading(Path()), "");
  ThreadPool threads(2);
  Checksum sum;
  EXPECT_EQ(ChecksumFile(file, 0, 101, threads, &sum), "file ends at byte 100");
}

TEST_F(ChecksumFileTest, AMappedFileIsLocked) {
  Write(RandomBytes(100));
  std::string error;
  std::shared_ptr<const MappedWeights> mapping = MappedWeights::Open(Path(), 100, &error);
  ASSERT_NE(mapping, nullptr) << error;
  File file;
  ASSERT_EQ(file.OpenForReading(Path()), "");
  EXPECT_EQ(flock(file.descriptor(), LOCK_EX | LOCK_NB), -1);
  mapping.reset();
  EXPECT_EQ(flock(file.descriptor(), LOCK_EX | LOCK_NB), 0);
}

}  // namespace
}  // namespace aiomlc
