#include "opencl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>

#include "opencl_error.h"

namespace aiomlc::opencl {
namespace {

constexpr const char* kLoaderVariable = "AIOMLC_OPENCL_LOADER";
constexpr const char* kLoader = "libOpenCL.so.1";

template <typename Function>
void Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr) {
    ThrowMissing(std::string("the OpenCL loader has no function ") + name);
  }
}

Api Open() {
  const char* path = std::getenv(kLoaderVariable);
  if (path == nullptr || *path == '\0') path = kLoader;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    ThrowMissing(
        "the OpenCL loader cannot be opened: " + std::string(reason == nullptr ? path : reason) +
        "; install ocl-icd-libopencl1 and the driver of the device, or set "
        "AIOMLC_OPENCL_LOADER to the path of libOpenCL.so.1");
  }
  Api api{};
#define AIOMLC_FIND(name) Find(library, "cl" #name, &api.name)
  AIOMLC_FIND(GetPlatformIDs);
  AIOMLC_FIND(GetPlatformInfo);
  AIOMLC_FIND(GetDeviceIDs);
  AIOMLC_FIND(GetDeviceInfo);
  AIOMLC_FIND(CreateContext);
  AIOMLC_FIND(ReleaseContext);
  AIOMLC_FIND(CreateCommandQueue);
  AIOMLC_FIND(ReleaseCommandQueue);
  AIOMLC_FIND(CreateBuffer);
  AIOMLC_FIND(ReleaseMemObject);
  AIOMLC_FIND(CreateProgramWithSource);
  AIOMLC_FIND(CreateProgramWithBinary);
  AIOMLC_FIND(BuildProgram);
  AIOMLC_FIND(GetProgramBuildInfo);
  AIOMLC_FIND(GetProgramInfo);
  AIOMLC_FIND(ReleaseProgram);
  AIOMLC_FIND(CreateKernel);
  AIOMLC_FIND(ReleaseKernel);
  AIOMLC_FIND(SetKernelArg);
  AIOMLC_FIND(EnqueueNDRangeKernel);
  AIOMLC_FIND(EnqueueReadBuffer);
  AIOMLC_FIND(EnqueueWriteBuffer);
  AIOMLC_FIND(EnqueueCopyBuffer);
  AIOMLC_FIND(Flush);
  AIOMLC_FIND(Finish);
#undef AIOMLC_FIND
  return api;
}

}  // namespace

const Api& LoadApi() {
  static std::mutex mutex;
  static std::optional<Api> api;
  const std::lock_guard lock(mutex);
  if (!api.has_value()) api = Open();
  return *api;
}

}  // namespace aiomlc::opencl
