#include "module.h"

#include <tvm/ffi/cast.h>
#include <tvm/ffi/function.h>

#include <cstring>
#include <utility>
#include <vector>

namespace aiomlc::opencl {

namespace ffi = tvm::ffi;

namespace {

/*! \brief The place of a number after a kernel's arguments in its launch. */
size_t* Slot(LaunchSize* size, const std::string& tag) {
  static constexpr std::string_view kGroups = "blockIdx.", kItems = "threadIdx.";
  size_t* const numbers = tag.starts_with(kGroups)  ? size->groups
                          : tag.starts_with(kItems) ? size->items
                                                    : nullptr;
  const int dimension = tag.empty() ? -1 : tag.back() - 'x';
  if (numbers == nullptr || dimension < 0 || dimension > 2) {
    throw ffi::Error("ValueError", "OpenCL: the kernel is launched with " + tag, "");
  }
  return numbers + dimension;
}

/*! \brief Converts a call's arguments to those of a kernel. */
class Arguments {
 public:
  Arguments(const KernelInfo& info, ffi::PackedArgs args) : values_(info.arg_types.size()) {
    const size_t count = info.arg_types.size();
    if (static_cast<size_t>(args.size()) != count + info.launch_tags.size()) {
      throw ffi::Error("TypeError", "OpenCL: a kernel is called with other arguments", "");
    }
    for (size_t i = 0; i < count; ++i) {
      Convert(info.arg_types[i], args[static_cast<int>(i)], &values_[i]);
    }
    for (size_t i = 0; i < info.launch_tags.size(); ++i) {
      *Slot(&size, info.launch_tags[i]) =
          static_cast<size_t>(args[static_cast<int>(count + i)].cast<int64_t>());
    }
  }

  std::vector<std::pair<const void*, size_t>> list() const {
    std::vector<std::pair<const void*, size_t>> list;
    for (const Value& value : values_) list.emplace_back(value.bytes, value.size);
    return list;
  }
  /*! \brief The context of the first tensor; null if there is none. */
  std::shared_ptr<Context> context;
  LaunchSize size;

 private:
  struct Value {
    alignas(8) char bytes[8] = {};
    size_t size = 0;
  };

  template <typename Number>
  static void Store(Number number, Value* value) {
    std::memcpy(value->bytes, &number, sizeof(number));
    value->size = sizeof(number);
  }

  void Convert(DLDataType type, ffi::AnyView arg, Value* value) {
    if (type.code == kDLOpaqueHandle) {
      const auto* buffer = static_cast<const Buffer*>(arg.cast<void*>());
      Store(buffer == nullptr ? nullptr : buffer->handle(), value);
      if (buffer != nullptr && context == nullptr) context = buffer->context();
    } else if (type.code == kDLFloat && type.bits == 32) {
      Store(static_cast<float>(arg.cast<double>()), value);
    } else if (type.code == kDLFloat && type.bits == 64) {
      Store(arg.cast<double>(), value);
    } else if ((type.code == kDLInt || type.code == kDLUInt) && type.bits == 64) {
      Store(arg.cast<int64_t>(), value);
    } else if ((type.code == kDLInt || type.code == kDLUInt) && type.bits == 32) {
      Store(static_cast<int32_t>(arg.cast<int64_t>()), value);
    } else {
      throw ffi::Error(
          "TypeError",
          "OpenCL: a kernel has an argument of the type " + ffi::DLDataTypeToString(type), "");
    }
  }

  std::vector<Value> values_;
};

}  // namespace

ffi::Optional<ffi::Function> OpenCLModule::GetFunction(const ffi::String& name) {
  const auto found = source_.kernels.find(std::string(name));
  if (found == source_.kernels.end()) return std::nullopt;
  // The map is constant, so its elements stay where they are as long as the module lives.
  return ffi::Function::FromPacked(
      [self = ffi::GetRef<ffi::Module>(this), this, &kernel = found->first, &info = found->second](
          ffi::PackedArgs args, ffi::Any* /*result*/) {
        const Arguments arguments(info, args);
        const std::shared_ptr<Context> context =
            arguments.context == nullptr ? DeviceAt(0).context() : arguments.context;
        ProgramIn(context)->Launch(kernel, arguments.list(), arguments.size);
      });
}

ffi::Bytes OpenCLModule::SaveToBytes() const { return ffi::Bytes(source_.Serialize()); }

std::shared_ptr<Program> OpenCLModule::Build(Device* device, std::string_view binary) {
  auto program = std::make_shared<Program>(device->context(), source_.text, binary);
  const std::lock_guard lock(mutex_);
  return programs_[device] = program;
}

std::shared_ptr<Program> OpenCLModule::ProgramIn(const std::shared_ptr<Context>& context) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Program>& program = programs_[&context->device()];
  if (program == nullptr || program->context() != context) {
    program = std::make_shared<Program>(context, source_.text, "");
  }
  return program;
}

std::vector<OpenCLModule*> ModulesIn(const ffi::Module& library) {
  std::vector<OpenCLModule*> found;
  if (auto* module = dynamic_cast<OpenCLModule*>(const_cast<ffi::ModuleObj*>(library.get()))) {
    found.push_back(module);
  }
  for (const ffi::Any& imported : library->imports()) {
    const std::vector<OpenCLModule*> more = ModulesIn(imported.cast<ffi::Module>());
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

}  // namespace aiomlc::opencl
