/*!
 * \file opencl/ffi.cc
 * \brief OpenCL's devices and modules as FFI globals: those that TVM looks for, and our own.
 */
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/reflection/accessor.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <string>
#include <utility>

#include "device.h"
#include "device_api.h"
#include "module.h"

namespace aiomlc::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

ffi::Module NewModule(KernelSource source) {
  return ffi::Module(ffi::make_object<OpenCLModule>(std::move(source)));
}

template <typename Value>
Value Field(const ffi::ObjectRef& object, const char* name) {
  const std::string key(object->GetTypeKey());
  return refl::FieldGetter(std::string_view(key), name)(object).cast<Value>();
}

/*! \param functions The `runtime.FunctionInfo` of each kernel. */
ffi::Module CreateModule(const ffi::Bytes& code, const ffi::String& format,
                         const ffi::Map<ffi::String, ffi::ObjectRef>& functions,
                         const ffi::Any& /*sources*/) {
  if (format != "cl") {
    throw ffi::Error("ValueError",
                     "OpenCL: kernels are built from source, not " + std::string(format), "");
  }
  KernelSource source;
  source.text = std::string(code.data(), code.size());
  for (const auto& [name, function] : functions) {
    KernelInfo& info = source.kernels[std::string(name)];
    for (DLDataType type : Field<ffi::Array<DLDataType>>(function, "arg_types")) {
      info.arg_types.push_back(type);
    }
    for (const ffi::String& tag : Field<ffi::Array<ffi::String>>(function, "launch_param_tags")) {
      info.launch_tags.emplace_back(tag);
    }
  }
  return NewModule(std::move(source));
}

ffi::Module LoadModule(const ffi::Bytes& bytes) {
  return NewModule(KernelSource::Parse(std::string_view(bytes.data(), bytes.size())));
}

/*! \brief Describe the devices in the order of their indices; sizes are in bytes. */
ffi::Array<ffi::Map<ffi::String, ffi::Any>> ListDevices() {
  ffi::Array<ffi::Map<ffi::String, ffi::Any>> list;
  for (const auto& device : Devices()) {
    const DeviceInfo& info = device->info();
    list.push_back({{"name", ffi::String(info.name)},
                    {"platform", ffi::String(info.platform)},
                    {"driver_version", ffi::String(info.driver_version)},
                    {"device_version", ffi::String(info.device_version)},
                    {"kind", ffi::String(info.type_name())},
                    {"has_float16", info.extensions.find("cl_khr_fp16") != std::string::npos},
                    {"unified_memory", info.unified_memory},
                    {"max_work_group_size", static_cast<int64_t>(info.max_work_group)},
                    {"local_memory_bytes", static_cast<int64_t>(info.local_memory)},
                    {"max_allocation_bytes", static_cast<int64_t>(info.max_allocation)},
                    {"memory_bytes", static_cast<int64_t>(device->memory_limit())},
                    {"allocated_bytes", static_cast<int64_t>(device->allocated_bytes())}});
  }
  return list;
}

/*! \brief Return the sources of a library's kernels. */
ffi::String Source(const ffi::Module& library) {
  std::string text;
  for (const OpenCLModule* module : ModulesIn(library)) text += module->text();
  return text;
}

/*!
 * \brief Build a library's kernels for a device.
 * \param binary What this function returned for the same device, driver and source; or empty.
 * \return The machine code; empty if the driver does not give it.
 */
ffi::Bytes Build(const ffi::Module& library, int index, const ffi::Bytes& binary) {
  std::string built;
  for (OpenCLModule* module : ModulesIn(library)) {
    built =
        module->Build(&DeviceAt(index), std::string_view(binary.data(), binary.size()))->binary();
  }
  return ffi::Bytes(std::move(built));
}

void InjectFaults(int index, int64_t memory_limit, int64_t launches) {
  DeviceAt(index).InjectFaults(static_cast<uint64_t>(memory_limit), launches);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::GlobalDef()
      .def("device_api.opencl", SharedDeviceApi)
      .def("ffi.Module.create.opencl", CreateModule)
      .def("ffi.Module.load_from_bytes.opencl", LoadModule)
      .def("aiomlc.opencl.devices", ListDevices)
      .def("aiomlc.opencl.source", Source)
      .def("aiomlc.opencl.build", Build)
      .def("aiomlc.opencl.inject_faults", InjectFaults);
}

}  // namespace
}  // namespace aiomlc::opencl
