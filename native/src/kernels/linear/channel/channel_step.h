/*!
 * \file kernels/linear/channel/channel_step.h
 * \brief The arguments of the integer sums of a tier.
 */
#ifndef AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_STEP_H_
#define AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_STEP_H_

#include <cstdint>

namespace aiomlc {

/*! \brief Some groups, of adjacent tiles and adjacent rows in a panel. */
struct ChannelStep {
  const int8_t* weights;
  int64_t tile_bytes;  //!< From a tile to the next.
  const uint8_t* x;
  int64_t stride;  //!< From a group of activations to the next.
  int groups;
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_LINEAR_CHANNEL_CHANNEL_STEP_H_
