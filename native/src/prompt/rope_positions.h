/*!
 * \file prompt/rope_positions.h
 * \brief RoPE positions of prompts with pieces that extend in time, height and width.
 */
#ifndef AIOMLC_PROMPT_ROPE_POSITIONS_H_
#define AIOMLC_PROMPT_ROPE_POSITIONS_H_

#include <cstdint>
#include <span>

#include "prompt/prefix_key.h"

namespace aiomlc {

/*! \brief The axes of a RoPE position: time, height and width. */
inline constexpr int64_t kRopeAxes = 3;

/*! \return Whether a piece has a grid, so that positions differ from indices. */
bool HasGrids(std::span<const PieceKey> pieces);

/*!
 * \brief Write the RoPE positions of the tokens [begin, end) of a sequence.
 *
 * A token of text has the same position on each axis, one more than the largest before it. The
 * row of a piece at (t, h, w) of its grid has the position of the piece's first row plus t, h and
 * w. So the position of every token follows from the pieces before it: it depends neither on what
 * was computed, nor on where.
 * \param stride The elements from an axis to the next.
 * \param out Of each axis, end - begin positions.
 */
void WriteRopePositions(std::span<const PieceKey> pieces, int64_t begin, int64_t end,
                        int64_t stride, int32_t* out);

}  // namespace aiomlc

#endif  // AIOMLC_PROMPT_ROPE_POSITIONS_H_
