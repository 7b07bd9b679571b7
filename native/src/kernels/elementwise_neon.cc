#if defined(__aarch64__)
#include "elementwise_rows.h"
#include "simd_neon.h"

namespace aiomlc {

RowKernels NeonRowKernels() { return Rows<NeonLanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__aarch64__)
