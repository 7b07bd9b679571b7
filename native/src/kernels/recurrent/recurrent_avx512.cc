#if defined(__x86_64__)
#include "kernels/recurrent/recurrent_lanes.h"
#include "kernels/simd/simd_avx512.h"

namespace aiomlc {

RecurrentKernels Avx512RecurrentKernels() { return Recurrent<Avx512Lanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
