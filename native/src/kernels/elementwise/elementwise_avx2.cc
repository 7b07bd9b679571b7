#if defined(__x86_64__)
#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/simd/simd_avx2.h"

namespace aiomlc {

RowKernels Avx2RowKernels() { return Rows<Avx2Lanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
