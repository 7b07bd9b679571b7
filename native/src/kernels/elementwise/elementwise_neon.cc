#if defined(__aarch64__)
#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/simd/simd_neon.h"

namespace aiomlc {

RowKernels NeonRowKernels() { return Rows<NeonLanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__aarch64__)
