/*!
 * \file kernels/attention/attention_types.h
 * \brief The data structures of the inner attention kernels.
 */
#ifndef AIOMLC_KERNELS_ATTENTION_ATTENTION_TYPES_H_
#define AIOMLC_KERNELS_ATTENTION_ATTENTION_TYPES_H_

#include <cstdint>

#include "platform/float_types.h"
#include "platform/kv_type.h"

namespace aiomlc {

/*! \brief Positions in a KV page; equal to the number of lanes of a vector. */
inline constexpr int kTilePageSize = 16;
/*! \brief The maximum number of queries (rows times heads) in a tile. */
inline constexpr int kMaxTileQueries = 64;
/*!
 * \brief Pages of a chunk. Each chunk has a separate softmax, so the bits of the results depend on
 * this constant.
 */
inline constexpr int kChunkPages = 32;

/*! \brief The online softmax of a tile's queries over the positions so far. */
struct SoftmaxState {
  float* sums;     // [kMaxTileQueries][width], the values weighted by unnormalized probabilities
  float* largest;  // [kMaxTileQueries], the largest score; minus infinity if there is none
  float* total;    // [kMaxTileQueries], the sum of the unnormalized probabilities
};

/*!
 * \brief Float32 working memory of one tile; `width` is head_dim rounded up to 16.
 *
 * The shapes of `queries` and of the states are those of `TileAttention`; `BlockAttention` stores
 * the transposes. Only `BlockAttention` uses `keys` and `values`.
 */
struct AttentionScratch {
  float* keys;         // [width][16]
  float* values;       // [16][width]
  float* queries;      // [kMaxTileQueries][width]
  float* probs;        // TileAttention: [2 pages][16][16]; BlockAttention: [16][kMaxTileQueries]
  SoftmaxState first;  // of the first chunk, into which the later chunks are merged
  SoftmaxState later;  // of a later chunk
};

/*!
 * \brief Rows at consecutive positions of one sequence, and the query heads of adjacent key-value
 * heads.
 *
 * With several key-value heads, there are fewer than 16 rows times heads of each, and at most
 * kMaxTileQueries of all. Then queries are numbered by key-value head, row and head. Strides count
 * elements, offsets the units of `KvFormat`. The scales of a type that has some follow the 16 keys,
 * or the 16 values, of a head.
 */
struct AttentionTile {
  const void* queries;  // of the first row and head
  void* output;
  int64_t row_stride;         // of queries and output
  int64_t query_head_stride;  // head_dim if heads are adjacent
  int64_t output_head_stride;
  int num_rows;
  int num_kv_heads;
  int num_heads;  // query heads of each key-value head
  int head_dim;
  int64_t first_position;
  int64_t first_visible;  // last position that the first row sees; each row sees one more, up to:
  int64_t last_visible;   // last position that the last row sees
  const void* const* pages;  // pages[i] holds positions 16 i to 16 i + 15
  int64_t key_offset;        // of the first key-value head in a page
  int64_t value_offset;
  int64_t plane;  // from the keys, or values, of a head to those of the next
  float scale;
  FloatType type;  // of queries and output
  KvType stored;   // of the pages
  int64_t window;  // positions that a row sees, including the row's position; 0: all
  int64_t sinks;   // first positions of the sequence that every row sees despite the window
  float soft_cap;  // applied to scores after the scale; 0: none
  const float* sink_scores;  // of the heads, or null; see `AttentionShape`
  // With one key-value head only. Added to the scores after the cap, or null; element
  // q + p * bias_stride is that of query q and position p. Readable for the queries up to the next
  // multiple of 16, and all positions that the pages have.
  const float* biases;
  int64_t bias_stride;

  // Inlined, so that no function compiled for one processor's instructions serves all of them.

  /*! \return The queries of each key-value head. */
  [[gnu::always_inline]] int HeadQueries() const { return num_rows * num_heads; }
  [[gnu::always_inline]] int NumQueries() const { return num_kv_heads * HeadQueries(); }

  /*! \return The head of a query, of the `num_kv_heads * num_heads` heads of the tile. */
  [[gnu::always_inline]] int Head(int query) const {
    return query / HeadQueries() * num_heads + query % num_heads;
  }

  /*! \return The offset of a query in a tensor whose heads are `head_stride` apart. */
  [[gnu::always_inline]] int64_t Offset(int query, int64_t head_stride) const {
    return query % HeadQueries() / num_heads * row_stride + Head(query) * head_stride;
  }
};

/*! \brief The part of a tile that one call computes. */
struct TileWork {
  enum class Part {
    kAll,
    kChunk,  // the softmax state of one chunk
    kMerge,  // the output, from the states of all chunks
  };

  Part part = Part::kAll;
  int64_t first_visit = 0;  // kChunk: the chunk's pages, as `PageVisits` numbers them
  int64_t end_visit = 0;
  SoftmaxState state{};      // kChunk: the result; kMerge: the first chunk's, merged in place
  int64_t num_states = 0;    // kMerge: the number of chunks
  int64_t state_stride = 0;  // kMerge: floats from one chunk's state to the next
};

void AttendTilePortable(const AttentionTile& tile, const TileWork& work,
                        const AttentionScratch& scratch);
void AttendTileNeon(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch);
void AttendTileAvx2(const AttentionTile& tile, const TileWork& work,
                    const AttentionScratch& scratch);
void AttendTileAvx512(const AttentionTile& tile, const TileWork& work,
                      const AttentionScratch& scratch);
/*! \brief `AttendTileAvx512` for pages of pairs, with AVX512-BF16. Null if not compiled. */
extern void (*const kAttendPairsTileAvx512)(const AttentionTile& tile, const TileWork& work,
                                            const AttentionScratch& scratch);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ATTENTION_ATTENTION_TYPES_H_
