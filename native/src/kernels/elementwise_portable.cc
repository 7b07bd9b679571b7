#include "elementwise_rows.h"
#include "simd_portable.h"

namespace aiomlc {

RowKernels PortableRowKernels() { return Rows<PortableLanes>::Kernels(); }

}  // namespace aiomlc
