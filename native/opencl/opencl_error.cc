#include "opencl_error.h"

#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <utility>

namespace aiomlc::opencl {
namespace {

constexpr std::array<std::pair<cl_int, const char*>, 38> kNames{{
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-15, "CL_COMPILE_PROGRAM_FAILURE"},
    {-16, "CL_LINKER_NOT_AVAILABLE"},
    {-17, "CL_LINK_PROGRAM_FAILURE"},
    {-30, "CL_INVALID_VALUE"},
    {-31, "CL_INVALID_DEVICE_TYPE"},
    {-32, "CL_INVALID_PLATFORM"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-42, "CL_INVALID_BINARY"},
    {-43, "CL_INVALID_BUILD_OPTIONS"},
    {-44, "CL_INVALID_PROGRAM"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-56, "CL_INVALID_GLOBAL_OFFSET"},
    {-59, "CL_INVALID_OPERATION"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
}};

bool IsOutOfMemory(cl_int code) {
  return code == kMemObjectAllocationFailure || code == kOutOfHostMemory ||
         code == kInvalidBufferSize;
}

}  // namespace

std::string ErrorName(cl_int code) {
  const auto* found = std::find_if(kNames.begin(), kNames.end(),
                                   [code](const auto& name) { return name.first == code; });
  const std::string name = found == kNames.end() ? "unknown error" : found->second;
  return name + " (" + std::to_string(code) + ")";
}

void ThrowMissing(const std::string& problem) {
  throw tvm::ffi::Error("BadRequestError", "device 'opencl': " + problem, "");
}

void ThrowError(const std::string& call, cl_int code) {
  const char* kind = IsOutOfMemory(code) ? "MemoryError" : "RuntimeError";
  throw tvm::ffi::Error(kind, "OpenCL: " + call + ": " + ErrorName(code), "");
}

bool IsFatal(cl_int code) {
  return code == kDeviceNotAvailable || code == kOutOfResources || code == kInvalidDevice ||
         code == kInvalidContext || code == kInvalidCommandQueue;
}

}  // namespace aiomlc::opencl
