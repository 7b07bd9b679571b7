#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "weights/file.h"
#include "weights/source_rows.h"
#include "weights/weights.h"

namespace aiomlc {

namespace {

// Target elements per block: small enough for load balancing, cancellation and the CPU caches.
constexpr int64_t kBlockElements = int64_t{1} << 16;

/*! \brief Rows [begin, end) of one parameter, the unit of work of a thread. */
struct Block {
  int param;
  int64_t begin;
  int64_t end;
};

std::vector<Block> SplitIntoBlocks(const std::vector<ParamPlan>& params) {
  std::vector<Block> blocks;
  for (size_t index = 0; index < params.size(); ++index) {
    const ParamPlan& param = params[index];
    const int64_t tiles = std::max<int64_t>(1, kBlockElements / (kTileRows * param.cols));
    for (int64_t begin = 0; begin < param.rows; begin += tiles * kTileRows) {
      blocks.push_back(
          {static_cast<int>(index), begin, std::min(param.rows, begin + tiles * kTileRows)});
    }
  }
  return blocks;
}

uint64_t BlockSourceBytes(const ParamPlan& param, const Block& block) {
  uint64_t bytes = 0;
  int64_t slice_begin = 0;
  for (const SourceSlice& slice : param.sources) {
    const int64_t rows =
        std::min(block.end, slice_begin + slice.rows) - std::max(block.begin, slice_begin);
    if (rows > 0) bytes += static_cast<uint64_t>(rows) * SourceRowBytes(slice.type, param.cols);
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
    if (!param.is_matrix) return ConvertVector(param, block);
    const int64_t rows = block.end - block.begin;
    packed_.resize(PackedMatrixBytes(param.format, rows, param.cols));
    // A block starts at a tile boundary, so its packed bytes equal those in the whole matrix.
    if (param.sources.front().type == SourceType::kQ4) {
      if (!reader_.ReadQ4(param, block.begin, block.end)) return Fail(reader_.error());
      PackMatrixQ4(reader_.q_weight(), reader_.q_scale(), rows, param.cols, 0, rows,
                   packed_.data());
    } else {
      if (!reader_.ReadFloats(param, block.begin, block.end)) return Fail(reader_.error());
      PackMatrixF32(param.format, reader_.floats(), rows, param.cols, 0, rows, packed_.data());
    }
    return Write(param.destination + PackedMatrixBytes(param.format, block.begin, param.cols),
                 packed_.data(), packed_.size());
  }

  const ConversionError& error() const { return error_; }

 private:
  bool ConvertVector(const ParamPlan& param, const Block& block) {
    if (!reader_.ReadFloats(param, block.begin, block.end)) return Fail(reader_.error());
    const float* floats = reader_.floats();
    const int64_t count = (block.end - block.begin) * param.cols;
    if (param.weight_offset != 0.0f) {
      offset_floats_.resize(static_cast<size_t>(count));
      std::transform(floats, floats + count, offset_floats_.begin(),
                     [&](float value) { return value + param.weight_offset; });
      floats = offset_floats_.data();
    }
    const auto first = static_cast<uint64_t>(block.begin * param.cols);
    return Write(param.destination + first * sizeof(float), floats,
                 static_cast<uint64_t>(count) * sizeof(float));
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
  std::vector<float> offset_floats_;
  ConversionError error_;
};

}  // namespace

uint64_t ParamBytes(const ParamPlan& param) {
  if (param.is_matrix) return PackedMatrixBytes(param.format, param.rows, param.cols);
  return static_cast<uint64_t>(param.rows * param.cols) * sizeof(float);
}

Conversion::Conversion(ConversionPlan plan) : plan_(std::move(plan)) {
  for (const ParamPlan& param : plan_.params) {
    total_bytes_ += BlockSourceBytes(param, {0, 0, param.rows});
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
        return fail({worker.error().message, worker.error().path, block.param});
      }
      read_bytes_.fetch_add(BlockSourceBytes(param, block), std::memory_order_relaxed);
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
