/*!
 * \file kernels/attention/attention_types.h
 * \brief What the inner kernels of attention work on.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_TYPES_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_TYPES_H_

#include <cstdint>

#include "platform/float_types.h"

namespace aiomlc {

/*! \brief Positions in a KV page: as many as a vector has lanes. */
inline constexpr int kTilePageSize = 16;
/*! \brief The most queries (rows times heads) in a tile. */
inline constexpr int kMaxTileQueries = 64;
/*! \brief Pages of a chunk, which has a softmax of its own; the results depend on it. */
inline constexpr int kChunkPages = 32;

/*! \brief The softmax of the positions that a tile's queries have seen so far. */
struct SoftmaxState {
  float* sums;     // [kMaxTileQueries][width], the weighted values
  float* largest;  // [kMaxTileQueries], the largest score; minus infinity if nothing was seen
  float* total;    // [kMaxTileQueries], the sum of probabilities
};

/*!
 * \brief Float32 working memory of one tile; `width` is head_dim rounded up to 16.
 *
 * The shapes are those of a tile of few queries; one of many has the others transposed.
 */
struct AttentionScratch {
  float* keys;         // [width][16]; used for many queries only, as the values
  float* values;       // [16][width]
  float* queries;      // [kMaxTileQueries][width]
  float* probs;        // [2][16][16]: the pages of a pair; of many queries [16][kMaxTileQueries]
  SoftmaxState first;  // of the first chunk, into which the others are merged
  SoftmaxState later;  // of another chunk
};

/*!
 * \brief Rows at consecutive positions of one sequence, and query heads that share a key-value
 * head.
 *
 * Offsets and strides count elements. In pages of 8 bits the scales follow the 16 keys, or values,
 * of a head.
 */
struct AttentionTile {
  const void* queries;  // first row and head; heads are adjacent
  void* output;         // same layout
  int64_t row_stride;
  int num_rows;
  int num_heads;
  int head_dim;
  int64_t first_position;
  const void* const* pages;  // pages[i] holds positions 16 i to 16 i + 15
  int64_t key_offset;        // of this head in a page
  int64_t value_offset;
  float scale;
  FloatType type;  // of queries and output, and of pages if not of 8 bits
  bool is_8_bit;
  int64_t window;  // positions a row sees, its own the last; 0 is all
  int64_t sinks;   // first positions that a window never hides
  float soft_cap;  // of scores, after the scale; 0 is none
};

namespace {  // Internal linkage, since files of several instruction set tiers include it.

/*! \return The scales of the 16 keys or values that begin at `plane`. */
template <typename Stored>
const float* ScalesAfter(const Stored* plane, int head_dim) {
  return reinterpret_cast<const float*>(plane + static_cast<int64_t>(head_dim) * kTilePageSize);
}

}  // namespace

/*! \brief What of a tile one call computes. */
struct TileWork {
  enum class Part {
    kAll,
    kChunk,  // the state of one chunk
    kMerge,  // the output, from the states of all chunks
  };

  Part part = Part::kAll;
  int64_t first_visit = 0;  // of a chunk's pages, as `PageVisits` counts them
  int64_t end_visit = 0;
  SoftmaxState state{};    // of the chunk; of a merge that of the first, which takes in the others
  int64_t num_states = 0;  // of a merge
  int64_t floats_of_state = 0;  // from one chunk's state to the next one's
};

void AttendTilePortable(const AttentionTile& tile, const TileWork& work,
                        const AttentionScratch& scratch);
void AttendTileNeon(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch);
void AttendTileAvx2(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch);
void AttendTileAvx512(const AttentionTile& tile, const TileWork& work,
                      const AttentionScratch& scratch);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TYPES_H_
