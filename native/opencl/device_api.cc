/*!
 * \file opencl/device_api.cc
 * \brief TVM's interface of devices for OpenCL: memory and transfers.
 *
 * The data pointer of a tensor is a `Buffer`; where it begins in it is the tensor's byte offset.
 */
#include "device_api.h"

#include <tvm/ffi/string.h>
#include <tvm/runtime/device_api.h>

#include <string>

#include "device.h"

namespace aiomlc::opencl {
namespace {

namespace ffi = tvm::ffi;
namespace runtime = tvm::runtime;

Buffer* ToBuffer(const void* data) { return static_cast<Buffer*>(const_cast<void*>(data)); }

std::string Dimensions(const DeviceInfo& info) {
  std::string text = "[";
  for (size_t size : info.max_work_items) text += std::to_string(size) + ", ";
  return text.substr(0, text.size() - 2) + "]";
}

class DeviceAPI final : public runtime::DeviceAPI {
 public:
  void SetDevice(tvm::Device /*device*/) final {}

  void GetAttr(tvm::Device device, runtime::DeviceAttrKind kind, ffi::Any* result) final {
    if (kind == runtime::kExist) {
      *result = Exists(device.device_id);
      return;
    }
    Device& opencl_device = DeviceAt(device.device_id);
    const DeviceInfo& info = opencl_device.info();
    switch (kind) {
      case runtime::kMaxThreadsPerBlock:
        *result = static_cast<int64_t>(info.max_work_group);
        break;
      case runtime::kWarpSize:
        *result = static_cast<int64_t>(1);  // OpenCL has no warps before its subgroups.
        break;
      case runtime::kMaxSharedMemoryPerBlock:
        *result = static_cast<int64_t>(info.local_memory);
        break;
      case runtime::kComputeVersion:
        *result = ffi::String(info.device_version);
        break;
      case runtime::kDeviceName:
        *result = ffi::String(info.name);
        break;
      case runtime::kMaxClockRate:
        *result = static_cast<int64_t>(info.clock_mhz * 1000);
        break;
      case runtime::kMultiProcessorCount:
        *result = static_cast<int64_t>(info.compute_units);
        break;
      case runtime::kMaxThreadDimensions:
        *result = ffi::String(Dimensions(info));
        break;
      case runtime::kDriverVersion:
        *result = ffi::String(info.driver_version);
        break;
      case runtime::kTotalGlobalMemory:
        *result = static_cast<int64_t>(info.global_memory);
        break;
      case runtime::kAvailableGlobalMemory:
        *result = static_cast<int64_t>(info.global_memory - opencl_device.allocated_bytes());
        break;
      default:
        *result = nullptr;
    }
  }

  void* AllocDataSpace(tvm::Device device, size_t nbytes, size_t /*alignment*/,
                       DLDataType /*type_hint*/) final {
    return new Buffer(DeviceAt(device.device_id).context(), nbytes);
  }

  void FreeDataSpace(tvm::Device /*device*/, void* data) final { delete ToBuffer(data); }

  void StreamSync(tvm::Device device, TVMStreamHandle /*stream*/) final {
    Device& opencl_device = DeviceAt(device.device_id);
    opencl_device.Check(opencl_device.api().Finish(opencl_device.context()->queue()), "clFinish");
  }

 protected:
  /*! \brief Copy between the host and a device, or on a device; returns when it is done. */
  void CopyDataFromTo(const void* from, size_t from_offset, void* to, size_t to_offset,
                      size_t nbytes, tvm::Device from_device, tvm::Device to_device,
                      DLDataType /*type_hint*/, TVMStreamHandle /*stream*/) final {
    if (nbytes == 0) return;
    if (from_device.device_type == kDLCPU) {
      Write(static_cast<const char*>(from) + from_offset, *ToBuffer(to), to_offset, nbytes);
    } else if (to_device.device_type == kDLCPU) {
      Read(*ToBuffer(from), from_offset, static_cast<char*>(to) + to_offset, nbytes);
    } else if (from_device.device_id == to_device.device_id) {
      Copy(*ToBuffer(from), from_offset, *ToBuffer(to), to_offset, nbytes);
    } else {  // Devices do not see each other's memory.
      std::string data(nbytes, '\0');
      Read(*ToBuffer(from), from_offset, data.data(), nbytes);
      Write(data.data(), *ToBuffer(to), to_offset, nbytes);
    }
  }

 private:
  static bool Exists(int index) {
    try {
      DeviceAt(index);
      return true;
    } catch (const ffi::Error&) {
      return false;
    }
  }

  static Device& CurrentDevice(const Buffer& buffer) {
    Device& device = buffer.context()->device();
    device.RequireCurrent(*buffer.context());
    return device;
  }

  static void Write(const char* data, const Buffer& to, size_t offset, size_t nbytes) {
    Device& device = CurrentDevice(to);
    device.Check(device.api().EnqueueWriteBuffer(to.context()->queue(), to.handle(), kBlocking,
                                                 offset, nbytes, data, 0, nullptr, nullptr),
                 "clEnqueueWriteBuffer");
  }

  static void Read(const Buffer& from, size_t offset, char* data, size_t nbytes) {
    Device& device = CurrentDevice(from);
    device.Check(device.api().EnqueueReadBuffer(from.context()->queue(), from.handle(), kBlocking,
                                                offset, nbytes, data, 0, nullptr, nullptr),
                 "clEnqueueReadBuffer");
  }

  static void Copy(const Buffer& from, size_t from_offset, const Buffer& to, size_t to_offset,
                   size_t nbytes) {
    Device& device = CurrentDevice(from);
    device.RequireCurrent(*to.context());
    device.Check(
        device.api().EnqueueCopyBuffer(from.context()->queue(), from.handle(), to.handle(),
                                       from_offset, to_offset, nbytes, 0, nullptr, nullptr),
        "clEnqueueCopyBuffer");
  }
};

}  // namespace

void* SharedDeviceApi() {
  // Never destroyed: tensors of other static objects may still use it.
  static auto* api = new DeviceAPI();
  return static_cast<runtime::DeviceAPI*>(api);
}

}  // namespace aiomlc::opencl
