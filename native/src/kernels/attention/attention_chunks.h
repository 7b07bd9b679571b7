/*!
 * \file kernels/attention/attention_chunks.h
 * \brief Attention of a tile in chunks of its context: a softmax for each chunk, merged in order.
 *
 * Chunks end at fixed positions. So a row has the same bits whether one thread computes its whole
 * context or several threads compute a chunk each. A context of one chunk is not merged.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_CHUNKS_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_CHUNKS_H_

#include <cstdint>

#include "kernels/attention/attention_types.h"
#include "kernels/simd/simd_math.h"

namespace aiomlc {

/*!
 * \brief Add the sink scores to the denominators of the complete softmax of all queries.
 *
 * A row sees at least its own position, so its largest score is finite, or it is NaN.
 */
template <typename Lanes>
void AddSinks(const AttentionTile& tile, const SoftmaxState& state) {
  if (tile.sink_scores == nullptr) return;
  for (int first = 0; first < tile.NumQueries(); first += Lanes::kWidth) {
    float scores[Lanes::kWidth] = {};
    for (int i = 0; i < Lanes::kWidth && first + i < tile.NumQueries(); ++i) {
      scores[i] = tile.sink_scores[tile.Head(first + i)];
    }
    const auto largest = Lanes::Load(state.largest + first);
    const auto sinks = Exp<Lanes>(Lanes::Sub(Lanes::Load(scores), largest));
    Lanes::Store(state.total + first, Lanes::Add(Lanes::Load(state.total + first), sinks));
  }
}

/*!
 * \brief Compute one part of a tile.
 * \tparam Kernel `TileAttention` or `BlockAttention`.
 */
template <typename Lanes, typename Kernel>
void AttendPart(Kernel kernel, const AttentionTile& tile, const TileWork& work,
                const AttentionScratch& scratch) {
  if (work.part == TileWork::Part::kMerge) {
    SoftmaxState later = work.state;
    for (int64_t i = 1; i < work.num_states; ++i) {
      later.sums += work.state_stride;
      later.largest += work.state_stride;
      later.total += work.state_stride;
      kernel.Merge(work.state, later);
    }
    AddSinks<Lanes>(tile, work.state);
    kernel.StoreOutput(work.state);
    return;
  }
  const bool is_all = work.part == TileWork::Part::kAll;
  const int64_t begin = is_all ? 0 : work.first_visit;
  const int64_t end = is_all ? kernel.visits().last() + 1 : work.end_visit;
  const SoftmaxState& first = is_all ? scratch.first : work.state;
  kernel.LoadQueries();
  for (int64_t visit = begin; visit < end;) {
    const int64_t chunk_end = kernel.visits().ChunkEnd(visit);
    const bool is_first = visit == begin;
    kernel.Begin(is_first ? first : scratch.later);
    kernel.VisitPages(visit, chunk_end, end);
    if (!is_first) kernel.Merge(first, scratch.later);
    visit = chunk_end;
  }
  if (!is_all) return;
  AddSinks<Lanes>(tile, first);
  kernel.StoreOutput(first);
}

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_CHUNKS_H_
