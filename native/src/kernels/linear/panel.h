/*!
 * \file kernels/linear/panel.h
 * \brief Where a row of activations lies in its panel.
 *
 * Everything has internal linkage: see linear_kernels.h.
 */
#ifndef AIOMLC_KERNELS_LINEAR_PANEL_H_
#define AIOMLC_KERNELS_LINEAR_PANEL_H_

#include <cstdint>

#include "kernels/linear/layout.h"

namespace aiomlc {

namespace {

/*! \brief The place of one row. */
struct PanelCursor {
  int64_t panel;   //!< The first row of its panel.
  int64_t height;  //!< Rows of the panel.
  int64_t row;     //!< Within the panel.
};

/*! \param row_end Where the rows of the matrix end. */
inline PanelCursor PanelOf(int64_t row, int64_t row_end) {
  const int64_t in_panel = row % kPanelRows;
  const int64_t left = row_end - (row - in_panel);
  return {row - in_panel, left < kPanelRows ? left : kPanelRows, in_panel};
}

/*! \return Groups of inputs in a row, the last of which may be incomplete. */
inline int64_t GroupsOf(int64_t cols) { return (cols + kGroupSize - 1) / kGroupSize; }

}  // namespace

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_PANEL_H_
