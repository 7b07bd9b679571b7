/*!
 * \file opencl/opencl_api.h
 * \brief The part of the OpenCL C API that is used, and the loader that has its functions.
 *
 * The loader is opened at run time, so neither a build nor an installation needs OpenCL.
 */
#ifndef AIOMLC_OPENCL_OPENCL_API_H_
#define AIOMLC_OPENCL_OPENCL_API_H_

#include <cstddef>
#include <cstdint>

namespace aiomlc::opencl {

// ---- Types: the handles are pointers to structures that only a driver knows. ----
using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bitfield = cl_ulong;
using cl_property = intptr_t;
using cl_platform_id = struct _cl_platform_id*;
using cl_device_id = struct _cl_device_id*;
using cl_context = struct _cl_context*;
using cl_command_queue = struct _cl_command_queue*;
using cl_mem = struct _cl_mem*;
using cl_program = struct _cl_program*;
using cl_kernel = struct _cl_kernel*;
using cl_event = struct _cl_event*;

// ---- Constants ----
inline constexpr cl_int kSuccess = 0;
inline constexpr cl_int kDeviceNotFound = -1;
inline constexpr cl_int kDeviceNotAvailable = -2;
inline constexpr cl_int kMemObjectAllocationFailure = -4;
inline constexpr cl_int kOutOfResources = -5;
inline constexpr cl_int kOutOfHostMemory = -6;
inline constexpr cl_int kBuildProgramFailure = -11;
inline constexpr cl_int kInvalidDevice = -33;
inline constexpr cl_int kInvalidContext = -34;
inline constexpr cl_int kInvalidCommandQueue = -36;
inline constexpr cl_int kInvalidBufferSize = -61;
inline constexpr cl_int kPlatformNotFound = -1001;  // Of the loader: there is no driver.

inline constexpr cl_uint kBlocking = 1;
inline constexpr cl_bitfield kMemReadWrite = 1 << 0;
inline constexpr cl_bitfield kDeviceTypeAll = 0xFFFFFFFF;
inline constexpr cl_bitfield kDeviceTypeCpu = 1 << 1;
inline constexpr cl_bitfield kDeviceTypeGpu = 1 << 2;
inline constexpr cl_bitfield kDeviceTypeAccelerator = 1 << 3;
inline constexpr cl_property kContextPlatform = 0x1084;

inline constexpr cl_uint kPlatformName = 0x0902;
inline constexpr cl_uint kDeviceType = 0x1000;
inline constexpr cl_uint kDeviceMaxComputeUnits = 0x1002;
inline constexpr cl_uint kDeviceMaxWorkGroupSize = 0x1004;
inline constexpr cl_uint kDeviceMaxWorkItemSizes = 0x1005;
inline constexpr cl_uint kDeviceMaxClockFrequency = 0x100C;
inline constexpr cl_uint kDeviceMaxMemAllocSize = 0x1010;
inline constexpr cl_uint kDeviceGlobalMemSize = 0x101F;
inline constexpr cl_uint kDeviceLocalMemSize = 0x1023;
inline constexpr cl_uint kDeviceAvailable = 0x1027;
inline constexpr cl_uint kDeviceCompilerAvailable = 0x1028;
inline constexpr cl_uint kDeviceName = 0x102B;
inline constexpr cl_uint kDriverVersion = 0x102D;
inline constexpr cl_uint kDeviceVersion = 0x102F;
inline constexpr cl_uint kDeviceExtensions = 0x1030;
inline constexpr cl_uint kDeviceHostUnifiedMemory = 0x1035;
inline constexpr cl_uint kProgramBinarySizes = 0x1165;
inline constexpr cl_uint kProgramBinaries = 0x1166;
inline constexpr cl_uint kProgramBuildLog = 0x1183;

/*! \brief The functions of the loader, by their names without the prefix `cl`. */
struct Api {
  cl_int (*GetPlatformIDs)(cl_uint, cl_platform_id*, cl_uint*);
  cl_int (*GetPlatformInfo)(cl_platform_id, cl_uint, size_t, void*, size_t*);
  cl_int (*GetDeviceIDs)(cl_platform_id, cl_bitfield, cl_uint, cl_device_id*, cl_uint*);
  cl_int (*GetDeviceInfo)(cl_device_id, cl_uint, size_t, void*, size_t*);
  cl_context (*CreateContext)(const cl_property*, cl_uint, const cl_device_id*,
                              void (*)(const char*, const void*, size_t, void*), void*, cl_int*);
  cl_int (*ReleaseContext)(cl_context);
  cl_command_queue (*CreateCommandQueue)(cl_context, cl_device_id, cl_bitfield, cl_int*);
  cl_int (*ReleaseCommandQueue)(cl_command_queue);
  cl_mem (*CreateBuffer)(cl_context, cl_bitfield, size_t, void*, cl_int*);
  cl_int (*ReleaseMemObject)(cl_mem);
  cl_program (*CreateProgramWithSource)(cl_context, cl_uint, const char**, const size_t*, cl_int*);
  cl_program (*CreateProgramWithBinary)(cl_context, cl_uint, const cl_device_id*, const size_t*,
                                        const unsigned char**, cl_int*, cl_int*);
  cl_int (*BuildProgram)(cl_program, cl_uint, const cl_device_id*, const char*,
                         void (*)(cl_program, void*), void*);
  cl_int (*GetProgramBuildInfo)(cl_program, cl_device_id, cl_uint, size_t, void*, size_t*);
  cl_int (*GetProgramInfo)(cl_program, cl_uint, size_t, void*, size_t*);
  cl_int (*ReleaseProgram)(cl_program);
  cl_kernel (*CreateKernel)(cl_program, const char*, cl_int*);
  cl_int (*ReleaseKernel)(cl_kernel);
  cl_int (*SetKernelArg)(cl_kernel, cl_uint, size_t, const void*);
  cl_int (*EnqueueNDRangeKernel)(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*,
                                 const size_t*, cl_uint, const cl_event*, cl_event*);
  cl_int (*EnqueueReadBuffer)(cl_command_queue, cl_mem, cl_uint, size_t, size_t, void*, cl_uint,
                              const cl_event*, cl_event*);
  cl_int (*EnqueueWriteBuffer)(cl_command_queue, cl_mem, cl_uint, size_t, size_t, const void*,
                               cl_uint, const cl_event*, cl_event*);
  cl_int (*EnqueueCopyBuffer)(cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint,
                              const cl_event*, cl_event*);
  cl_int (*Flush)(cl_command_queue);
  cl_int (*Finish)(cl_command_queue);
};

/*!
 * \brief Open the loader, `$AIOMLC_OPENCL_LOADER` or `libOpenCL.so.1`, and return its functions.
 *
 * A loader that was opened stays open; a failure is not remembered.
 *
 * \throws ffi::Error of the kind BadRequestError if there is no loader.
 */
const Api& LoadApi();

}  // namespace aiomlc::opencl

#endif  // AIOMLC_OPENCL_OPENCL_API_H_
