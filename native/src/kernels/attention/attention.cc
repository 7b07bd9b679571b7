/*!
 * \file kernels/attention/attention.cc
 * \brief Division of attention into tiles, and of the tiles into tasks of the thread pool.
 */
#include "kernels/attention/attention.h"

#include <algorithm>

#include "kernels/attention/attention_tasks.h"
#include "kernels/attention/attention_types.h"
#include "platform/aligned_buffer.h"
#include "platform/isa.h"

namespace aiomlc {

static_assert(kPageSize == kTilePageSize);

TileFunction ActiveTileFunction([[maybe_unused]] KvType stored) {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      if (FormatOf(stored).inputs == 2 && HasAvx512BF16() && kAttendPairsTileAvx512 != nullptr) {
        return kAttendPairsTileAvx512;
      }
      return AttendTileAvx512;
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      return AttendTileAvx2;
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() >= Isa::kNeon) return AttendTileNeon;
#endif
  return AttendTilePortable;
}

AttentionScratch ThreadScratch(int64_t head_dim) {
  thread_local AlignedBuffer buffer;
  const int64_t width = (head_dim + kTilePageSize - 1) / kTilePageSize * kTilePageSize;
  const int64_t page = kTilePageSize * width;
  const int64_t queries = kMaxTileQueries * width;
  const int64_t probs = kMaxTileQueries * kTilePageSize;
  const int64_t total = 2 * page + 3 * queries + probs + 4 * kMaxTileQueries;
  float* next = reinterpret_cast<float*>(buffer.Reserve(sizeof(float) * total));
  const auto take = [&next](int64_t count) {
    float* floats = next;
    next += count;
    return floats;
  };
  AttentionScratch scratch;
  scratch.keys = take(page);
  scratch.values = take(page);
  scratch.queries = take(queries);
  scratch.probs = take(probs);
  for (SoftmaxState* state : {&scratch.first, &scratch.later}) {
    state->sums = take(queries);
    state->largest = take(kMaxTileQueries);
    state->total = take(kMaxTileQueries);
  }
  return scratch;
}

namespace {

/*!
 * \brief Divides sequences into tiles: some rows of a sequence, times query heads that share a
 * key-value head.
 */
class TilePlan {
 public:
  TilePlan(const AttentionShape& shape, int num_threads, std::span<const AttentionRows> sequences,
           const void* queries, void* output, AttentionTasks& tasks)
      : shape_(shape),
        tasks_(tasks),
        queries_(static_cast<const std::byte*>(queries)),
        output_(static_cast<std::byte*>(output)),
        group_(shape.num_query_heads / shape.num_kv_heads),
        tile_heads_(std::min<int64_t>(group_, kMaxTileQueries)),
        tile_rows_(kMaxTileQueries / tile_heads_) {
    int64_t chunks = 0;
    for (const AttentionRows& rows : sequences) chunks += NumChunks(rows) * NumTiles(rows);
    // Half of the heads in twice as many tiles, and so on, until all threads have enough of them.
    const int64_t enough = num_threads == 1 ? 1 : kTasksPerThread * num_threads;
    kv_heads_ = shape.num_kv_heads;
    while (kv_heads_ > 1 && chunks * CeilDivide(shape.num_kv_heads, kv_heads_) < enough) {
      kv_heads_ = CeilDivide(kv_heads_, 2);
    }
  }

  /*!
   * \brief Add the tiles of one sequence, the last rows first.
   *
   * The last rows see the most positions; if their tiles ran last, the other threads would wait.
   */
  void Add(const AttentionRows& rows) {
    for (int64_t tile = NumTiles(rows) - 1; tile >= 0; --tile) {
      const int64_t begin = tile * tile_rows_;
      const int64_t end = std::min(begin + tile_rows_, rows.num_rows);
      const int64_t queries = (end - begin) * tile_heads_;
      const int64_t together =
          queries < kTilePageSize ? std::min(kv_heads_, kMaxTileQueries / queries) : 1;
      for (int64_t kv_head = 0; kv_head < shape_.num_kv_heads; kv_head += together) {
        for (int64_t head = 0; head < group_; head += tile_heads_) {
          AddTile(rows, begin, end, kv_head, std::min(together, shape_.num_kv_heads - kv_head),
                  head);
        }
      }
    }
  }

 private:
  static constexpr int64_t kTasksPerThread = 16;

  static int64_t CeilDivide(int64_t value, int64_t divisor) {
    return (value + divisor - 1) / divisor;
  }

  int64_t NumTiles(const AttentionRows& rows) const {
    return CeilDivide(rows.num_rows, tile_rows_);
  }

  /*! \return About the number of chunks that the last row of a sequence sees. */
  int64_t NumChunks(const AttentionRows& rows) const {
    int64_t seen = rows.first_position + rows.num_rows;
    if (shape_.window.size > 0) seen = std::min(seen, shape_.window.size + shape_.window.sinks);
    return CeilDivide(seen, kChunkPages * kPageSize);
  }

  void AddTile(const AttentionRows& rows, int64_t begin, int64_t end, int64_t kv_head,
               int64_t num_kv_heads, int64_t head_in_group) {
    const int64_t row_stride = shape_.num_query_heads * shape_.head_dim;
    const int64_t head = kv_head * group_ + head_in_group;
    const int64_t offset = (rows.row_begin + begin) * row_stride + head * shape_.head_dim;
    const auto bytes = static_cast<int64_t>(FloatBytes(shape_.type));
    AttentionTile tile;
    tile.queries = queries_ + offset * bytes;
    tile.output = output_ + offset * bytes;
    tile.row_stride = row_stride;
    tile.query_head_stride = tile.output_head_stride = shape_.head_dim;
    tile.num_rows = static_cast<int>(end - begin);
    tile.num_kv_heads = static_cast<int>(num_kv_heads);
    tile.num_heads = static_cast<int>(std::min(tile_heads_, group_ - head_in_group));
    tile.head_dim = static_cast<int>(shape_.head_dim);
    tile.first_position = rows.first_position + begin;
    const int64_t last_row = rows.see_each_other ? rows.num_rows : end;
    tile.last_visible = rows.first_position + last_row - 1;
    tile.first_visible = rows.see_each_other ? tile.last_visible : tile.first_position;
    tile.pages = rows.pages;
    const auto plane =
        static_cast<int64_t>(shape_.PlaneBytes() / FormatOf(shape_.kv_type()).unit_bytes);
    tile.key_offset = kv_head * plane;
    tile.value_offset = (shape_.num_kv_heads + kv_head) * plane;
    tile.plane = plane;
    tile.scale = shape_.scale;
    tile.type = shape_.type;
    tile.stored = shape_.kv_type();
    tile.window = shape_.window.size;
    tile.sinks = shape_.window.sinks;
    tile.soft_cap = shape_.soft_cap;
    tile.biases = nullptr;
    tile.bias_stride = 0;
    tile.sink_scores = shape_.sink_scores == nullptr ? nullptr : shape_.sink_scores + head;
    tasks_.Add(tile);
  }

  const AttentionShape& shape_;
  AttentionTasks& tasks_;
  const std::byte* queries_;
  std::byte* output_;
  int64_t group_;
  int64_t tile_heads_;
  int64_t tile_rows_;
  int64_t kv_heads_ = 1;  //!< Of a tile with few queries.
};

}  // namespace

void Attend(ThreadPool& pool, const AttentionShape& shape, std::span<const AttentionRows> sequences,
            const void* queries, void* output) {
  thread_local AttentionTasks thread_tasks;
  AttentionTasks& tasks = thread_tasks;  // Of this thread, also in tasks that run on other threads.
  tasks.Clear();
  TilePlan plan(shape, pool.num_threads(), sequences, queries, output, tasks);
  for (const AttentionRows& rows : sequences) plan.Add(rows);
  tasks.Divide(pool.num_threads());
  const TileFunction attend = ActiveTileFunction(shape.kv_type());
  pool.Run(tasks.size(), [&](int task) { tasks.Run(task, attend, ThreadScratch(shape.head_dim)); });
}

}  // namespace aiomlc
