/*!
 * \file opencl/device.h
 * \brief The OpenCL devices of this machine, with one in-order queue each.
 */
#ifndef AIOMLC_OPENCL_DEVICE_H_
#define AIOMLC_OPENCL_DEVICE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "opencl_api.h"

namespace aiomlc::opencl {

/*! \brief The properties of a device; sizes are in bytes. */
struct DeviceInfo {
  std::string name, platform, driver_version, device_version, extensions;
  cl_bitfield type = 0;
  uint64_t global_memory = 0, max_allocation = 0, local_memory = 0;
  uint64_t max_work_group = 0, compute_units = 0, clock_mhz = 0;
  std::array<size_t, 3> max_work_items{1, 1, 1};
  bool unified_memory = false;

  const char* type_name() const;
};

class Device;

/*! \brief A context and its in-order queue. A device that was lost gets another context. */
class Context {
 public:
  /*! \throws ffi::Error if the driver refuses it. */
  explicit Context(Device* device);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Device& device() const { return *device_; }
  cl_context handle() const { return handle_; }
  cl_command_queue queue() const { return queue_; }

 private:
  Device* const device_;
  cl_context handle_ = nullptr;
  cl_command_queue queue_ = nullptr;
};

/*! \brief Memory on a device: what the data pointers of its tensors point to. */
class Buffer {
 public:
  /*! \throws ffi::Error MemoryError if the device has too little memory. */
  Buffer(std::shared_ptr<Context> context, size_t nbytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const std::shared_ptr<Context>& context() const { return context_; }
  cl_mem handle() const { return handle_; }

 private:
  const std::shared_ptr<Context> context_;
  const size_t nbytes_;
  cl_mem handle_ = nullptr;
};

/*! \brief One device. All methods are thread-safe. */
class Device {
 public:
  Device(const Api& api, cl_platform_id platform, cl_device_id id);

  const Api& api() const { return api_; }
  cl_platform_id platform() const { return platform_; }
  cl_device_id id() const { return id_; }
  const DeviceInfo& info() const { return info_; }
  /*! \brief Return the current context; the first call creates it. */
  std::shared_ptr<Context> context();
  /*! \throws ffi::Error if the context belongs to a device that was lost. */
  void RequireCurrent(const Context& context);

  /*!
   * \brief Throw if a call failed. After a fatal error, the next `context()` is a new one.
   * \param call The function's name and what it was to do.
   */
  void Check(cl_int code, const std::string& call);

  uint64_t allocated_bytes() const { return allocated_; }
  /*! \brief Count an allocation. \throws ffi::Error MemoryError if it exceeds the limit. */
  void Reserve(size_t nbytes);
  void Unreserve(size_t nbytes) { allocated_ -= nbytes; }
  uint64_t memory_limit() const { return memory_limit_; }

  /*! \brief Count a kernel. \throws ffi::Error if the injected loss of the device is due. */
  void CountLaunch();
  /*!
   * \brief Inject faults, for tests.
   * \param memory_limit The bytes that can be allocated; 0 for all of the device's.
   * \param launches The kernels until the device is lost; 0 for never.
   */
  void InjectFaults(uint64_t memory_limit, int64_t launches);

 private:
  const Api& api_;
  const cl_platform_id platform_;
  const cl_device_id id_;
  const DeviceInfo info_;
  std::mutex mutex_;
  std::shared_ptr<Context> context_;
  std::atomic<uint64_t> allocated_ = 0, memory_limit_;
  std::atomic<int64_t> launches_left_ = 0;
};

/*!
 * \brief Return all devices, GPUs first; their order is their index.
 * \throws ffi::Error BadRequestError if there is no loader, driver or device.
 */
const std::vector<std::unique_ptr<Device>>& Devices();

/*! \brief Return a device. \throws ffi::Error BadRequestError if there is none of this index. */
Device& DeviceAt(int index);

}  // namespace aiomlc::opencl

#endif  // AIOMLC_OPENCL_DEVICE_H_
