/*!
 * \file opencl/kernel_source.cc
 * \brief The format in which TVM stores the kernels of a library.
 *
 * Little-endian: the format's name "cl", the number of kernels, of each its name, its signature,
 * and then the source. A text or list is its length, 8 bytes, and its elements.
 */
#include <tvm/ffi/error.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "program.h"

namespace aiomlc::opencl {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr const char* kFormat = "cl";

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename Value>
  Value Number() {
    Value value{};
    std::memcpy(&value, Take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::string Text() { return std::string(Take(Number<uint64_t>())); }

 private:
  std::string_view Take(uint64_t count) {
    if (count > bytes_.size()) {
      throw tvm::ffi::Error("ValueError", "the OpenCL kernels of the library are truncated", "");
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::string_view bytes_;
};

class Writer {
 public:
  template <typename Value>
  void Number(Value value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Text(const std::string& text) {
    Number<uint64_t>(text.size());
    bytes += text;
  }
  std::string bytes;
};

KernelInfo ReadKernel(Reader* reader) {
  KernelInfo info;
  reader->Text();  // The name again.
  for (auto left = reader->Number<uint64_t>(); left > 0; --left) {
    const auto code = reader->Number<uint8_t>();
    const auto bits = reader->Number<uint8_t>();
    info.arg_types.push_back(DLDataType{code, bits, reader->Number<uint16_t>()});
  }
  for (auto left = reader->Number<uint64_t>(); left > 0; --left) {
    info.launch_tags.push_back(reader->Text());
  }
  for (auto left = reader->Number<uint64_t>(); left > 0; --left) reader->Number<int32_t>();
  return info;
}

}  // namespace

std::string KernelSource::Serialize() const {
  Writer writer;
  writer.Text(kFormat);
  writer.Number<uint64_t>(kernels.size());
  for (const auto& [name, info] : kernels) {
    writer.Text(name);
    writer.Text(name);
    writer.Number<uint64_t>(info.arg_types.size());
    for (const DLDataType& type : info.arg_types) {
      writer.Number(type.code);
      writer.Number(type.bits);
      writer.Number(type.lanes);
    }
    writer.Number<uint64_t>(info.launch_tags.size());
    for (const std::string& tag : info.launch_tags) writer.Text(tag);
    writer.Number<uint64_t>(info.arg_types.size());
    for (size_t i = 0; i < info.arg_types.size(); ++i) writer.Number<int32_t>(0);
  }
  writer.Text(text);
  return std::move(writer.bytes);
}

KernelSource KernelSource::Parse(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.Text() != kFormat) {
    throw tvm::ffi::Error("ValueError", "the library has no OpenCL kernels as source", "");
  }
  KernelSource source;
  for (auto left = reader.Number<uint64_t>(); left > 0; --left) {
    const std::string name = reader.Text();
    source.kernels[name] = ReadKernel(&reader);
  }
  source.text = reader.Text();
  return source;
}

}  // namespace aiomlc::opencl
