#include "kernels/moe/experts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/linear/gated_block.h"
#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/panel.h"
#include "kernels/linear/row_layout.h"
#include "kernels/moe/expert_rows.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

namespace {

// Work below this many multiplications is not worth waking a thread for.
constexpr int64_t kParallelWork = 1 << 15;
// So many tasks for each thread that experts of different numbers of rows end together.
constexpr int64_t kTasksPerThread = 4;
// Tiles of gate in one task are a multiple of this, so that no group of inputs is divided.
constexpr int64_t kGateTiles = kGroupSize / kTileRows;

thread_local ExpertRows expert_rows;  // Of the thread that calls.
thread_local AlignedBuffer row_groups, row_panels, inner_panels;
thread_local AlignedBuffer task_floats;  // Of a thread that works.

int64_t CeilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }
int64_t RoundUp(int64_t value, int64_t to) { return CeilDivide(value, to) * to; }

float* ReserveFloats(int64_t count) {
  return reinterpret_cast<float*>(task_floats.Reserve(static_cast<size_t>(count) * sizeof(float)));
}

/*! \brief One call while it runs. */
class Mixture {
 public:
  Mixture(ThreadPool& pool, const ExpertsCall& call)
      : pool_(pool),
        call_(call),
        outer_(call.format, call.size),
        inner_(call.format, call.inner),
        rows_(expert_rows) {}

  void Run() {
    rows_.Assign(pool_, call_);
    x_ = row_panels.Reserve(static_cast<size_t>(rows_.num_places() * outer_.row_bytes()));
    gated_ = inner_panels.Reserve(static_cast<size_t>(rows_.num_places() * inner_.row_bytes()));
    if (call_.format == WeightFormat::kQ4) {
      GatherGroups();
    } else {
      GatherRows();
    }
    Gate();
    Down();
  }

 private:
  /*! \brief How many tasks are wanted for so many places, inputs and outputs. */
  int64_t WantedTasks(int64_t work) const {
    return work < kParallelWork ? 1 : pool_.num_threads() * kTasksPerThread;
  }

  // Every row is rounded once, however many experts it has.
  void GatherGroups() {
    const int64_t groups = GroupsOf(call_.size);
    auto* rounded = reinterpret_cast<ActivationGroup*>(
        row_groups.Reserve(static_cast<size_t>(call_.rows * outer_.row_bytes())));
    const LinearKernels& kernels = ActiveLinearKernels();
    ForRanges(pool_, call_.rows, call_.size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        kernels.quantize({call_.x + row * call_.size, FloatType::kF32, 1, call_.size, groups, 0, 1,
                          rounded + row * groups});
      }
    });
    ForPanels([&](const ExpertPanel& panel) {
      auto* to = reinterpret_cast<ActivationGroup*>(x_) + panel.place * groups;
      for (int64_t r = 0; r < panel.height; ++r) {
        const ActivationGroup* from = rounded + rows_.row(panel.place + r) * groups;
        for (int64_t g = 0; g < groups; ++g) to[g * panel.height + r] = from[g];
      }
    });
  }

  void GatherRows() {
    ForPanels([&](const ExpertPanel& panel) {
      float* rows = ReserveFloats(panel.height * call_.size);
      for (int64_t r = 0; r < panel.height; ++r) {
        std::copy_n(call_.x + rows_.row(panel.place + r) * call_.size, call_.size,
                    rows + r * call_.size);
      }
      outer_.WriteColumns(rows, panel.height, 0, call_.size, x_ + panel.place * outer_.row_bytes());
    });
  }

  void ForPanels(FunctionRef<void(const ExpertPanel&)> gather) {
    const std::vector<ExpertPanel>& panels = rows_.panels();
    ForRanges(pool_, static_cast<int64_t>(panels.size()), kPanelRows * call_.size,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) gather(panels[i]);
              });
  }

  /*! \brief An expert's matrix and all of its rows. */
  LinearBlock BlockOf(int64_t expert, const void* matrices, size_t matrix_bytes,
                      const RowLayout& layout, const std::byte* panels) const {
    LinearBlock block = {};
    block.packed = static_cast<const std::byte*>(matrices) + expert * matrix_bytes;
    block.row_end = rows_.count(expert);
    layout.Read(panels + rows_.begin(expert) * layout.row_bytes(), block);
    return block;
  }

  /*! \brief Call `work` for parts of a block's rows that fit into a cache: whole panels. */
  static void ForRowBlocks(LinearBlock block, const RowLayout& layout,
                           FunctionRef<void(const LinearBlock&)> work) {
    const int64_t panels = kRowBlockBytes / (layout.row_bytes() * kPanelRows);
    const int64_t rows = std::max<int64_t>(1, panels) * kPanelRows;
    const int64_t end = block.row_end;
    for (; block.row_begin < end; block.row_begin += rows) {
      block.row_end = std::min(end, block.row_begin + rows);
      work(block);
    }
  }

  // Tasks are tiles of an expert: of a single row, all threads read weights.
  void Gate() {
    const std::vector<int64_t>& experts = rows_.experts();
    const auto num_experts = static_cast<int64_t>(experts.size());
    const int64_t tiles = call_.inner / kTileRows;
    const int64_t wanted = WantedTasks(rows_.num_places() * call_.size * 2 * call_.inner);
    const int64_t each = RoundUp(CeilDivide(tiles, CeilDivide(wanted, num_experts)), kGateTiles);
    const int64_t parts = CeilDivide(tiles, each);
    const size_t matrix_bytes = PackedMatrixBytes(call_.format, 2 * call_.inner, call_.size);
    pool_.Run(static_cast<int>(num_experts * parts), [&](int task) {
      const int64_t expert = experts[task / parts];
      LinearBlock whole = BlockOf(expert, call_.gate_up, matrix_bytes, outer_, x_);
      whole.rows_n = call_.inner;
      whole.tile_begin = task % parts * each;
      whole.tile_end = std::min(tiles, whole.tile_begin + each);
      std::byte* result = gated_ + rows_.begin(expert) * inner_.row_bytes();
      ForRowBlocks(whole, outer_, [&](const LinearBlock& block) {
        GateBlock(call_.format, Activation::kSilu, block, tiles, result);
      });
    });
  }

  // Tasks are columns of the output: the sums of its rows are then one thread's, in a fixed order.
  void Down() {
    const int64_t tiles = call_.size / kTileRows;
    const int64_t wanted = WantedTasks(rows_.num_places() * call_.size * call_.inner);
    const int64_t each = CeilDivide(tiles, wanted);
    pool_.Run(static_cast<int>(CeilDivide(tiles, each)), [&](int task) {
      const int64_t begin = task * each;
      DownTiles(begin, std::min(tiles, begin + each));
    });
  }

  void DownTiles(int64_t tile_begin, int64_t tile_end) {
    const int64_t first = tile_begin * kTileRows;
    const int64_t outputs = (tile_end - tile_begin) * kTileRows;
    for (int64_t row = 0; row < call_.rows; ++row) StartRow(row, first, outputs);
    const size_t matrix_bytes = PackedMatrixBytes(call_.format, call_.size, call_.inner);
    for (const int64_t expert : rows_.experts()) {
      const LinearBlock whole = BlockOf(expert, call_.down, matrix_bytes, inner_, gated_);
      ForRowBlocks(whole, inner_, [&](const LinearBlock& block) {
        const int64_t rows = block.row_end - block.row_begin;
        float* result = ReserveFloats(rows * outputs);
        MultiplyTiles(call_.format, block, tile_begin, outputs, result);
        AddRows(rows_.begin(expert) + block.row_begin, rows, result, first, outputs);
      });
    }
  }

  void StartRow(int64_t row, int64_t first, int64_t outputs) {
    float* to = call_.out + row * call_.size + first;
    if (call_.shared == nullptr) {
      std::fill_n(to, outputs, 0.0f);
      return;
    }
    const float* from = call_.shared + row * call_.size + first;
    const float weight = 1.0f / (1.0f + std::exp(-call_.shared_gate[row]));
    for (int64_t i = 0; i < outputs; ++i) to[i] = weight * from[i];
  }

  void AddRows(int64_t place, int64_t rows, const float* from, int64_t first, int64_t outputs) {
    for (int64_t r = 0; r < rows; ++r, from += outputs) {
      float* to = call_.out + rows_.row(place + r) * call_.size + first;
      const float weight = rows_.weight(place + r);
      for (int64_t i = 0; i < outputs; ++i) to[i] += weight * from[i];
    }
  }

  ThreadPool& pool_;
  const ExpertsCall& call_;
  RowLayout outer_, inner_;
  ExpertRows& rows_;
  std::byte* x_ = nullptr;      // Panels of all places.
  std::byte* gated_ = nullptr;  // The same of what comes from the inner layer.
};

}  // namespace

void MixExperts(ThreadPool& pool, const ExpertsCall& call) {
  if (call.rows > 0) Mixture(pool, call).Run();
}

}  // namespace aiomlc
