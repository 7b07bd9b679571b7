/*!
 * \file kernels/linear/format/panel.h
 * \brief The position of a row of activations in its panel.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_FORMAT_PANEL_H_
#define AIOMLC_KERNELS_LINEAR_FORMAT_PANEL_H_

#include <cstdint>

#include "kernels/linear/format/layout.h"

namespace aiomlc {

namespace {

/*! \brief The position of one row. */
struct PanelCursor {
  int64_t panel;   //!< The first row of the panel.
  int64_t height;  //!< The number of rows of the panel.
  int64_t row;     //!< The index of the row in the panel.
};

/*! \return The position of a row. \param row_end The end of the rows of the matrix. */
inline PanelCursor PanelOf(int64_t row, int64_t row_end) {
  const int64_t in_panel = row % kPanelRows;
  const int64_t left = row_end - (row - in_panel);
  return {row - in_panel, left < kPanelRows ? left : kPanelRows, in_panel};
}

/*! \return The number of groups of inputs; the last group may be incomplete. */
inline int64_t GroupsOf(int64_t cols) { return (cols + kGroupSize - 1) / kGroupSize; }

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_FORMAT_PANEL_H_
