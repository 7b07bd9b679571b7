/*!
 * \file weights/gguf_blocks.h
 * \brief The quantized blocks of GGUF.
 *
 * Layouts: `ggml-common.h` of ggml.
 */
#ifndef AIOMLC_WEIGHTS_GGUF_BLOCKS_H_
#define AIOMLC_WEIGHTS_GGUF_BLOCKS_H_

#include <cstdint>

#include "weights/group_buffers.h"
#include "weights/source_matrix.h"

namespace aiomlc {

/*! \brief The sizes of a block type, and the packed format with the same numbers. */
struct BlockLayout {
  int64_t inputs;     /*!< Of a block. */
  int64_t bytes;      /*!< Of a block. */
  const char* format; /*!< The name of the `MatrixFormat`. */
};

/*! \return The layout of a block type. */
BlockLayout BlockLayoutOf(SourceType type);

/*!
 * \brief Unpack one row.
 * \param blocks The blocks of the row.
 * \param cols A multiple of the inputs of a block.
 */
void DecodeBlocks(SourceType type, const uint8_t* blocks, int64_t cols, GroupedRow row);

}  // namespace aiomlc

#endif  // AIOMLC_WEIGHTS_GGUF_BLOCKS_H_
