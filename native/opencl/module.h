/*!
 * \file opencl/module.h
 * \brief A module of TVM's whose functions launch kernels.
 */
#ifndef AIOMLC_OPENCL_MODULE_H_
#define AIOMLC_OPENCL_MODULE_H_

#include <tvm/ffi/extra/module.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "program.h"

namespace aiomlc::opencl {

/*!
 * \brief The kernels of a library. Each is built for a device at the first launch there, or by
 * `Build`.
 *
 * A kernel runs on the device of its first tensor.
 */
class OpenCLModule final : public tvm::ffi::ModuleObj {
 public:
  explicit OpenCLModule(KernelSource source) : source_(std::move(source)) {}

  const char* kind() const final { return "opencl"; }
  int GetPropertyMask() const final {
    return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable;
  }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final;
  tvm::ffi::Bytes SaveToBytes() const final;
  tvm::ffi::String InspectSource(const tvm::ffi::String& /*format*/) const final {
    return source_.text;
  }

  /*! \brief Build the kernels for a device. \param binary See `Program`. */
  std::shared_ptr<Program> Build(Device* device, std::string_view binary);
  const std::string& text() const { return source_.text; }

 private:
  /*! \brief Return the program in a context, and build it if it is not built. */
  std::shared_ptr<Program> ProgramIn(const std::shared_ptr<Context>& context);

  const KernelSource source_;
  std::mutex mutex_;
  /*! \brief The last program of each device. */
  std::map<const Device*, std::shared_ptr<Program>> programs_;
};

/*! \brief Return a module and those that it imports, directly or not, if they are of OpenCL. */
std::vector<OpenCLModule*> ModulesIn(const tvm::ffi::Module& library);

}  // namespace aiomlc::opencl

#endif  // AIOMLC_OPENCL_MODULE_H_
