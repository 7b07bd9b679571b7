/*!
 * \file ffi/weights.cc
 * \brief The weight conversion and the mapped parameters as FFI objects.
 */
#include "weights/weights.h"

#include <tvm/ffi/tvm_ffi.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "weights/checksum.h"

namespace aiomlc {
namespace {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;

using Record = ffi::Map<ffi::String, ffi::Any>;

int64_t Integer(const Record& record, const char* key) { return record[key].cast<int64_t>(); }

MatrixFormat ParseFormat(const ffi::String& name) {
  try {
    return MatrixFormat::Parse({name.data(), name.size()});
  } catch (const std::invalid_argument& error) {
    TVM_FFI_THROW(ValueError) << error.what();
  }
  TVM_FFI_UNREACHABLE();
}

constexpr std::pair<std::string_view, SourceType> kSourceTypes[] = {
    {"f32", SourceType::kF32},           {"f16", SourceType::kF16},
    {"bf16", SourceType::kBF16},         {"f8e4m3", SourceType::kF8E4M3},
    {"f8e5m2", SourceType::kF8E5M2},     {"f8e8m0", SourceType::kF8E8M0},
    {"integers", SourceType::kIntegers}, {"Q4_0", SourceType::kQ40},
    {"Q4_1", SourceType::kQ41},          {"Q5_0", SourceType::kQ50},
    {"Q5_1", SourceType::kQ51},          {"Q8_0", SourceType::kQ80},
    {"Q2_K", SourceType::kQ2K},          {"Q3_K", SourceType::kQ3K},
    {"Q4_K", SourceType::kQ4K},          {"Q5_K", SourceType::kQ5K},
    {"Q6_K", SourceType::kQ6K},          {"IQ4_NL", SourceType::kIQ4NL},
    {"MXFP4", SourceType::kMXFP4},       {"i4progressive", SourceType::kProgressive},
};

SourceType ParseSourceType(const ffi::String& name) {
  for (const auto& [type_name, type] : kSourceTypes) {
    if (std::string_view(name.data(), name.size()) == type_name) return type;
  }
  TVM_FFI_THROW(ValueError) << "unknown source type " << name;
  TVM_FFI_UNREACHABLE();
}

ParamKind ParseKind(const ffi::String& name) {
  if (name == "matrix") return ParamKind::kMatrix;
  if (name == "rows") return ParamKind::kRows;
  if (name == "vector") return ParamKind::kVector;
  if (name == "order") return ParamKind::kOrder;
  TVM_FFI_THROW(ValueError) << "unknown kind of parameter " << name;
  TVM_FFI_UNREACHABLE();
}

Record Nested(const Record& record, const char* key) { return record[key].cast<Record>(); }

SourceTensor ParseTensor(const Record& record) {
  return {.file = static_cast<int>(Integer(record, "file")),
          .offset = static_cast<uint64_t>(Integer(record, "offset"))};
}

IntegerTensor ParseIntegers(const Record& record) {
  return {.tensor = ParseTensor(Nested(record, "tensor")),
          .bits = static_cast<int>(Integer(record, "bits")),
          .unit_bytes = static_cast<int>(Integer(record, "unit_bytes")),
          .per_unit = static_cast<int>(Integer(record, "per_unit")),
          .padding = static_cast<int>(Integer(record, "padding")),
          .along_outputs = record["axis"].cast<ffi::String>() == "outputs",
          .is_transposed = record["is_transposed"].cast<bool>(),
          .is_awq_order = record["is_awq_order"].cast<bool>(),
          .is_signed = record["is_signed"].cast<bool>()};
}

ScaleTensor ParseScales(const Record& record) {
  return {.tensor = ParseTensor(Nested(record, "tensor")),
          .type = ParseSourceType(record["type"].cast<ffi::String>()),
          .block_outputs = Integer(record, "block_outputs"),
          .block_inputs = Integer(record, "block_inputs"),
          .is_transposed = record["is_transposed"].cast<bool>()};
}

/*! \brief Parse a source matrix; the keys of what it does not have are absent. */
SourceMatrix ParseMatrix(const Record& record) {
  SourceMatrix matrix;
  matrix.type = ParseSourceType(record["type"].cast<ffi::String>());
  matrix.rows = Integer(record, "rows");
  if (record.count("integers") != 0) {
    matrix.integers = ParseIntegers(Nested(record, "integers"));
    matrix.tensor = matrix.integers.tensor;
  } else {
    matrix.tensor = ParseTensor(Nested(record, "tensor"));
    matrix.by_inputs = record["by_inputs"].cast<bool>();
  }
  if (record.count("scales") != 0) matrix.scales = ParseScales(Nested(record, "scales"));
  if (record.count("zero_points") != 0) {
    matrix.zero_points = ParseIntegers(Nested(record, "zero_points"));
  }
  if (record.count("groups") != 0) matrix.groups = ParseTensor(Nested(record, "groups"));
  if (record.count("format") != 0) {
    matrix.format = ParseFormat(record["format"].cast<ffi::String>());
  }
  matrix.zero_point_offset = static_cast<int>(Integer(record, "zero_point_offset"));
  return matrix;
}

void ParseRows(const Record& record, ParamPlan* param) {
  for (const Record& matrix : record["matrices"].cast<ffi::Array<Record>>()) {
    param->matrices.push_back(ParseMatrix(matrix));
  }
  std::vector<int64_t> order;
  for (const int64_t size : record["row_order"].cast<ffi::Array<int64_t>>()) order.push_back(size);
  param->slices = OrderRows(param->matrices, order);
  if (record.count("row_runs") == 0) return;
  // A shard has some rows of the matrices, or some of their columns.
  std::vector<int64_t> runs;
  for (const int64_t number : record["row_runs"].cast<ffi::Array<int64_t>>())
    runs.push_back(number);
  param->slices = SelectRows(param->slices, runs);
  param->source_cols = Integer(record, "source_cols");
  param->first_col = Integer(record, "first_col");
}

ParamPlan ParseParam(const Record& record) {
  ParamPlan param;
  param.kind = ParseKind(record["kind"].cast<ffi::String>());
  for (const auto& segment : record["layout"].cast<ffi::Array<ffi::Array<ffi::Any>>>()) {
    param.layout.push_back(
        {ParseFormat(segment[0].cast<ffi::String>()), segment[1].cast<int64_t>()});
  }
  param.rows = Integer(record, "rows");
  param.cols = Integer(record, "cols");
  param.weight_offset = static_cast<float>(record["added"].cast<double>());
  param.destination = static_cast<uint64_t>(Integer(record, "destination"));
  ParseRows(record, &param);
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
    return {ffi::String(error.message), ffi::String(error.path), error.param, error.offset};
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

DLDataType TypeOf(ParamKind kind) {
  switch (kind) {
    case ParamKind::kMatrix:
    case ParamKind::kRows:
      return {kDLUInt, 8, 1};
    case ParamKind::kVector:
      return {kDLFloat, 32, 1};
    case ParamKind::kOrder:
      return {kDLInt, 32, 1};
  }
  TVM_FFI_UNREACHABLE();
}

/*!
 * \brief Map the parameters of a packed file: uint8 for matrices, float32 for vectors, int32
 * for orders.
 */
ffi::Array<ffi::Tensor> MapWeights(const ffi::String& path, int64_t bytes,
                                   const ffi::Array<Record>& params) {
  std::string error;
  std::shared_ptr<const MappedWeights> mapping =
      MappedWeights::Open(path, static_cast<uint64_t>(bytes), &error);
  TVM_FFI_CHECK(mapping != nullptr, RuntimeError) << error;
  ffi::Array<ffi::Tensor> tensors;
  for (const Record& param : params) {
    const DLDataType dtype = TypeOf(ParseKind(param["kind"].cast<ffi::String>()));
    const ffi::Shape shape = param["shape"].cast<ffi::Shape>();
    const auto offset = static_cast<uint64_t>(Integer(param, "offset"));
    const uint64_t size = static_cast<uint64_t>(shape.Product()) * (dtype.bits / 8);
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
