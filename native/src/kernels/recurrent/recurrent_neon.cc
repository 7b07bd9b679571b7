#if defined(__aarch64__)
#include "kernels/recurrent/recurrent_lanes.h"
#include "kernels/simd/simd_neon.h"

namespace aiomlc {

RecurrentKernels NeonRecurrentKernels() { return Recurrent<NeonLanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__aarch64__)
