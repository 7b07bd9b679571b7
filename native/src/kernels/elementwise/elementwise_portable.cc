#include "kernels/elementwise/elementwise_rows.h"
#include "kernels/simd/simd_portable.h"

namespace aiomlc {

RowKernels PortableRowKernels() { return Rows<PortableLanes>::Kernels(); }

}  // namespace aiomlc
