/*!
 * \file kernels/attention/attention_tasks.h
 * \brief The division of attention into tasks: tiles, or chunks of long tiles.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_TASKS_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_TASKS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/attention/attention_types.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {

using TileFunction = void (*)(const AttentionTile&, const TileWork&, const AttentionScratch&);

/*! \return The function of the active tier for pages of a type. */
TileFunction ActiveTileFunction(KvType stored);

/*! \return The calling thread's working memory, large enough for any tile of this head_dim. */
AttentionScratch ThreadScratch(int64_t head_dim);

/*!
 * \brief The tasks of one call. Their memory is reused by the next call.
 *
 * Most tiles are one task. The last tiles, or all if they are few, would keep the other threads
 * waiting, so each chunk of their contexts is a task; the thread that finishes the last chunk of a
 * tile merges its chunks.
 */
class AttentionTasks {
 public:
  void Clear();
  void Add(const AttentionTile& tile) { tiles_.push_back(tile); }

  /*! \brief Divide the tiles into tasks, after the last `Add`. */
  void Divide(int num_threads);

  int size() const { return static_cast<int>(tasks_.size()); }

  /*! \brief Run one task. Different tasks may run concurrently. */
  void Run(int task, TileFunction attend, const AttentionScratch& scratch);

 private:
  struct Task {
    int64_t tile;
    int64_t split;  // Index in `splits_`; -1 if the task is the whole tile.
    int64_t chunk;
    int64_t first_visit;
    int64_t end_visit;
  };

  /*! \brief A tile whose chunks are tasks; their states are contiguous in `states_`. */
  struct Split {
    int64_t first_float = 0;
    int64_t num_chunks = 0;
    std::atomic<int64_t> num_unfinished{0};
  };

  void AddSplit(int64_t tile);
  SoftmaxState State(const AttentionTile& tile, const Split& split, int64_t chunk) const;

  std::vector<AttentionTile> tiles_;
  std::vector<int64_t> num_chunks_;  // Of each tile.
  std::vector<Task> tasks_;
  std::deque<Split> splits_;  // A deque, because an atomic cannot be moved.
  int64_t num_splits_ = 0;    // The splits of this call; the remaining elements are reused later.
  int64_t num_floats_ = 0;
  AlignedBuffer states_;
  float* first_state_ = nullptr;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TASKS_H_
