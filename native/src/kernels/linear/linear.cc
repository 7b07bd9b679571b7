#include "kernels/linear/linear.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/linear/amx_support.h"
#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/format/pack.h"
#include "kernels/linear/format/panel.h"
#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/row_layout.h"
#include "platform/aligned_buffer.h"
#include "platform/isa.h"

namespace aiomlc {

namespace {

// Waking a thread costs more than this many multiplications.
constexpr int64_t kParallelWork = 1 << 15;
// The first tile of a block is a multiple of this: of the tiles that kernels compute at a time.
constexpr int64_t kTileBlock = 4;
// The same with many rows, whose kernels may compute 2, 3 or 4 tiles at a time, if at least
// kBalancedTasks blocks of such tiles are left for each thread.
constexpr int64_t kSharedTileBlock = 12;
constexpr int64_t kBalancedTasks = 4;

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDivide(value, unit) * unit; }

thread_local AlignedBuffer scratch;         // Activations for the tasks of all threads.
thread_local AlignedBuffer kernel_scratch;  // Of one task.
thread_local AlignedBuffer unpacked_scratch;

#if defined(__x86_64__) || defined(__aarch64__)
LinearKernels With(LinearKernels kernels, void (*q4)(const LinearBlock&),
                   void (*grouped)(const LinearBlock&)) {
  kernels.q4 = q4;
  kernels.grouped = grouped;
  return kernels;
}
#endif

#if defined(__x86_64__)
LinearKernels KernelsOfAvx2() {
  return With(kLinearAvx2, IsIntel() ? Q4StreamsAvx2 : kLinearAvx2.q4, kLinearAvx2.grouped);
}

LinearKernels KernelsOfAvxVnni() {
  return With(kLinearAvx2, IsIntel() ? kQ4StreamsAvxVnni : kQ4AvxVnni, kGroupedAvxVnni);
}

LinearKernels KernelsOfAvx512() {
  LinearKernels kernels = kLinearAvx512;
  if (IsIntel()) kernels = With(kernels, Q4StreamsAvx512, GroupedStreamsAvx512);
  if (HasAvx512BF16() && kBF16Avx512BF16 != nullptr) kernels.bf16 = kBF16Avx512BF16;
  return kernels;
}

ChannelKernels ChannelKernelsOfAvx512() {
  ChannelKernels kernels = kChannelAvx512;
  if (IsIntel()) kernels.multiply = ChannelStreamsAvx512;
  return kernels;
}

LinearKernels KernelsOfAmx() {
  LinearKernels kernels = KernelsOfAvx512();
  const AmxTrial& trial = AmxTrialResult();
  if (trial.q4) kernels.q4 = kQ4Amx;
  if (trial.grouped) {
    kernels.grouped = kGroupedAmx;
    kernels.quantize_signed = QuantizeSignedAvx512;
  }
  if (trial.bf16) kernels.bf16 = kBF16Amx;
  return kernels;
}

ChannelKernels ChannelKernelsOfAmx() {
  ChannelKernels kernels = ChannelKernelsOfAvx512();
  if (AmxTrialResult().channel) {
    kernels.multiply = kChannelAmx;
    kernels.multiply_progressive = kProgressiveAmx;
  }
  return kernels;
}
#endif

const std::byte* Quantize(ThreadPool& pool, const RowLayout& layout, const void* x,
                          FloatType x_type, int64_t rows, int64_t cols) {
  std::byte* result = scratch.Reserve(rows * layout.row_bytes());
  ForRanges(pool, rows, cols, [&](int64_t begin, int64_t end) {
    layout.Quantize(x, x_type, rows, begin, end, result);
  });
  return result;
}

const std::byte* FloatPanels(ThreadPool& pool, const void* x, FloatType x_type, int64_t rows,
                             int64_t cols) {
  // A panel of one row is the row.
  if (x_type == FloatType::kF32 && rows == 1) return static_cast<const std::byte*>(x);
  float* floats = reinterpret_cast<float*>(scratch.Reserve(rows * cols * sizeof(float)));
  const auto write_panel = ActiveLinearKernels().write_panel;
  const int64_t row_bytes = cols * static_cast<int64_t>(FloatBytes(x_type));
  ForRanges(pool, CeilDivide(rows, kPanelRows), kPanelRows * cols, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kPanelRows; row < std::min(rows, end * kPanelRows);
         row += kPanelRows) {
      write_panel({static_cast<const std::byte*>(x) + row * row_bytes, x_type, cols,
                   PanelOf(row, rows).height, cols, floats + row * cols});
    }
  });
  return reinterpret_cast<const std::byte*>(floats);
}

}  // namespace

const std::byte* Panels(ThreadPool& pool, const RowLayout& layout, const void* x, FloatType x_type,
                        int64_t rows) {
  if (layout.is_quantized()) return Quantize(pool, layout, x, x_type, rows, layout.cols());
  return FloatPanels(pool, x, x_type, rows, layout.cols());
}

namespace {

/*! \return The active kernel of a format. */
void (*KernelOf(MatrixFormat format))(const LinearBlock&) {
  const LinearKernels& kernels = ActiveLinearKernels();
  switch (format.family) {
    case WeightFormat::kF32:
      return kernels.f32;
    case WeightFormat::kF16:
      return kernels.f16;
    case WeightFormat::kBF16:
      return kernels.bf16;
    case WeightFormat::kQ4:
      return kernels.q4;
    case WeightFormat::kChannel:
    case WeightFormat::kRotated:
      return ActiveChannelKernels().multiply;
    case WeightFormat::kProgressive:
      return ActiveChannelKernels().multiply_progressive;
    case WeightFormat::kGrouped:
      break;
  }
  return kernels.grouped;
}

/*!
 * \return The first tile of each block, followed by the end of the last block.
 *
 * Each block takes 1 / num_threads of the remaining tiles (guided scheduling): threads first read
 * long contiguous ranges of weights, and small blocks at the end balance the load. Valid until the
 * next call on this thread.
 * \param unit The bounds are multiples of this.
 */
std::span<const int64_t> TileBounds(int64_t tiles, int num_threads, int64_t unit) {
  thread_local std::vector<int64_t> bounds;
  bounds.assign(1, 0);
  while (bounds.back() < tiles) {
    const int64_t size = CeilDivide(tiles - bounds.back(), num_threads);
    bounds.push_back(std::min(tiles, bounds.back() + RoundUp(size, unit)));
  }
  return bounds;
}

}  // namespace

const LinearKernels& ActiveLinearKernels() {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx: {
      static const LinearKernels amx = KernelsOfAmx();
      return amx;
    }
    case Isa::kAvx512: {
      static const LinearKernels avx512 = KernelsOfAvx512();
      return avx512;
    }
    case Isa::kAvxVnni: {
      static const LinearKernels avx_vnni = KernelsOfAvxVnni();
      return avx_vnni;
    }
    case Isa::kAvx2: {
      static const LinearKernels avx2 = KernelsOfAvx2();
      return avx2;
    }
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() == Isa::kI8mm) {
    static const LinearKernels i8mm = With(*kLinearNeon, kQ4I8mm, kGroupedI8mm);
    return i8mm;
  }
  if (ActiveIsa() == Isa::kNeon) return *kLinearNeon;
#endif
  return kLinearPortable;
}

ChannelKernels ActiveChannelKernels() {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
      return ChannelKernelsOfAmx();
    case Isa::kAvx512:
      return ChannelKernelsOfAvx512();
    case Isa::kAvxVnni:
      return kChannelAvxVnni;
    case Isa::kAvx2:
      return kChannelAvx2;
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() == Isa::kI8mm) return kChannelI8mm;
  if (ActiveIsa() == Isa::kNeon) return kChannelNeon;
#endif
  return kChannelPortable;
}

std::byte* KernelScratch(int64_t bytes) {
  return kernel_scratch.Reserve(static_cast<size_t>(bytes));
}

std::byte* UnpackedScratch(int64_t bytes) {
  return unpacked_scratch.Reserve(static_cast<size_t>(bytes));
}

void ForRanges(ThreadPool& pool, int64_t count, int64_t item_cost,
               FunctionRef<void(int64_t, int64_t)> work) {
  const int64_t max_parts = std::min<int64_t>(count, pool.num_threads() * 4);
  const int64_t parts = count * item_cost < kParallelWork ? 1 : max_parts;
  pool.Run(static_cast<int>(parts),
           [&](int part) { work(count * part / parts, count * (part + 1) / parts); });
}

void RunBlocks(ThreadPool& pool, FunctionRef<void(const LinearBlock&)> kernel,
               const LinearBlock& whole, int64_t num_rows, int64_t row_bytes) {
  const int64_t max_rows = std::max(kPanelRows, kRowBlockBytes / row_bytes);
  const int64_t block_rows =
      RoundUp(CeilDivide(num_rows, CeilDivide(num_rows, max_rows)), kPanelRows);
  const int64_t num_row_blocks = CeilDivide(num_rows, block_rows);
  const bool is_parallel = num_rows * whole.num_outputs * whole.num_inputs >= kParallelWork;
  const int num_threads = is_parallel ? pool.num_threads() : 1;
  const bool is_balanced =
      num_row_blocks * whole.tile_end >= kSharedTileBlock * kBalancedTasks * num_threads;
  const bool shares_tiles = num_rows > kPanelRows && is_balanced;
  const std::span<const int64_t> bounds =
      TileBounds(whole.tile_end, num_threads, shares_tiles ? kSharedTileBlock : kTileBlock);
  const auto num_tile_blocks = static_cast<int64_t>(bounds.size()) - 1;
  pool.Run(static_cast<int>(num_tile_blocks * num_row_blocks), [&](int task) {
    LinearBlock block = whole;
    block.tile_begin = bounds[task / num_row_blocks];
    block.tile_end = bounds[task / num_row_blocks + 1];
    block.row_begin = task % num_row_blocks * block_rows;
    block.row_end = std::min(num_rows, block.row_begin + block_rows);
    kernel(block);
  });
}

int64_t TilesOf(MatrixLayout layout) {
  int64_t tiles = 0;
  for (const MatrixSegment& segment : layout) tiles += CeilDivide(segment.rows, kTileRows);
  return tiles;
}

void MultiplySegments(MatrixLayout layout, const LinearBlock& block, int64_t first_output) {
  const auto* packed = static_cast<const std::byte*>(block.packed);
  int64_t first_tile = 0;
  int64_t first_row = 0;
  for (const auto& [format, rows] : layout) {
    const int64_t tiles = CeilDivide(rows, kTileRows);
    const int64_t begin = std::max(block.tile_begin - first_tile, int64_t{0});
    const int64_t end = std::min(block.tile_end - first_tile, tiles);
    if (begin < end) {
      const int64_t skipped = begin * kTileRows;
      const int64_t column = first_row + skipped - first_output;
      LinearBlock part = block;
      part.packed = packed + PackedMatrixBytes(format, skipped, block.num_inputs);
      if (format.family == WeightFormat::kGrouped) part.tile = GroupedTileOf(format);
      part.num_outputs = rows - skipped;
      part.tile_begin = 0;
      part.tile_end = end - begin;
      if (block.bias != nullptr) part.bias = block.bias + column;
      part.out = static_cast<std::byte*>(block.out) + column * FloatBytes(block.out_type);
      KernelOf(format)(part);
    }
    packed += PackedMatrixBytes(format, rows, block.num_inputs);
    first_tile += tiles;
    first_row += rows;
  }
}

void Linear(ThreadPool& pool, MatrixLayout layout, const void* packed, int64_t num_inputs,
            const void* x, FloatType x_type, int64_t num_rows, const float* bias, void* out,
            FloatType out_type) {
  if (num_rows <= 0) return;
  LinearBlock whole = {};
  whole.packed = packed;
  whole.bias = bias;
  whole.out = out;
  whole.out_stride = RowsOf(layout);
  whole.out_type = out_type;
  while (!layout.empty()) {
    size_t count = 1;
    while (count < layout.size() && HasOneRowForm(layout.first(count + 1))) ++count;
    const MatrixLayout run = layout.first(count);
    const RowLayout rows(RowFormOf(run), num_inputs);
    rows.SetActivations(Panels(pool, rows, x, x_type, num_rows), whole);
    whole.tile_end = TilesOf(run);
    whole.num_outputs = RowsOf(run);
    RunBlocks(
        pool, [run](const LinearBlock& block) { MultiplySegments(run, block); }, whole, num_rows,
        rows.row_bytes());
    whole.packed = static_cast<const std::byte*>(whole.packed) + PackedMatrixBytes(run, num_inputs);
    if (whole.bias != nullptr) whole.bias += whole.num_outputs;
    whole.out = static_cast<std::byte*>(whole.out) + whole.num_outputs * FloatBytes(out_type);
    layout = layout.subspan(count);
  }
}

void Linear(ThreadPool& pool, MatrixFormat format, const void* packed, int64_t num_outputs,
            int64_t num_inputs, const void* x, FloatType x_type, int64_t num_rows,
            const float* bias, void* out, FloatType out_type) {
  const MatrixSegment segment{format, num_outputs};
  Linear(pool, {&segment, 1}, packed, num_inputs, x, x_type, num_rows, bias, out, out_type);
}

void EmbedRows(ThreadPool& pool, MatrixLayout layout, const void* packed, int64_t hidden,
               const int32_t* ids, int64_t n, float* out) {
  const int64_t vocab = RowsOf(layout);
  for (int64_t i = 0; i < n; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      throw std::out_of_range("token ids must be in [0, " + std::to_string(vocab) + "), got " +
                              std::to_string(ids[i]));
    }
  }
  ForRanges(pool, n, hidden, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t row = ids[i];
      const auto* table = static_cast<const std::byte*>(packed);
      const MatrixSegment* segment = layout.data();
      for (; row >= segment->rows; row -= segment->rows, ++segment) {
        table += PackedMatrixBytes(segment->format, segment->rows, hidden);
      }
      EmbedRow(segment->format, table, hidden, row, out + i * hidden);
    }
  });
}

void EmbedRows(ThreadPool& pool, MatrixFormat format, const void* packed, int64_t vocab,
               int64_t hidden, const int32_t* ids, int64_t n, float* out) {
  const MatrixSegment segment{format, vocab};
  EmbedRows(pool, {&segment, 1}, packed, hidden, ids, n, out);
}

}  // namespace aiomlc
