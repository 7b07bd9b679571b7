#include "kernels/attention/attention_tasks.h"

#include "kernels/attention/attention_window.h"

namespace aiomlc {
namespace {

// 32 MiB for all states of one call; a tile whose states do not fit is not split.
constexpr int64_t kMaxStateFloats = int64_t{8} << 20;

template <bool kWindowed, typename Function>
void ForWindowChunks(const AttentionTile& tile, Function function) {
  const PageVisits<kWindowed> visits(tile);
  for (int64_t begin = 0; begin <= visits.last();) {
    const int64_t end = visits.ChunkEnd(begin);
    function(begin, end);
    begin = end;
  }
}

/*! \brief Call `function(first visit, end visit)` for every chunk that a tile sees. */
template <typename Function>
void ForChunks(const AttentionTile& tile, Function function) {
  if (tile.window > 0) {
    ForWindowChunks<true>(tile, function);
  } else {
    ForWindowChunks<false>(tile, function);
  }
}

int64_t CountChunks(const AttentionTile& tile) {
  if (tile.window == 0) return PageVisits<false>(tile).last() / kChunkPages + 1;
  int64_t count = 0;
  ForChunks(tile, [&](int64_t, int64_t) { ++count; });
  return count;
}

/*! \return The queries that the state of a tile has room for: a multiple of the vector width. */
int64_t StateQueries(const AttentionTile& tile) {
  if (tile.HeadQueries() >= kTilePageSize) return kMaxTileQueries;
  return (tile.NumQueries() + kTilePageSize - 1) / kTilePageSize * kTilePageSize;
}

int64_t SumFloats(const AttentionTile& tile) {
  const int64_t width = (tile.head_dim + kTilePageSize - 1) / kTilePageSize * kTilePageSize;
  return StateQueries(tile) * width;
}

int64_t StateFloats(const AttentionTile& tile) { return SumFloats(tile) + 2 * StateQueries(tile); }

}  // namespace

void AttentionTasks::Clear() {
  tiles_.clear();
  num_chunks_.clear();
  tasks_.clear();
  num_splits_ = 0;
  num_floats_ = 0;
}

void AttentionTasks::Divide(int num_threads) {
  int64_t all_chunks = 0;
  for (const AttentionTile& tile : tiles_) {
    num_chunks_.push_back(num_threads > 1 ? CountChunks(tile) : 1);
    all_chunks += num_chunks_.back();
  }
  int64_t left = all_chunks;  // In the tiles from this one on.
  for (size_t tile = 0; tile < tiles_.size(); ++tile) {
    // The other threads would wait for a tile that lasts longer than what is left for them.
    const bool is_waited_for = left < num_threads * num_chunks_[tile];
    left -= num_chunks_[tile];
    const int64_t floats = num_chunks_[tile] * StateFloats(tiles_[tile]);
    if (num_chunks_[tile] > 1 && is_waited_for && num_floats_ + floats <= kMaxStateFloats) {
      AddSplit(static_cast<int64_t>(tile));
    } else {
      tasks_.push_back({static_cast<int64_t>(tile), -1, 0, 0, 0});
    }
  }
  first_state_ = reinterpret_cast<float*>(states_.Reserve(sizeof(float) * num_floats_));
}

void AttentionTasks::AddSplit(int64_t tile) {
  const int64_t index = num_splits_++;
  if (index == static_cast<int64_t>(splits_.size())) splits_.emplace_back();
  Split& split = splits_[index];
  split.first_float = num_floats_;
  split.num_chunks = num_chunks_[tile];
  split.num_unfinished.store(split.num_chunks, std::memory_order_relaxed);
  num_floats_ += split.num_chunks * StateFloats(tiles_[tile]);
  int64_t chunk = 0;
  ForChunks(tiles_[tile], [&](int64_t begin, int64_t end) {
    tasks_.push_back({tile, index, chunk++, begin, end});
  });
}

SoftmaxState AttentionTasks::State(const AttentionTile& tile, const Split& split,
                                   int64_t chunk) const {
  float* floats = first_state_ + split.first_float + chunk * StateFloats(tile);
  float* largest = floats + SumFloats(tile);
  return {floats, largest, largest + StateQueries(tile)};
}

void AttentionTasks::Run(int index, TileFunction attend, const AttentionScratch& scratch) {
  const Task& task = tasks_[index];
  const AttentionTile& tile = tiles_[task.tile];
  if (task.split < 0) {
    attend(tile, {}, scratch);
    return;
  }
  Split& split = splits_[task.split];
  TileWork work;
  work.part = TileWork::Part::kChunk;
  work.first_visit = task.first_visit;
  work.end_visit = task.end_visit;
  work.state = State(tile, split, task.chunk);
  attend(tile, work, scratch);
  // Acquire-release: the thread that merges must see the states that the other threads wrote.
  if (split.num_unfinished.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  work.part = TileWork::Part::kMerge;
  work.state = State(tile, split, 0);
  work.num_states = split.num_chunks;
  work.state_stride = StateFloats(tile);
  attend(tile, work, scratch);
}

}  // namespace aiomlc
