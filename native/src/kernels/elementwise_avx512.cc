#if defined(__x86_64__)
#include "elementwise_rows.h"
#include "simd_avx512.h"

namespace aiomlc {

RowKernels Avx512RowKernels() { return Rows<Avx512Lanes>::Kernels(); }

}  // namespace aiomlc

#endif  // defined(__x86_64__)
