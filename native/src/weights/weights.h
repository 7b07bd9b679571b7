/*!
 * \file weights/weights.h
 * \brief Pack the weights of a model directory into one file, and map that file into memory.
 *
 * Sources are read with `pread`, not mapped: a file that shrinks or a disk that fails while we read
 * is then an error with a text, and not a SIGBUS. The packed file is written the same way.
 */
#ifndef AIOMLC_WEIGHTS_WEIGHTS_H_
#define AIOMLC_WEIGHTS_WEIGHTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/linear/linear.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief How the elements of a source tensor are stored. */
enum class SourceType { kF32, kF16, kBF16, kQ4 };

/*! \brief Consecutive rows of a parameter as they lie in a source file. */
struct SourceSlice {
  int file = 0;        /*!< Index into `ConversionPlan::files`. */
  uint64_t offset = 0; /*!< Byte of the first element; for kQ4 of `q_weight`, uint32[rows, 4G]. */
  int64_t rows = 0;
  SourceType type = SourceType::kF32;
  int scale_file = 0;        /*!< kQ4 only: where `q_scale`, float16[rows, G], lies. */
  uint64_t scale_offset = 0; /*!< kQ4 only. */
};

/*! \brief One parameter of the packed file. */
struct ParamPlan {
  bool is_matrix = false; /*!< A matrix is packed; anything else is stored as float32. */
  WeightFormat format = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t cols = 1;   /*!< A vector has one column. */
  float added = 0.0f; /*!< To every element of a vector, which its sources leave out. */
  uint64_t destination = 0;
  std::vector<SourceSlice> sources; /*!< Concatenated on the row axis; kQ4 sources only for kQ4. */
};

/*! \brief Everything a conversion needs to know. Built and checked by the caller. */
struct ConversionPlan {
  std::vector<std::string> files;
  std::vector<ParamPlan> params;
  uint64_t bytes = 0; /*!< Size of the packed file. */
};

/*! \brief Why a conversion failed. */
struct ConversionError {
  std::string message; /*!< Lower case, with the system's own text. */
  std::string path;    /*!< The file that could not be read or written. */
  int param = -1;      /*!< Index of the parameter, or -1. */
};

/*! \brief How a conversion ended. */
enum class ConversionOutcome { kDone, kCancelled, kFailed };

/*! \return Bytes of a parameter in the packed file. */
uint64_t ParamBytes(const ParamPlan& param);

/*!
 * \brief One run of a plan: reads, quantises and packs on several threads.
 *
 * `Run` blocks; the other methods may be called from any thread meanwhile and never block.
 */
class Conversion {
 public:
  explicit Conversion(ConversionPlan plan);

  /*!
   * \brief Write the packed parameters to `path`, which is created or truncated, and sync them.
   *
   * Unless the outcome is kDone the file is removed again.
   */
  ConversionOutcome Run(const std::string& path, ThreadPool& threads);

  /*! \brief End `Run` at the next block of rows. Afterwards a new `Run` is cancelled at once. */
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  /*! \return Source bytes read so far. */
  uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }

  /*! \return Source bytes the whole plan reads. */
  uint64_t total_bytes() const { return total_bytes_; }

  /*! \return What went wrong, after an outcome of kFailed. */
  const ConversionError& error() const { return error_; }

 private:
  ConversionPlan plan_;
  uint64_t total_bytes_ = 0;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> read_bytes_{0};
  ConversionError error_;
};

/*! \brief A packed file in memory, read-only, for as long as this object lives. */
class MappedWeights {
 public:
  /*!
   * \brief Map a file of at least `bytes` bytes.
   * \param error Receives the reason when null is returned.
   */
  static std::shared_ptr<const MappedWeights> Open(const std::string& path, uint64_t bytes,
                                                   std::string* error);
  ~MappedWeights();
  MappedWeights(const MappedWeights&) = delete;
  MappedWeights& operator=(const MappedWeights&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  MappedWeights(const std::byte* data, uint64_t size) : data_(data), size_(size) {}

  const std::byte* data_;
  uint64_t size_;
};

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_WEIGHTS_H_
