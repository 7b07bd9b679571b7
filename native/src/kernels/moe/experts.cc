#include "kernels/moe/experts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/linear/format/panel.h"
#include "kernels/linear/gated_block.h"
#include "kernels/linear/linear_tasks.h"
#include "kernels/linear/row_layout.h"
#include "kernels/moe/expert_rows.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

namespace {

// Waking a thread costs more than this many multiplications.
constexpr int64_t kParallelWork = 1 << 15;
// Several tasks per thread balance experts with different numbers of rows.
constexpr int64_t kTasksPerThread = 4;
// The gate tiles of a task are a multiple of this: their outputs are whole groups of down's inputs.
constexpr int64_t kGateTiles = kGroupSize / kTileRows;

// Used by the calling thread.
thread_local ExpertRows expert_rows;
thread_local AlignedBuffer row_groups, row_panels, inner_panels, quantized_panels;
// Used by every thread that runs tasks.
thread_local AlignedBuffer task_floats;

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDivide(value, unit) * unit; }

float* ReserveFloats(int64_t count) {
  return reinterpret_cast<float*>(task_floats.Reserve(static_cast<size_t>(count) * sizeof(float)));
}

/*! \brief The state of one call to `MixtureOfExperts`. */
class Mixture {
 public:
  Mixture(ThreadPool& pool, const ExpertsCall& call)
      : pool_(pool),
        call_(call),
        outer_(call.gate_up_layout, call.size),
        inner_(call.down_layout, call.inner),
        columns_(inner_.Columns()),
        rows_(expert_rows) {}

  void Run() {
    rows_.Assign(pool_, call_);
    x_ = row_panels.Reserve(static_cast<size_t>(rows_.num_assignments() * outer_.row_bytes()));
    gated_ =
        inner_panels.Reserve(static_cast<size_t>(rows_.num_assignments() * columns_.row_bytes()));
    if (outer_.is_quantized()) {
      GatherQuantized();
    } else {
      GatherRows();
    }
    Gate();
    if (inner_.has_row_scales()) QuantizeGated();
    Down();
  }

 private:
  /*! \return The target number of tasks. \param work The number of multiplications. */
  int64_t TargetTasks(int64_t work) const {
    return work < kParallelWork ? 1 : pool_.num_threads() * kTasksPerThread;
  }

  /*! \brief Quantize each row once, and copy it to the panels of all its experts. */
  void GatherQuantized() {
    const int64_t row_bytes = outer_.row_bytes();
    std::byte* quantized = row_groups.Reserve(static_cast<size_t>(call_.rows * row_bytes));
    ForRanges(pool_, call_.rows, call_.size, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        outer_.WriteColumns(call_.x + row * call_.size, 1, 0, call_.size,
                            quantized + row * row_bytes);
      }
    });
    ForPanels([&](const ExpertPanel& panel) {
      std::byte* target = x_ + panel.begin * row_bytes;
      for (int64_t r = 0; r < panel.height; ++r) {
        outer_.CopyRow(quantized + rows_.row(panel.begin + r) * row_bytes, r, panel.height, target);
      }
    });
  }

  /*! \brief Copy the rows of float formats to the panels of their experts. */
  void GatherRows() {
    ForPanels([&](const ExpertPanel& panel) {
      float* rows = ReserveFloats(panel.height * call_.size);
      for (int64_t r = 0; r < panel.height; ++r) {
        std::copy_n(call_.x + rows_.row(panel.begin + r) * call_.size, call_.size,
                    rows + r * call_.size);
      }
      outer_.WriteColumns(rows, panel.height, 0, call_.size, x_ + panel.begin * outer_.row_bytes());
    });
  }

  void ForPanels(FunctionRef<void(const ExpertPanel&)> gather) {
    const std::vector<ExpertPanel>& panels = rows_.panels();
    ForRanges(pool_, static_cast<int64_t>(panels.size()), kPanelRows * call_.size,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) gather(panels[i]);
              });
  }

  /*! \return A block of an expert's matrix and all rows of the expert. */
  LinearBlock BlockOf(int64_t expert, const void* matrices, size_t matrix_bytes,
                      const RowLayout& layout, const std::byte* panels) const {
    LinearBlock block = {};
    block.packed = static_cast<const std::byte*>(matrices) + expert * matrix_bytes;
    block.row_end = rows_.count(expert);
    layout.SetActivations(panels + rows_.begin(expert) * layout.row_bytes(), block);
    return block;
  }

  /*! \brief Call `work` for whole panels of a block's rows that fit into the second-level cache. */
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

  /*!
   * \brief Compute the activation of gate(x) and up(x) of all assignments.
   *
   * Tasks split the tiles of each expert, so that all threads load weights even for one row.
   */
  void Gate() {
    const std::vector<int64_t>& experts = rows_.experts();
    const auto num_experts = static_cast<int64_t>(experts.size());
    const int64_t tiles = call_.inner / kTileRows;
    const int64_t tasks = TargetTasks(rows_.num_assignments() * call_.size * 2 * call_.inner);
    const int64_t task_tiles =
        RoundUp(CeilDivide(tiles, CeilDivide(tasks, num_experts)), kGateTiles);
    const int64_t parts = CeilDivide(tiles, task_tiles);
    const size_t matrix_bytes = PackedMatrixBytes(call_.gate_up_layout, call_.size);
    pool_.Run(static_cast<int>(num_experts * parts), [&](int task) {
      const int64_t expert = experts[task / parts];
      LinearBlock expert_block = BlockOf(expert, call_.gate_up, matrix_bytes, outer_, x_);
      expert_block.num_outputs = call_.inner;
      if (call_.gate_up_bias != nullptr) {
        expert_block.bias = call_.gate_up_bias + expert * 2 * call_.inner;
      }
      expert_block.tile_begin = task % parts * task_tiles;
      expert_block.tile_end = std::min(tiles, expert_block.tile_begin + task_tiles);
      std::byte* result = gated_ + rows_.begin(expert) * columns_.row_bytes();
      ForRowBlocks(expert_block, outer_, [&](const LinearBlock& block) {
        GateBlock(call_.gate_up_layout, call_.activation, block, columns_, result);
      });
    });
  }

  /*! \brief Quantize the gated rows of all assignments, once they are complete. */
  void QuantizeGated() {
    std::byte* quantized =
        quantized_panels.Reserve(static_cast<size_t>(rows_.num_assignments() * inner_.row_bytes()));
    ForPanels([&](const ExpertPanel& panel) {
      inner_.Quantize(gated_ + panel.begin * columns_.row_bytes(), FloatType::kF32, panel.height, 0,
                      panel.height, quantized + panel.begin * inner_.row_bytes());
    });
    gated_ = quantized;
  }

  /*!
   * \brief Compute the output from the gated rows.
   *
   * A task computes some columns of all rows, so that one thread adds the experts of a row in
   * order.
   */
  void Down() {
    const int64_t tiles = call_.size / kTileRows;
    const int64_t tasks = TargetTasks(rows_.num_assignments() * call_.size * call_.inner);
    const int64_t task_tiles = CeilDivide(tiles, tasks);
    pool_.Run(static_cast<int>(CeilDivide(tiles, task_tiles)), [&](int task) {
      const int64_t begin = task * task_tiles;
      DownTiles(begin, std::min(tiles, begin + task_tiles));
    });
  }

  void DownTiles(int64_t tile_begin, int64_t tile_end) {
    const int64_t first = tile_begin * kTileRows;
    const int64_t outputs = (tile_end - tile_begin) * kTileRows;
    for (int64_t row = 0; row < call_.rows; ++row) InitializeRow(row, first, outputs);
    const size_t matrix_bytes = PackedMatrixBytes(call_.down_layout, call_.inner);
    for (const int64_t expert : rows_.experts()) {
      LinearBlock expert_block = BlockOf(expert, call_.down, matrix_bytes, inner_, gated_);
      if (call_.down_bias != nullptr) expert_block.bias = call_.down_bias + expert * call_.size;
      ForRowBlocks(expert_block, inner_, [&](const LinearBlock& block) {
        const int64_t rows = block.row_end - block.row_begin;
        float* result = ReserveFloats(rows * outputs);
        MultiplyTiles(call_.down_layout, block, tile_begin, outputs, result);
        AddRows(rows_.begin(expert) + block.row_begin, rows, result, first, outputs);
      });
    }
  }

  /*! \brief Set some columns of an output row to the shared experts' output, or to 0. */
  void InitializeRow(int64_t row, int64_t first, int64_t outputs) {
    float* target = call_.out + row * call_.size + first;
    if (call_.shared == nullptr) {
      std::fill_n(target, outputs, 0.0f);
      return;
    }
    const float* source = call_.shared + row * call_.size + first;
    const float weight = 1.0f / (1.0f + std::exp(-call_.shared_gate[row]));
    for (int64_t i = 0; i < outputs; ++i) target[i] = weight * source[i];
  }

  /*! \brief Add the weighted results of some assignments to some columns of the output. */
  void AddRows(int64_t assignment, int64_t count, const float* results, int64_t first,
               int64_t outputs) {
    for (int64_t r = 0; r < count; ++r, results += outputs) {
      float* target = call_.out + rows_.row(assignment + r) * call_.size + first;
      const float weight = rows_.weight(assignment + r);
      for (int64_t i = 0; i < outputs; ++i) target[i] += weight * results[i];
    }
  }

  ThreadPool& pool_;
  const ExpertsCall& call_;
  RowLayout outer_, inner_;
  RowLayout columns_;  // Of what `Gate` writes.
  ExpertRows& rows_;
  std::byte* x_ = nullptr;      // Panels of the inputs of all assignments.
  std::byte* gated_ = nullptr;  // Panels of the gated rows of all assignments.
};

}  // namespace

void MixtureOfExperts(ThreadPool& pool, const ExpertsCall& call) {
  if (call.rows > 0) Mixture(pool, call).Run();
}

}  // namespace aiomlc
