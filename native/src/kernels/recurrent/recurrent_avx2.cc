#if defined(__x86_64__)
#include "kernels/recurrent/recurrent_lanes.h"
#include "kernels/simd/simd_avx2.h"

namespace aiomlc {

RecurrentKernels Avx2RecurrentKernels() { return Recurrent<Avx2Lanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
