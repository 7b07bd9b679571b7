#if defined(__x86_64__)
#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/simd/simd_avx512.h"

namespace aiomlc {

RowKernels Avx512RowKernels() { return Rows<Avx512Lanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
