#include "program.h"

#include <tvm/ffi/error.h>

#include <array>

#include "opencl_error.h"

namespace aiomlc::opencl {

Program::Program(std::shared_ptr<Context> context, const std::string& text, std::string_view binary)
    : context_(std::move(context)) {
  try {
    if (!BuildBinary(binary)) BuildSource(text);
  } catch (...) {
    if (handle_ != nullptr) context_->device().api().ReleaseProgram(handle_);
    throw;
  }
}

Program::~Program() {
  const Api& api = context_->device().api();
  for (const auto& [name, kernel] : kernels_) api.ReleaseKernel(kernel);
  api.ReleaseProgram(handle_);
}

bool Program::BuildBinary(std::string_view binary) {
  if (binary.empty()) return false;
  const Api& api = context_->device().api();
  const cl_device_id id = context_->device().id();
  const size_t size = binary.size();
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int status = kSuccess, code = kSuccess;
  handle_ = api.CreateProgramWithBinary(context_->handle(), 1, &id, &size, &data, &status, &code);
  if (code == kSuccess && status == kSuccess &&
      api.BuildProgram(handle_, 1, &id, "", nullptr, nullptr) == kSuccess) {
    return true;
  }
  if (handle_ != nullptr) api.ReleaseProgram(handle_);
  handle_ = nullptr;
  return false;
}

void Program::BuildSource(const std::string& text) {
  Device& device = context_->device();
  const Api& api = device.api();
  const cl_device_id id = device.id();
  const char* data = text.data();
  const size_t size = text.size();
  cl_int code = kSuccess;
  handle_ = api.CreateProgramWithSource(context_->handle(), 1, &data, &size, &code);
  device.Check(code, "clCreateProgramWithSource");
  code = api.BuildProgram(handle_, 1, &id, "", nullptr, nullptr);
  if (code == kSuccess) return;
  size_t log_size = 0;
  api.GetProgramBuildInfo(handle_, id, kProgramBuildLog, 0, nullptr, &log_size);
  std::string log(log_size, '\0');
  api.GetProgramBuildInfo(handle_, id, kProgramBuildLog, log_size, log.data(), nullptr);
  device.Check(code, "clBuildProgram: " + log.substr(0, 2000));
}

std::string Program::binary() const {
  const Api& api = context_->device().api();
  size_t size = 0;
  if (api.GetProgramInfo(handle_, kProgramBinarySizes, sizeof(size), &size, nullptr) != kSuccess) {
    return "";
  }
  std::string binary(size, '\0');
  char* data = binary.data();
  if (size == 0 || api.GetProgramInfo(handle_, kProgramBinaries, sizeof(data), &data, nullptr)) {
    return "";
  }
  return binary;
}

cl_kernel Program::Kernel(const std::string& name) {
  const auto found = kernels_.find(name);
  if (found != kernels_.end()) return found->second;
  cl_int code = kSuccess;
  cl_kernel kernel = context_->device().api().CreateKernel(handle_, name.c_str(), &code);
  context_->device().Check(code, "clCreateKernel of " + name);
  return kernels_[name] = kernel;
}

void Program::Launch(const std::string& name,
                     const std::vector<std::pair<const void*, size_t>>& args,
                     const LaunchSize& size) {
  Device& device = context_->device();
  device.RequireCurrent(*context_);
  std::array<size_t, 3> items{};
  for (size_t i = 0; i < items.size(); ++i) {
    items[i] = size.groups[i] * size.items[i];
    if (items[i] == 0) return;
  }
  device.CountLaunch();
  const std::lock_guard lock(mutex_);
  cl_kernel kernel = Kernel(name);
  for (size_t i = 0; i < args.size(); ++i) {
    const cl_int code =
        device.api().SetKernelArg(kernel, static_cast<cl_uint>(i), args[i].second, args[i].first);
    if (code != kSuccess) device.Check(code, "clSetKernelArg of " + name);
  }
  const cl_int code = device.api().EnqueueNDRangeKernel(
      context_->queue(), kernel, 3, nullptr, items.data(), size.items, 0, nullptr, nullptr);
  if (code != kSuccess) device.Check(code, "clEnqueueNDRangeKernel of " + name);
}

}  // namespace aiomlc::opencl
