#include "device.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <utility>

#include "opencl_error.h"

namespace aiomlc::opencl {
namespace {

std::string Text(const Api& api, cl_device_id id, cl_uint name) {
  size_t size = 0;
  if (api.GetDeviceInfo(id, name, 0, nullptr, &size) != kSuccess || size == 0) return "";
  std::string text(size, '\0');
  if (api.GetDeviceInfo(id, name, size, text.data(), nullptr) != kSuccess) return "";
  text.resize(text.find('\0') == std::string::npos ? size : text.find('\0'));
  return text;
}

template <typename Value>
Value Number(const Api& api, cl_device_id id, cl_uint name) {
  Value value{};
  api.GetDeviceInfo(id, name, sizeof(value), &value, nullptr);  // Zero if it has no such property.
  return value;
}

std::string PlatformName(const Api& api, cl_platform_id platform) {
  std::array<char, 256> name{};
  api.GetPlatformInfo(platform, kPlatformName, name.size() - 1, name.data(), nullptr);
  return name.data();
}

DeviceInfo ReadInfo(const Api& api, cl_platform_id platform, cl_device_id id) {
  DeviceInfo info;
  info.name = Text(api, id, kDeviceName);
  info.platform = PlatformName(api, platform);
  info.driver_version = Text(api, id, kDriverVersion);
  info.device_version = Text(api, id, kDeviceVersion);
  info.extensions = Text(api, id, kDeviceExtensions);
  info.type = Number<cl_bitfield>(api, id, kDeviceType);
  info.global_memory = Number<cl_ulong>(api, id, kDeviceGlobalMemSize);
  info.max_allocation = Number<cl_ulong>(api, id, kDeviceMaxMemAllocSize);
  info.local_memory = Number<cl_ulong>(api, id, kDeviceLocalMemSize);
  info.max_work_group = Number<size_t>(api, id, kDeviceMaxWorkGroupSize);
  info.compute_units = Number<cl_uint>(api, id, kDeviceMaxComputeUnits);
  info.clock_mhz = Number<cl_uint>(api, id, kDeviceMaxClockFrequency);
  info.unified_memory = Number<cl_uint>(api, id, kDeviceHostUnifiedMemory) != 0;
  info.max_work_items = Number<std::array<size_t, 3>>(api, id, kDeviceMaxWorkItemSizes);
  return info;
}

/*! \brief Return the usable devices of a platform. */
std::vector<cl_device_id> DevicesOf(const Api& api, cl_platform_id platform) {
  cl_uint count = 0;
  if (api.GetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count) != kSuccess) return {};
  std::vector<cl_device_id> ids(count);
  if (api.GetDeviceIDs(platform, kDeviceTypeAll, count, ids.data(), nullptr) != kSuccess) return {};
  std::erase_if(ids, [&api](cl_device_id id) {
    return Number<cl_uint>(api, id, kDeviceAvailable) == 0 ||
           Number<cl_uint>(api, id, kDeviceCompilerAvailable) == 0;
  });
  return ids;
}

std::vector<std::unique_ptr<Device>> FindDevices() {
  const Api& api = LoadApi();
  cl_uint count = 0;
  const cl_int code = api.GetPlatformIDs(0, nullptr, &count);
  if (code == kPlatformNotFound || (code == kSuccess && count == 0)) {
    ThrowMissing(
        "the OpenCL loader finds no driver: install the driver of the device, or set "
        "OCL_ICD_VENDORS (ocl-icd) or OCL_ICD_FILENAMES (Khronos' loader) to its library");
  }
  if (code != kSuccess) ThrowError("clGetPlatformIDs", code);
  std::vector<cl_platform_id> platforms(count);
  if (const cl_int error = api.GetPlatformIDs(count, platforms.data(), nullptr)) {
    ThrowError("clGetPlatformIDs", error);
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (cl_platform_id platform : platforms) {
    for (cl_device_id id : DevicesOf(api, platform)) {
      devices.push_back(std::make_unique<Device>(api, platform, id));
    }
  }
  if (devices.empty()) ThrowMissing("the OpenCL drivers of this machine have no device");
  std::stable_partition(devices.begin(), devices.end(), [](const auto& device) {
    return (device->info().type & kDeviceTypeGpu) != 0;
  });
  return devices;
}

}  // namespace

const char* DeviceInfo::type_name() const {
  if ((type & kDeviceTypeGpu) != 0) return "gpu";
  if ((type & kDeviceTypeCpu) != 0) return "cpu";
  return (type & kDeviceTypeAccelerator) != 0 ? "accelerator" : "other";
}

Context::Context(Device* device) : device_(device) {
  const Api& api = device->api();
  const cl_device_id id = device->id();
  const cl_property properties[] = {kContextPlatform,
                                    reinterpret_cast<cl_property>(device->platform()), 0};
  cl_int code = kSuccess;
  handle_ = api.CreateContext(properties, 1, &id, nullptr, nullptr, &code);
  if (code != kSuccess) ThrowError("clCreateContext on " + device->info().name, code);
  queue_ = api.CreateCommandQueue(handle_, id, 0, &code);
  if (code != kSuccess) {
    api.ReleaseContext(handle_);
    ThrowError("clCreateCommandQueue on " + device->info().name, code);
  }
}

Context::~Context() {
  device_->api().ReleaseCommandQueue(queue_);
  device_->api().ReleaseContext(handle_);
}

Buffer::Buffer(std::shared_ptr<Context> context, size_t nbytes)
    : context_(std::move(context)), nbytes_(std::max<size_t>(nbytes, 1)) {
  Device& device = context_->device();
  device.Reserve(nbytes_);
  cl_int code = kSuccess;
  handle_ = device.api().CreateBuffer(context_->handle(), kMemReadWrite, nbytes_, nullptr, &code);
  if (code == kSuccess) return;
  device.Unreserve(nbytes_);
  device.Check(code, "clCreateBuffer of " + std::to_string(nbytes_) + " bytes");
}

Buffer::~Buffer() {
  Device& device = context_->device();
  device.api().ReleaseMemObject(handle_);
  device.Unreserve(nbytes_);
}

Device::Device(const Api& api, cl_platform_id platform, cl_device_id id)
    : api_(api),
      platform_(platform),
      id_(id),
      info_(ReadInfo(api, platform, id)),
      memory_limit_(info_.global_memory) {}

std::shared_ptr<Context> Device::context() {
  const std::lock_guard lock(mutex_);
  if (context_ == nullptr) context_ = std::make_shared<Context>(this);
  return context_;
}

void Device::RequireCurrent(const Context& context) {
  const std::lock_guard lock(mutex_);
  if (context_.get() != &context) {
    throw tvm::ffi::Error("RuntimeError",
                          "OpenCL: the device " + info_.name + " was lost; open a new engine", "");
  }
}

void Device::Check(cl_int code, const std::string& call) {
  if (code == kSuccess) return;
  if (IsFatal(code)) {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }
  ThrowError(call + " on " + info_.name, code);
}

void Device::Reserve(size_t nbytes) {
  const uint64_t limit = memory_limit_;
  if ((allocated_ += nbytes) <= limit) return;
  const uint64_t used = allocated_ -= nbytes;
  throw tvm::ffi::Error("MemoryError",
                        "OpenCL: " + std::to_string(nbytes) + " bytes do not fit on " + info_.name +
                            ": " + std::to_string(used) + " of " + std::to_string(limit) +
                            " bytes are in use",
                        "");
}

void Device::CountLaunch() {
  if (launches_left_ > 0 && --launches_left_ == 0) {
    Check(kDeviceNotAvailable, "clEnqueueNDRangeKernel (injected fault)");
  }
}

void Device::InjectFaults(uint64_t memory_limit, int64_t launches) {
  memory_limit_ = memory_limit == 0 ? info_.global_memory : memory_limit;
  launches_left_ = launches;
}

const std::vector<std::unique_ptr<Device>>& Devices() {
  static std::mutex mutex;
  // Never destroyed: tensors of other static objects may still need their devices.
  static auto* devices = new std::vector<std::unique_ptr<Device>>();
  const std::lock_guard lock(mutex);
  if (devices->empty()) *devices = FindDevices();
  return *devices;
}

Device& DeviceAt(int index) {
  const auto& devices = Devices();
  if (index < 0 || static_cast<size_t>(index) >= devices.size()) {
    ThrowMissing("there is no device opencl:" + std::to_string(index) + ": this machine has " +
                 std::to_string(devices.size()) + ", from opencl:0");
  }
  return *devices[static_cast<size_t>(index)];
}

}  // namespace aiomlc::opencl
