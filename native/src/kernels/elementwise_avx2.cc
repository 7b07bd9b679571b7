#if defined(__x86_64__)
#include "elementwise_rows.h"
#include "simd_avx2.h"

namespace aiomlc {

RowKernels Avx2RowKernels() { return Rows<Avx2Lanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
