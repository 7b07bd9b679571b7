/*!
 * \file ffi/platform.cc
 * \brief The machine and the layout of packed weights as FFI globals.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>
#include <tvm/ffi/tvm_ffi.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "kernels/attention/attention_types.h"
#include "kernels/linear/amx_support.h"
#include "kernels/linear/format/layout.h"
#include "platform/cpu_info.h"
#include "platform/isa.h"
#include "sequence/record.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

/*! \throws A BadRequestError if `AIOMLC_ISA` has an unknown value. */
ffi::String ActiveIsaName() {
  try {
    return ffi::String(std::string(IsaName(ActiveIsa())));
  } catch (const std::invalid_argument& error) {
    throw ffi::Error("BadRequestError", error.what(), "");
  }
}

/*! \return The weight formats that AMX computes wrongly on this machine. */
ffi::Array<ffi::String> RejectedAmxFormats() {
  ffi::Array<ffi::String> formats;
  if (ActiveIsa() != Isa::kAmx) return formats;
  for (const std::string& format : AmxTrialResult().rejected) formats.push_back(format);
  return formats;
}

/*! \brief The constants that Python has as well; a test compares them. */
ffi::Map<ffi::String, int64_t> Constants() {
  return {{"TILE_ROWS", kTileRows},
          {"GROUP_SIZE", kGroupSize},
          {"GROUP_TILE_BYTES", kGroupBytes},
          {"PAGE_SIZE", kTilePageSize},
          {"NUM_FINISH_REASONS", kNumFinishReasons}};
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef()
      .def("aiomlc.physical_cores", PhysicalCores)
      .def("aiomlc.active_isa", ActiveIsaName)
      .def("aiomlc.rejected_amx_formats", RejectedAmxFormats)
      .def("aiomlc.constants", Constants);
}

}  // namespace
}  // namespace aiomlc
