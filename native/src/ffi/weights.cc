/*!
 * \file ffi/weights.cc
 * \brief The weight conversion and the mapped parameters as FFI objects.
 */
#include "weights/weights.h"

#include <tvm/ffi/tvm_ffi.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "weights/checksum.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

using Record = ffi::Map<ffi::String, ffi::Any>;

int64_t Integer(const Record& record, const char* key) { return record[key].cast<int64_t>(); }

WeightFormat ParseFormat(const ffi::String& name) {
  if (name == "q4") return WeightFormat::kQ4;
  if (name == "bf16") return WeightFormat::kBF16;
  if (name == "f32") return WeightFormat::kF32;
  TVM_FFI_THROW(ValueError) << "unknown weight format " << name;
  TVM_FFI_UNREACHABLE();
}

SourceType ParseSourceType(const ffi::String& name) {
  if (name == "q4") return SourceType::kQ4;
  if (name == "bf16") return SourceType::kBF16;
  if (name == "f16") return SourceType::kF16;
  if (name == "f32") return SourceType::kF32;
  TVM_FFI_THROW(ValueError) << "unknown source type " << name;
  TVM_FFI_UNREACHABLE();
}

SourceSlice ParseSource(const Record& record) {
  SourceSlice slice;
  slice.file = static_cast<int>(Integer(record, "file"));
  slice.offset = static_cast<uint64_t>(Integer(record, "offset"));
  slice.rows = Integer(record, "rows");
  slice.type = ParseSourceType(record["type"].cast<ffi::String>());
  slice.scale_file = static_cast<int>(Integer(record, "scale_file"));
  slice.scale_offset = static_cast<uint64_t>(Integer(record, "scale_offset"));
  return slice;
}

ParamPlan ParseParam(const Record& record) {
  ParamPlan param;
  param.is_matrix = record["is_matrix"].cast<bool>();
  param.format = ParseFormat(record["format"].cast<ffi::String>());
  param.rows = Integer(record, "rows");
  param.cols = Integer(record, "cols");
  param.weight_offset = static_cast<float>(record["added"].cast<double>());
  param.destination = static_cast<uint64_t>(Integer(record, "destination"));
  for (const Record& source : record["sources"].cast<ffi::Array<Record>>()) {
    param.sources.push_back(ParseSource(source));
  }
  TVM_FFI_CHECK(static_cast<uint64_t>(Integer(record, "bytes")) == ParamBytes(param), ValueError)
      << "bytes of a parameter must be " << ParamBytes(param) << ", got "
      << Integer(record, "bytes");
  return param;
}

const char* OutcomeName(ConversionOutcome outcome) {
  switch (outcome) {
    case ConversionOutcome::kDone:
      return "done";
    case ConversionOutcome::kCancelled:
      return "cancelled";
    case ConversionOutcome::kFailed:
      return "failed";
  }
  TVM_FFI_UNREACHABLE();
}

std::unique_ptr<ThreadPool> StartThreads(int num_threads) {
  try {
    return std::make_unique<ThreadPool>(num_threads);
  } catch (const std::system_error& error) {
    throw ffi::Error("ModelLoadError", error.what(), "");
  }
}

class WeightConversionObj : public ffi::Object {
 public:
  explicit WeightConversionObj(ConversionPlan plan) : conversion_(std::move(plan)) {}

  ffi::String Run(const ffi::String& path, int num_threads) {
    return OutcomeName(conversion_.Run(path, *StartThreads(num_threads)));
  }
  void Cancel() { conversion_.Cancel(); }
  int64_t ReadBytes() const { return static_cast<int64_t>(conversion_.read_bytes()); }
  int64_t TotalBytes() const { return static_cast<int64_t>(conversion_.total_bytes()); }
  ffi::Array<ffi::Any> Error() const {
    const ConversionError& error = conversion_.error();
    return {ffi::String(error.message), ffi::String(error.path), error.param};
  }

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("aiomlc.WeightConversion", WeightConversionObj, ffi::Object);

 private:
  Conversion conversion_;
};

ffi::ObjectRef OpenConversion(const ffi::Array<ffi::String>& files,
                              const ffi::Array<Record>& params, int64_t bytes) {
  ConversionPlan plan;
  for (const ffi::String& file : files) plan.files.emplace_back(file);
  for (const Record& param : params) plan.params.push_back(ParseParam(param));
  plan.bytes = static_cast<uint64_t>(bytes);
  return ffi::ObjectRef(ffi::make_object<WeightConversionObj>(std::move(plan)));
}

/*! \brief Allocates tensors in a mapping, which is unmapped with its last tensor. */
struct MappedAllocator {
  std::shared_ptr<const MappedWeights> mapping;

  void AllocData(DLTensor* tensor, uint64_t offset) {
    tensor->data = const_cast<std::byte*>(mapping->data() + offset);
  }
  void FreeData(DLTensor*) { mapping.reset(); }
};

/*! \brief Map the parameters of a packed file: uint8[bytes] for matrices, float32 for vectors. */
ffi::Array<ffi::Tensor> MapWeights(const ffi::String& path, int64_t bytes,
                                   const ffi::Array<Record>& params) {
  std::string error;
  std::shared_ptr<const MappedWeights> mapping =
      MappedWeights::Open(path, static_cast<uint64_t>(bytes), &error);
  TVM_FFI_CHECK(mapping != nullptr, RuntimeError) << error;
  ffi::Array<ffi::Tensor> tensors;
  for (const Record& param : params) {
    const bool is_matrix = param["is_matrix"].cast<bool>();
    const ffi::Shape shape = param["shape"].cast<ffi::Shape>();
    const DLDataType dtype = is_matrix ? DLDataType{kDLUInt, 8, 1} : DLDataType{kDLFloat, 32, 1};
    const auto offset = static_cast<uint64_t>(Integer(param, "offset"));
    const uint64_t size = static_cast<uint64_t>(shape.Product()) * (is_matrix ? 1 : sizeof(float));
    TVM_FFI_CHECK(offset % 64 == 0 && offset <= mapping->size() && size <= mapping->size() - offset,
                  ValueError)
        << "parameter at byte " << offset << " with " << size
        << " bytes must be 64-byte aligned and "
        << "within the file of " << mapping->size() << " bytes";
    tensors.push_back(ffi::Tensor::FromNDAlloc(MappedAllocator{mapping}, shape, dtype,
                                               DLDevice{kDLCPU, 0}, offset));
  }
  return tensors;
}

/*! \return The checksum of a range of an open file, as 32 hexadecimal digits. */
ffi::String ChecksumRange(int descriptor, int64_t offset, int64_t bytes, int num_threads) {
  File file;
  Checksum sum;
  std::string error = file.OpenDuplicate(descriptor);
  if (error.empty()) {
    error = ChecksumFile(file, static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes),
                         *StartThreads(num_threads), &sum);
  }
  TVM_FFI_CHECK(error.empty(), RuntimeError) << error;
  std::array<char, 33> text;
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(sum.high),
                static_cast<unsigned long long>(sum.low));
  return {text.data(), text.size() - 1};
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<WeightConversionObj>()
      .def("run", &WeightConversionObj::Run,
           "Write the packed file; return done, cancelled or failed.")
      .def("cancel", &WeightConversionObj::Cancel, "Cancel run() at the next block of rows.")
      .def("read_bytes", &WeightConversionObj::ReadBytes, "Return the source bytes read so far.")
      .def("total_bytes", &WeightConversionObj::TotalBytes,
           "Return the source bytes of the whole plan.")
      .def("error", &WeightConversionObj::Error,
           "Return message, path and parameter index of a failure.");
  refl::GlobalDef()
      .def("aiomlc.weights.open_conversion", OpenConversion)
      .def("aiomlc.weights.map", MapWeights)
      .def("aiomlc.checksum", ChecksumRange)
      .def("aiomlc.weights.packed_bytes",
           [](const ffi::String& format, int64_t rows, int64_t cols) {
             return static_cast<int64_t>(PackedMatrixBytes(ParseFormat(format), rows, cols));
           });
}

}  // namespace
}  // namespace aiomlc
