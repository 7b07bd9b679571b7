/*!
 * \file ffi/cpu/collectives.cc
 * \brief The collectives of shards as FFI globals for compiled libraries. Outputs come last.
 */
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/tvm_ffi.h>

#include "collectives/communicator.h"
#include "ffi/tensor_arguments.h"

namespace aiomlc {
namespace {

namespace refl = tvm::ffi::reflection;
using tvm::ffi::TensorView;

constexpr int64_t kAny = TensorArguments::kAny;

/*! \param in float32[rows, cols]; `out` is the sum of the `in` of all shards. */
void AllReduce(TensorView in, TensorView out) {
  const TensorArguments args("aiomlc.cpu.all_reduce");
  args.RequireShape(in, "in", {kAny, kAny});
  args.RequireShape(out, "out", {in.size(0), in.size(1)});
  Communicator::Current().AllReduce(args.Data<float>(in, "in"), args.Data<float>(out, "out"),
                                    in.size(0) * in.size(1));
}

/*! \param out float32[rows, shards * cols]: the columns of all shards; only shard 0 has them. */
void Gather(TensorView in, TensorView out) {
  const TensorArguments args("aiomlc.cpu.gather_shards");
  Communicator& communicator = Communicator::Current();
  args.RequireShape(in, "in", {kAny, kAny});
  args.RequireShape(out, "out", {in.size(0), in.size(1) * communicator.size()});
  communicator.Gather(args.Data<float>(in, "in"), args.Data<float>(out, "out"), in.size(0),
                      in.size(1));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef().def("aiomlc.cpu.all_reduce", AllReduce).def("aiomlc.cpu.gather_shards", Gather);
}

}  // namespace
}  // namespace aiomlc
