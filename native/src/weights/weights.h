/*!
 * \file weights/weights.h
 * \brief Pack the weights of a model directory into one file, and map that file into memory.
 *
 * Sources are read with `pread` instead of being mapped: a file that shrinks or a disk error during
 * the conversion is then reported as an error and not as a SIGBUS. The packed file is written with
 * `pwrite` for the same reason.
 */
#ifndef AIOMLC_WEIGHTS_WEIGHTS_H_
#define AIOMLC_WEIGHTS_WEIGHTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/format/matrix_format.h"
#include "platform/thread_pool.h"
#include "weights/file.h"
#include "weights/source_matrix.h"

namespace aiomlc {

/*! \brief The kind of a parameter in the packed file. */
enum class ParamKind {
  kMatrix, /*!< A packed matrix. */
  kRows,   /*!< A matrix in `WeightFormat::kQ4`, row after row: see `CopyQ4Row`. */
  kVector, /*!< Its elements as float32. */
  kOrder   /*!< int32[cols]: the inputs in the order of their groups. */
};

/*! \brief One parameter of the packed file. */
struct ParamPlan {
  ParamKind kind = ParamKind::kMatrix;
  std::vector<MatrixSegment> layout; /*!< kMatrix only. Its rows are those of the parameter. */
  int64_t rows = 0;
  int64_t cols = 1;                   /*!< A vector has one column. */
  float weight_offset = 0.0f;         /*!< Added to every element of a vector (RMSNorm offset). */
  uint64_t destination = 0;           /*!< Byte offset in the packed file. */
  std::vector<SourceMatrix> matrices; /*!< Where the rows are read from. */
  /*!
   * \brief The rows of the parameter, in their order. A segment in a grouped format has rows from
   * matrices of the same format.
   */
  std::vector<SourceSlice> slices;
  /*! \brief The columns of the matrices, if the parameter has only `cols` of them; otherwise 0. */
  int64_t source_cols = 0;
  int64_t first_col = 0; /*!< The first of these; a multiple of the format's group. */

  /*! \return The columns of the matrices. */
  int64_t MatrixCols() const { return source_cols == 0 ? cols : source_cols; }
};

/*! \brief The plan of a conversion, validated by the caller. */
struct ConversionPlan {
  std::vector<std::string> files;
  std::vector<ParamPlan> params;
  uint64_t bytes = 0; /*!< Size of the packed file. */
};

/*! \brief Why a conversion failed. */
struct ConversionError {
  std::string message; /*!< Lower case, with the system's error message. */
  std::string path;    /*!< The file that could not be read or written. */
  int param = -1;      /*!< Index of the parameter, or -1. */
  int64_t offset = -1; /*!< Where the tensor at fault begins in the file, or -1. */
};

/*! \brief The outcome of a conversion. */
enum class ConversionOutcome { kDone, kCancelled, kFailed };

/*! \return The grouped format with the numbers of WeightFormat::kQ4. */
MatrixFormat MlcQ4();

/*! \return The bytes of a parameter in the packed file. */
uint64_t ParamBytes(const ParamPlan& param);

/*!
 * \brief Executes a conversion plan: reads, quantizes and packs parameters on several threads.
 *
 * `Run` blocks. The other methods never block, and may be called from any thread during `Run`.
 */
class Conversion {
 public:
  explicit Conversion(ConversionPlan plan);

  /*!
   * \brief Write the packed parameters to `path`, which is created or truncated, and sync the file.
   *
   * The file is removed unless the outcome is kDone.
   */
  ConversionOutcome Run(const std::string& path, ThreadPool& threads);

  /*! \brief Cancel `Run` at the next block of rows. A later `Run` is cancelled immediately. */
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  /*! \brief Source bytes read so far. */
  uint64_t read_bytes() const { return read_bytes_.load(std::memory_order_relaxed); }

  /*! \brief Source bytes of the whole plan. */
  uint64_t total_bytes() const { return total_bytes_; }

  /*! \brief The error, after an outcome of kFailed. */
  const ConversionError& error() const { return error_; }

 private:
  ConversionPlan plan_;
  uint64_t total_bytes_ = 0;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> read_bytes_{0};
  ConversionError error_;
};

/*!
 * \brief A read-only memory mapping of a packed file.
 *
 * The file is locked for shared use as long as it is mapped, so that the cache does not remove it.
 */
class MappedWeights {
 public:
  /*!
   * \brief Map the first `bytes` bytes of a file.
   * \param error Receives the error message if null is returned.
   */
  static std::shared_ptr<const MappedWeights> Open(const std::string& path, uint64_t bytes,
                                                   std::string* error);
  ~MappedWeights();
  MappedWeights(const MappedWeights&) = delete;
  MappedWeights& operator=(const MappedWeights&) = delete;

  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  MappedWeights(File file, const std::byte* data, uint64_t size)
      : file_(std::move(file)), data_(data), size_(size) {}

  File file_; /*!< Holds the lock. */
  const std::byte* data_;
  uint64_t size_;
};

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_WEIGHTS_H_
