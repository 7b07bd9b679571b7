/*!
 * \file kernels/attention/attention_tasks.h
 * \brief What the threads take up when attention is computed: tiles, or chunks of long ones.
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

/*!
 * \brief The tasks of one call; memory is kept for the next.
 *
 * A tile is one task, unless it alone is so much of the call that threads would wait for it. Then
 * each chunk of its context is a task, and whoever finishes the last one merges them.
 */
class AttentionTasks {
 public:
  void Clear();
  void Add(const AttentionTile& tile) { tiles_.push_back(tile); }

  /*! \brief Make tasks of the tiles, after the last was added. */
  void Cut(int num_threads);

  int size() const { return static_cast<int>(tasks_.size()); }

  /*! \brief Run one task; different ones may run at the same time. */
  void Run(int task, TileFunction attend, const AttentionScratch& scratch);

 private:
  struct Task {
    int64_t tile;
    int64_t split;  // Of the tile, or -1: the task is all of it.
    int64_t chunk;
    int64_t first_visit;
    int64_t end_visit;
  };

  /*! \brief A tile whose chunks are tasks; their states follow each other in `states_`. */
  struct Split {
    int64_t first_float = 0;
    int64_t num_chunks = 0;
    std::atomic<int64_t> num_left{0};
  };

  void AddSplit(int64_t tile);
  SoftmaxState State(const AttentionTile& tile, const Split& split, int64_t chunk) const;

  std::vector<AttentionTile> tiles_;
  std::vector<int64_t> num_chunks_;  // Of each tile.
  std::vector<Task> tasks_;
  std::deque<Split> splits_;  // An atomic cannot be moved.
  int64_t num_splits_ = 0;
  int64_t num_floats_ = 0;
  AlignedBuffer states_;
  float* first_state_ = nullptr;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TASKS_H_
