#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "weights/file.h"
#include "weights/source_rows.h"
#include "weights/weights.h"

namespace aiomlc {

namespace {

// Target elements per block: small enough for load balancing, cancellation and the CPU caches.
constexpr int64_t kBlockElements = int64_t{1} << 16;
// Target bytes per block of a matrix that is stored by inputs: its rows are read in short pieces,
// each of which has only a part of the outputs.
constexpr int64_t kTransposedBlockBytes = int64_t{4} << 20;

/*! \brief Rows [begin, end) of one segment of a parameter, the unit of work of a thread. */
struct Block {
  int param;
  MatrixFormat format;
  int64_t begin;
  int64_t end;
  uint64_t destination; /*!< Byte offset in the packed file. */
};

/*! \return The matrix that a row is read from. */
const SourceMatrix& MatrixOf(const ParamPlan& param, int64_t row) {
  auto slice = param.slices.begin();
  for (; row >= slice->rows; ++slice) row -= slice->rows;
  return param.matrices[static_cast<size_t>(slice->matrix)];
}

/*! \return Whole tiles of about kBlockElements elements, in rows. */
int64_t BlockRows(const ParamPlan& param) {
  return std::max<int64_t>(1, kBlockElements / (kTileRows * param.cols)) * kTileRows;
}

/*! \return The rows that are read at once. */
int64_t ReadRows(const ParamPlan& param) {
  const bool is_transposed =
      std::any_of(param.matrices.begin(), param.matrices.end(),
                  [](const SourceMatrix& matrix) { return matrix.is_transposed(); });
  const int64_t rows = BlockRows(param);
  if (!is_transposed) return rows;
  const auto bytes = std::max<int64_t>(
      1, static_cast<int64_t>(SourceRowBytes(param.matrices[0], param.MatrixCols())));
  return std::max(rows, kTransposedBlockBytes / bytes / kTileRows * kTileRows);
}

/*! \return The bytes of the first `rows` rows of a segment in the packed file. */
uint64_t RowsBytes(const ParamPlan& param, MatrixFormat format, int64_t rows) {
  if (param.kind == ParamKind::kMatrix) return PackedMatrixBytes(format, rows, param.cols);
  if (param.kind == ParamKind::kRows) return static_cast<uint64_t>(rows) * Q4RowBytes(param.cols);
  return static_cast<uint64_t>(rows * param.cols) * sizeof(float);
}

void SplitSegment(const ParamPlan& param, int index, const MatrixSegment& segment, int64_t first,
                  uint64_t destination, std::vector<Block>* blocks) {
  const int64_t step = ReadRows(param);
  for (int64_t begin = 0; begin < segment.rows; begin += step) {
    const int64_t end = std::min(segment.rows, begin + step);
    const uint64_t offset = RowsBytes(param, segment.format, begin);
    blocks->push_back({index, segment.format, first + begin, first + end, destination + offset});
  }
}

std::vector<Block> SplitIntoBlocks(const std::vector<ParamPlan>& params) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParamPlan& param = params[i];
    const int index = static_cast<int>(i);
    if (param.kind != ParamKind::kMatrix) {
      const bool is_q4 = param.kind == ParamKind::kRows;
      const MatrixFormat format = is_q4 ? WeightFormat::kQ4 : WeightFormat::kF32;
      SplitSegment(param, index, {format, param.rows}, 0, param.destination, &blocks);
      continue;
    }
    int64_t first = 0;
    uint64_t destination = param.destination;
    for (const MatrixSegment& segment : param.layout) {
      SplitSegment(param, index, segment, first, destination, &blocks);
      first += segment.rows;
      destination += PackedMatrixBytes(segment.format, segment.rows, param.cols);
    }
  }
  return blocks;
}

uint64_t BlockSourceBytes(const ParamPlan& param, int64_t block_begin, int64_t block_end) {
  uint64_t bytes = 0;
  int64_t slice_begin = 0;
  for (const SourceSlice& slice : param.slices) {
    const int64_t rows =
        std::min(block_end, slice_begin + slice.rows) - std::max(block_begin, slice_begin);
    const SourceMatrix& matrix = param.matrices[static_cast<size_t>(slice.matrix)];
    if (rows > 0) bytes += static_cast<uint64_t>(rows) * SourceRowBytes(matrix, param.MatrixCols());
    slice_begin += slice.rows;
  }
  return bytes;
}

/*! \brief Reads, packs and writes blocks; holds the buffers of one thread. */
class Worker {
 public:
  Worker(const std::vector<File>* sources, const File* destination)
      : reader_(sources), destination_(destination) {}

  bool Convert(const ParamPlan& param, const Block& block) {
    if (param.kind == ParamKind::kOrder) return ConvertOrder(param, block);
    if (!reader_.Load(param, block.begin, block.end)) return Fail(reader_.error());
    if (param.kind == ParamKind::kVector) return ConvertVector(param, block);
    const int64_t step = BlockRows(param);
    for (int64_t begin = block.begin; begin < block.end; begin += step) {
      if (!ConvertRows(param, block, begin, std::min(block.end, begin + step))) return false;
    }
    return true;
  }

  const ConversionError& error() const { return error_; }

 private:
  bool ConvertRows(const ParamPlan& param, const Block& block, int64_t begin, int64_t end) {
    const MatrixFormat format = block.format;
    const int64_t rows = end - begin;
    packed_.resize(PackedMatrixBytes(format, rows, param.cols));
    // A block starts at a tile boundary, so its packed bytes equal those in the whole matrix.
    if (format.family == WeightFormat::kGrouped) {
      if (!reader_.DecodeGroups(param, format, begin, end)) return Fail(reader_.error());
      PackGrouped(format, reader_.groups().View(), packed_.data());
    } else if (format.family == WeightFormat::kChannel) {
      if (!reader_.DecodeGroups(param, format, begin, end)) return Fail(reader_.error());
      PackChannel(reader_.groups().View(), packed_.data());
    } else if (MatrixOf(param, begin).type == SourceType::kProgressive) {
      if (!reader_.DecodeProgressive(param, begin, end)) return Fail(reader_.error());
      PackProgressiveRows(reader_.stored_rows(), rows, param.cols, packed_.data());
    } else if (format.family == WeightFormat::kQ4 && !IsFloat(MatrixOf(param, begin).type)) {
      if (!reader_.DecodeGroups(param, MlcQ4(), begin, end)) return Fail(reader_.error());
      PackQ4(reader_.groups().View());
    } else {
      if (!reader_.DecodeFloats(param, format, begin, end)) return Fail(reader_.error());
      PackMatrixF32(format.family, reader_.floats(), rows, param.cols, 0, rows, packed_.data());
    }
    const uint64_t offset = block.destination + RowsBytes(param, format, begin - block.begin);
    if (param.kind == ParamKind::kRows) CopyRows(rows, param.cols);
    return Write(offset, packed_.data(), packed_.size());
  }

  /*! \brief Replace the tiles in `packed_` by rows. */
  void CopyRows(int64_t rows, int64_t cols) {
    const size_t row_bytes = Q4RowBytes(cols);
    rows_.resize(static_cast<size_t>(rows) * row_bytes);
    for (int64_t row = 0; row < rows; ++row) {
      auto* out = reinterpret_cast<uint8_t*>(rows_.data());
      CopyQ4Row(packed_.data(), cols, row, out + static_cast<size_t>(row) * row_bytes);
    }
    packed_.swap(rows_);
  }

  /*! \brief Pack rows that are in the grouped format with the numbers of q4. */
  void PackQ4(const GroupedRows& rows) {
    constexpr int64_t kPerWord = 8;
    const int64_t words = (rows.cols + kGroupSize - 1) / kGroupSize * kGroupSize / kPerWord;
    words_.assign(static_cast<size_t>(rows.rows * words), 0);
    for (int64_t row = 0; row < rows.rows; ++row) {
      const uint8_t* codes = rows.codes + row * rows.cols;
      uint32_t* out = words_.data() + row * words;
      for (int64_t k = 0; k < rows.cols; ++k) {
        out[k / kPerWord] |= static_cast<uint32_t>(codes[k]) << (4 * (k % kPerWord));
      }
    }
    PackMatrixQ4(words_.data(), static_cast<const uint16_t*>(rows.scales), rows.rows, rows.cols, 0,
                 rows.rows, packed_.data());
  }

  bool ConvertVector(const ParamPlan& param, const Block& block) {
    if (!reader_.DecodeFloats(param, block.format, block.begin, block.end)) {
      return Fail(reader_.error());
    }
    const float* floats = reader_.floats();
    const int64_t count = (block.end - block.begin) * param.cols;
    if (param.weight_offset != 0.0f) {
      offset_floats_.resize(static_cast<size_t>(count));
      std::transform(floats, floats + count, offset_floats_.begin(),
                     [&](float value) { return value + param.weight_offset; });
      floats = offset_floats_.data();
    }
    return Write(block.destination, floats, static_cast<uint64_t>(count) * sizeof(float));
  }

  bool ConvertOrder(const ParamPlan& param, const Block& block) {
    if (!reader_.ReadOrder(param)) return Fail(reader_.error());
    const std::vector<int32_t>& order = reader_.order();
    return Write(block.destination, order.data(), order.size() * sizeof(int32_t));
  }

  bool Write(uint64_t offset, const void* data, uint64_t bytes) {
    std::string reason = destination_->WriteAt(offset, data, bytes);
    return reason.empty() || Fail({"cannot write: " + reason, destination_->path(), -1});
  }

  bool Fail(ConversionError error) {
    error_ = std::move(error);
    return false;
  }

  SourceReader reader_;
  const File* destination_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> rows_;
  std::vector<uint32_t> words_;
  std::vector<float> offset_floats_;
  ConversionError error_;
};

}  // namespace

MatrixFormat MlcQ4() {
  MatrixFormat format = WeightFormat::kGrouped;
  format.bits = 4;
  format.group = kGroupSize;
  format.constant = kZeroPoint;
  return format;
}

uint64_t ParamBytes(const ParamPlan& param) {
  if (param.kind == ParamKind::kMatrix) return PackedMatrixBytes(param.layout, param.cols);
  return RowsBytes(param, WeightFormat::kF32, param.rows);
}

Conversion::Conversion(ConversionPlan plan) : plan_(std::move(plan)) {
  for (const ParamPlan& param : plan_.params) {
    total_bytes_ += BlockSourceBytes(param, 0, param.rows);
  }
}

ConversionOutcome Conversion::Run(const std::string& path, ThreadPool& threads) {
  std::mutex mutex;
  std::atomic<bool> failed{false};
  auto fail = [&](ConversionError error) {
    const std::lock_guard lock(mutex);
    if (!failed.exchange(true)) error_ = std::move(error);
  };

  std::vector<File> sources(plan_.files.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    std::string reason = sources[i].OpenForReading(plan_.files[i]);
    if (!reason.empty()) {
      fail({"cannot open: " + reason, plan_.files[i], -1});
      return ConversionOutcome::kFailed;
    }
  }
  File destination;
  std::string reason = destination.Create(path);
  if (!reason.empty()) {
    fail({"cannot create: " + reason, path, -1});
    return ConversionOutcome::kFailed;
  }
  reason = destination.Allocate(plan_.bytes);
  if (!reason.empty()) fail({"cannot write: " + reason, path, -1});

  const std::vector<Block> blocks = SplitIntoBlocks(plan_.params);
  std::atomic<size_t> next{0};
  auto stopped = [&] { return failed.load() || cancelled_.load(std::memory_order_relaxed); };
  threads.Run(threads.num_threads(), [&](int) {
    Worker worker(&sources, &destination);
    while (!stopped()) {
      const size_t index = next.fetch_add(1);
      if (index >= blocks.size()) return;
      const Block& block = blocks[index];
      const ParamPlan& param = plan_.params[static_cast<size_t>(block.param)];
      if (!worker.Convert(param, block)) {
        ConversionError error = worker.error();
        error.param = block.param;
        return fail(std::move(error));
      }
      read_bytes_.fetch_add(BlockSourceBytes(param, block.begin, block.end),
                            std::memory_order_relaxed);
    }
  });
  if (!stopped()) {
    reason = destination.Sync();
    if (!reason.empty()) fail({"cannot write: " + reason, path, -1});
    destination.DropCache();
  }
  if (!stopped()) return ConversionOutcome::kDone;
  unlink(path.c_str());
  return failed ? ConversionOutcome::kFailed : ConversionOutcome::kCancelled;
}

}  // namespace aiomlc
