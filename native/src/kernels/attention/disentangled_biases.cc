#include "kernels/attention/disentangled_biases.h"

#include <algorithm>
#include <cstddef>

#include "kernels/attention/attention_types.h"
#include "kernels/linear/linear_tasks.h"
#include "platform/aligned_buffer.h"

namespace aiomlc {
namespace {

constexpr int64_t kTilePositions = kTileRows;
// Which products of a tile's scratch memory.
constexpr int kOfQueries = 0;
constexpr int kOfKeys = 1;

float* Floats(AlignedBuffer& buffer, int64_t count) {
  return reinterpret_cast<float*>(buffer.Reserve(static_cast<size_t>(count) * sizeof(float)));
}

/*! \brief Write rows in the panels that `LinearKernels::f32` reads. */
void WritePanels(const float* rows, int64_t stride, int64_t count, int64_t size, float* panels) {
  const auto write_panel = ActiveLinearKernels().write_panel;
  for (int64_t row = 0; row < count; row += kPanelRows) {
    const int64_t height = std::min(kPanelRows, count - row);
    write_panel({rows + row * stride, FloatType::kF32, stride, height, size, panels + row * size});
  }
}

/*! \brief Write one tile of [count <= 16, size]. */
void WriteTile(const float* rows, int64_t stride, int64_t count, int64_t size, float* tile) {
  if (count == kTilePositions) return WritePanels(rows, stride, count, size, tile);
  std::fill_n(tile, size * kTilePositions, 0.0f);
  for (int64_t row = 0; row < count; ++row) {
    for (int64_t c = 0; c < size; ++c) tile[c * kTilePositions + row] = rows[row * stride + c];
  }
}

}  // namespace

struct DisentangledBiases::Scratch {
  AlignedBuffer panels, products[2], biases;
};

int64_t PositionTilesOf(int64_t num_positions) {
  return (num_positions + kTilePositions - 1) / kTilePositions;
}

void WritePositionTiles(ThreadPool& pool, const float* rows, int64_t stride, int64_t num_positions,
                        int64_t num_heads, int64_t head_dim, float* tiles) {
  const int64_t num_tiles = PositionTilesOf(num_positions);
  pool.Run(static_cast<int>(num_heads), [&](int head) {
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      const int64_t first = tile * kTilePositions;
      WriteTile(rows + first * stride + head * head_dim, stride,
                std::min(kTilePositions, num_positions - first), head_dim,
                tiles + (head * num_tiles + tile) * head_dim * kTilePositions);
    }
  });
}

DisentangledBiases::DisentangledBiases(const PackedAttentionShape& shape,
                                       const PackedInputs& inputs, const PositionTiles& positions,
                                       std::span<const int32_t> relative)
    : head_dim_(shape.heads.head_dim),
      scale_(shape.scale),
      inputs_(inputs),
      positions_(positions),
      relative_(relative.data() + relative.size() / 2) {}

DisentangledBiases::Products DisentangledBiases::Multiply(const float* rows, int64_t stride,
                                                          int64_t count, const float* tiles,
                                                          Distances distances, Scratch& scratch,
                                                          int which) const {
  const int64_t tile_begin = relative_[distances.least] / kTilePositions;
  const int64_t tile_end = relative_[distances.most] / kTilePositions + 1;
  const int64_t columns = (tile_end - tile_begin) * kTilePositions;
  float* panels = Floats(scratch.panels, count * head_dim_);
  float* products = Floats(scratch.products[which], count * columns);
  WritePanels(rows, stride, count, head_dim_, panels);
  LinearBlock block = {};
  block.packed = tiles + tile_begin * kTilePositions * head_dim_;
  block.num_outputs = columns;
  block.num_inputs = head_dim_;
  block.tile_end = tile_end - tile_begin;
  block.row_end = count;
  block.x = panels;
  block.out = products;
  block.out_stride = columns;
  block.out_type = FloatType::kF32;
  ActiveLinearKernels().f32(block);
  return {products, columns, tile_begin * kTilePositions};
}

TileBiases DisentangledBiases::OfTile(const TileQueries& tile) const {
  thread_local Scratch scratch;
  const int64_t pages = (tile.length + kTilePageSize - 1) / kTilePageSize;
  float* const biases = Floats(scratch.biases, pages * kTilePageSize * kMaxTileQueries);
  const int64_t matrix = tile.head * positions_.num_tiles * head_dim_ * kTilePositions;
  const int64_t last = tile.first + tile.count - 1;
  const float* queries =
      inputs_.queries + (tile.begin + tile.first) * inputs_.query_stride + tile.head * head_dim_;
  const float* keys = inputs_.keys + tile.begin * inputs_.key_stride + tile.head * head_dim_;
  const Products of_queries =
      Multiply(queries, inputs_.query_stride, tile.count, positions_.keys + matrix,
               {tile.first - (tile.length - 1), last}, scratch, kOfQueries);
  for (int64_t begin = 0; begin < tile.length; begin += kTilePageSize) {
    const int64_t slots = std::min<int64_t>(kTilePageSize, tile.length - begin);
    const Products of_keys = Multiply(
        keys + begin * inputs_.key_stride, inputs_.key_stride, slots, positions_.queries + matrix,
        {tile.first - (begin + slots - 1), last - begin}, scratch, kOfKeys);
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int32_t* relative = relative_ + tile.first - (begin + slot);
      const float* of_query = of_queries.values;
      const float* of_key = of_keys.values + slot * of_keys.stride;
      float* target = biases + (begin + slot) * kMaxTileQueries;
      for (int64_t i = 0; i < tile.count; ++i, of_query += of_queries.stride) {
        target[i] = scale_ * (of_query[relative[i] - of_queries.position] +
                              of_key[relative[i] - of_keys.position]);
      }
      std::fill(target + tile.count, target + kMaxTileQueries, 0.0f);
    }
  }
  return {biases, kMaxTileQueries};
}

}  // namespace aiomlc
