/*!
 * \file opencl/program.h
 * \brief The kernels of a library: their signatures, their source, and their program on a device.
 */
#ifndef AIOMLC_OPENCL_PROGRAM_H_
#define AIOMLC_OPENCL_PROGRAM_H_

#include <tvm/ffi/dtype.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device.h"

namespace aiomlc::opencl {

/*! \brief A launch: work groups and the items of one, in the dimensions x, y, z. */
struct LaunchSize {
  size_t groups[3] = {1, 1, 1};
  size_t items[3] = {1, 1, 1};
};

/*! \brief The signature of a kernel. */
struct KernelInfo {
  std::vector<DLDataType> arg_types;
  /*! \brief The meanings of the numbers after the arguments, as `blockIdx.x`. */
  std::vector<std::string> launch_tags;
};

/*! \brief The kernels of a library, as TVM writes them. */
struct KernelSource {
  std::map<std::string, KernelInfo> kernels;
  std::string text;
  std::string Serialize() const;
  /*! \throws ffi::Error if the bytes are not those of `Serialize` or of TVM's own module. */
  static KernelSource Parse(std::string_view bytes);
};

/*! \brief A program in one context. */
class Program {
 public:
  /*!
   * \param binary What `binary()` returned for the same device, driver and source; or empty. One
   * that the driver refuses is ignored.
   * \throws ffi::Error if the source cannot be built; the message has the driver's log.
   */
  Program(std::shared_ptr<Context> context, const std::string& text, std::string_view binary);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::shared_ptr<Context>& context() const { return context_; }
  /*! \brief Return the machine code; empty if the driver does not give it. */
  std::string binary() const;
  /*! \brief Return a kernel, which the program owns. */
  cl_kernel Kernel(const std::string& name);
  /*! \brief Set the arguments of a kernel and launch it. */
  void Launch(const std::string& name, const std::vector<std::pair<const void*, size_t>>& args,
              const LaunchSize& size);

 private:
  bool BuildBinary(std::string_view binary);
  void BuildSource(const std::string& text);

  const std::shared_ptr<Context> context_;
  cl_program handle_ = nullptr;
  std::mutex mutex_;  // The arguments belong to a kernel object.
  std::map<std::string, cl_kernel> kernels_;
};

}  // namespace aiomlc::opencl

#endif  // AIOMLC_OPENCL_PROGRAM_H_
