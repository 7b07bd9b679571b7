#include "kernels/recurrent/recurrent_lanes.h"
#include "kernels/simd/simd_portable.h"

namespace aiomlc {

RecurrentKernels PortableRecurrentKernels() { return Recurrent<PortableLanes>::Kernels(); }

}  // namespace aiomlc
