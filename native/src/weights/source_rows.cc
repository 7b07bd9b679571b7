#include "weights/source_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "kernels/linear/format/pack.h"
#include "platform/float_types.h"
#include "weights/gguf_blocks.h"
#include "weights/group_quantizer.h"
#include "weights/source_floats.h"

namespace aiomlc {

namespace {

int64_t CeilDivide(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

/*! \return An error if a parameter's values do not fit a format, or an empty string. */
std::string RangeError(MatrixFormat format, const float* values, int64_t count) {
  const float largest = LargestMagnitude(values, count);
  if (!std::isfinite(largest)) return "a value is not finite";
  // Of grouped formats, only the scales are float16.
  float bound = std::numeric_limits<float>::infinity();
  if (format.family == WeightFormat::kGrouped) bound = kLargestByte * kHalfOverflow;
  if (format.family == WeightFormat::kQ4 || format.family == WeightFormat::kF16) {
    bound = kHalfOverflow;
  }
  if (largest < bound) return {};
  return "a value is outside of the range of float16; choose the quantization q0bf16 or q0f32";
}

/*! \return The bytes of a row of floats or blocks. */
int64_t RowBytes(SourceType type, int64_t cols) {
  if (IsFloat(type)) return cols * SourceFloatBytes(type);
  if (type == SourceType::kProgressive) return ProgressiveRowBytes(cols);
  const BlockLayout layout = BlockLayoutOf(type);
  return cols / layout.inputs * layout.bytes;
}

// Calls visit(slice, first row in the matrix, rows, first row in the block) until it returns false.
template <typename Visit>
bool ForEachSlice(const ParamPlan& param, int64_t begin, int64_t end, Visit visit) {
  int64_t slice_begin = 0;
  for (const SourceSlice& slice : param.slices) {
    const int64_t from = std::max(begin, slice_begin);
    const int64_t to = std::min(end, slice_begin + slice.rows);
    // Rows that are not neighbors are visited one by one.
    const int64_t count = slice.step == 1 ? std::max<int64_t>(1, to - from) : 1;
    for (int64_t row = from; row < to; row += count) {
      const int64_t first = slice.first + (row - slice_begin) * slice.step;
      if (!visit(slice, first, count, row - begin)) return false;
    }
    slice_begin += slice.rows;
    if (slice_begin >= end) break;
  }
  return true;
}

/*!
 * \brief Sort inputs by group, and within a group in ascending order.
 * \param size The inputs of each group but the last.
 * \return Empty, or the error.
 */
std::string SortByGroup(const std::vector<int32_t>& group_of_input, int64_t size,
                        std::vector<int32_t>* order) {
  const auto inputs = static_cast<int64_t>(group_of_input.size());
  const int64_t groups = CeilDivide(inputs, size);
  std::vector<int64_t> next(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) next[static_cast<size_t>(g)] = g * size;
  order->resize(group_of_input.size());
  for (int64_t k = 0; k < inputs; ++k) {
    const int32_t g = group_of_input[static_cast<size_t>(k)];
    if (g < 0 || g >= groups) {
      return "groups must be in [0, " + std::to_string(groups) + "), got " + std::to_string(g);
    }
    int64_t& place = next[static_cast<size_t>(g)];
    if (place >= std::min(inputs, (g + 1) * size)) {
      return "group " + std::to_string(g) + " must have at most " + std::to_string(size) +
             " inputs";
    }
    (*order)[static_cast<size_t>(place++)] = static_cast<int32_t>(k);
  }
  return {};
}

}  // namespace

std::vector<SourceSlice> OrderRows(const std::vector<SourceMatrix>& matrices,
                                   const std::vector<int64_t>& order) {
  std::vector<SourceSlice> all;
  all.reserve(matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) {
    all.push_back({static_cast<int>(i), 0, matrices[i].rows});
  }
  if (order.empty()) return all;
  std::vector<SourceSlice> slices;
  // Each step-th row from `start` of the concatenated matrices, which may be in several of them.
  const auto append = [&](int64_t start, int64_t rows, int64_t step) {
    for (const SourceSlice& matrix : all) {
      const int64_t count = std::min(rows, CeilDivide(matrix.rows - start, step));
      if (count > 0) {
        slices.push_back({matrix.matrix, start, count, step});
        start += count * step;
        rows -= count;
      }
      start -= matrix.rows;
    }
  };
  const int64_t blocks = order[0];
  const int64_t groups = order[1];
  const std::vector<int64_t> parts(order.begin() + 2, order.end());
  const int64_t size = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  for (int64_t block = 0; block < blocks; ++block) {
    int64_t start = block * groups * size;
    for (const int64_t part : parts) {
      if (part == 1) {
        append(start, groups, size);
      } else {
        for (int64_t group = 0; group < groups; ++group) append(start + group * size, part, 1);
      }
      start += part;
    }
  }
  int64_t total = 0;
  for (const SourceSlice& matrix : all) total += matrix.rows;
  const int64_t covered = blocks * groups * size;
  if (covered < total) append(covered, total - covered, 1);
  return slices;
}

std::vector<SourceSlice> SelectRows(const std::vector<SourceSlice>& slices,
                                    const std::vector<int64_t>& runs) {
  std::vector<SourceSlice> selected;
  for (size_t i = 0; i + 1 < runs.size(); i += 2) {
    const int64_t begin = runs[i], end = runs[i] + runs[i + 1];
    int64_t slice_begin = 0;
    for (SourceSlice slice : slices) {
      const int64_t from = std::max(begin, slice_begin);
      const int64_t to = std::min(end, slice_begin + slice.rows);
      const int64_t skipped = from - slice_begin;
      slice_begin += slice.rows;
      if (from >= to) continue;
      slice.first += skipped * slice.step;
      slice.rows = to - from;
      selected.push_back(slice);
    }
  }
  return selected;
}

uint64_t SourceRowBytes(const SourceMatrix& matrix, int64_t cols) {
  if (matrix.type != SourceType::kIntegers) {
    return static_cast<uint64_t>(RowBytes(matrix.type, cols));
  }
  const int64_t groups = CeilDivide(cols, matrix.scales->block_inputs);
  return static_cast<uint64_t>(cols * matrix.integers.bits / 8 + groups * matrix.scales->bytes());
}

const File& SourceReader::FileOf(const SourceTensor& tensor) const {
  return (*files_)[static_cast<size_t>(tensor.file)];
}

bool SourceReader::Check(const SourceTensor& tensor, std::string reason) {
  if (reason.empty()) return true;
  error_ = {std::move(reason), FileOf(tensor).path(), -1, static_cast<int64_t>(tensor.offset)};
  return false;
}

bool SourceReader::Load(const ParamPlan& param, int64_t begin, int64_t end) {
  loaded_.resize(param.matrices.size());
  for (LoadedRows& rows : loaded_) rows.begin = rows.end = 0;
  ForEachSlice(param, begin, end, [&](const SourceSlice& slice, int64_t from, int64_t count, auto) {
    LoadedRows& rows = loaded_[static_cast<size_t>(slice.matrix)];
    const bool is_first = rows.begin == rows.end;
    rows.begin = is_first ? from : std::min(rows.begin, from);
    rows.end = is_first ? from + count : std::max(rows.end, from + count);
    return true;
  });
  for (size_t i = 0; i < loaded_.size(); ++i) {
    LoadedRows& rows = loaded_[i];
    if (rows.begin < rows.end && !LoadRows(param.matrices[i], param.MatrixCols(), &rows))
      return false;
  }
  return true;
}

bool SourceReader::LoadRows(const SourceMatrix& matrix, int64_t cols, LoadedRows* rows) {
  std::string reason;
  const SourceTensor* tensor = &matrix.tensor;
  if (matrix.type == SourceType::kIntegers) {
    tensor = &matrix.integers.tensor;
    reason = ReadIntegers(matrix.integers, FileOf(*tensor), matrix.rows, cols, rows->begin,
                          rows->end, &rows->values);
  } else if (matrix.by_inputs) {
    reason = rows->values.Read(FileOf(*tensor), tensor->offset, matrix.rows,
                               SourceFloatBytes(matrix.type), 0, cols, rows->begin, rows->end);
    rows->values.Transpose();
  } else {
    const int64_t bytes = RowBytes(matrix.type, cols);
    reason = rows->values.Read(FileOf(*tensor), tensor->offset, bytes, 1, rows->begin,
                               rows->end - rows->begin, 0, bytes);
  }
  if (!reason.empty()) return Check(*tensor, "cannot read: " + reason);
  return LoadScales(matrix, cols, rows) && LoadOrder(matrix, cols, &rows->order);
}

bool SourceReader::LoadScales(const SourceMatrix& matrix, int64_t cols, LoadedRows* rows) {
  if (!matrix.scales) return true;
  const ScaleTensor& scales = *matrix.scales;
  const int64_t inputs = CeilDivide(cols, scales.block_inputs);
  const int64_t outputs = CeilDivide(matrix.rows, scales.block_outputs);
  const int64_t begin = rows->begin / scales.block_outputs;
  const int64_t end = CeilDivide(rows->end, scales.block_outputs);
  const File& file = FileOf(scales.tensor);
  std::string reason = scales.is_transposed
                           ? rows->scales.Read(file, scales.tensor.offset, outputs, scales.bytes(),
                                               0, inputs, begin, end)
                           : rows->scales.Read(file, scales.tensor.offset, inputs, scales.bytes(),
                                               begin, end - begin, 0, inputs);
  if (!reason.empty()) return Check(scales.tensor, "cannot read: " + reason);
  if (!matrix.zero_points) return true;
  const SourceTensor& tensor = matrix.zero_points->tensor;
  reason = ReadIntegers(*matrix.zero_points, FileOf(tensor), matrix.rows, inputs, rows->begin,
                        rows->end, &rows->zero_points);
  return reason.empty() || Check(tensor, "cannot read: " + reason);
}

bool SourceReader::LoadOrder(const SourceMatrix& matrix, int64_t cols,
                             std::vector<int32_t>* order) {
  order->clear();
  if (!matrix.groups) return true;
  group_of_input_.resize(static_cast<size_t>(cols));
  const std::string reason = FileOf(*matrix.groups)
                                 .ReadAt(matrix.groups->offset, group_of_input_.data(),
                                         group_of_input_.size() * sizeof(int32_t));
  if (!reason.empty()) return Check(*matrix.groups, "cannot read: " + reason);
  return Check(*matrix.groups, SortByGroup(group_of_input_, matrix.scales->block_inputs, order));
}

bool SourceReader::ReadOrder(const ParamPlan& param) {
  for (size_t i = 0; i < param.matrices.size(); ++i) {
    const SourceMatrix& matrix = param.matrices[i];
    std::vector<int32_t> order;
    if (!LoadOrder(matrix, param.cols, &order)) return false;
    if (i != 0 && order != order_) {
      return Check(*matrix.groups,
                   "the order of the inputs differs between matrices that read the same inputs");
    }
    order_ = std::move(order);
  }
  return true;
}

bool SourceReader::DecodeFloats(const ParamPlan& param, MatrixFormat format, int64_t begin,
                                int64_t end) {
  const int64_t cols = param.MatrixCols();
  floats_.resize(static_cast<size_t>((end - begin) * cols));
  const bool is_valid = ForEachSlice(
      param, begin, end, [&](const SourceSlice& slice, int64_t from, int64_t rows, int64_t at) {
        const auto index = static_cast<size_t>(slice.matrix);
        const SourceMatrix& matrix = param.matrices[index];
        float* out = floats_.data() + at * cols;
        if (IsFloat(matrix.type)) {
          if (!DecodeFloatRows(matrix, loaded_[index], from, rows, cols, out)) return false;
        } else {
          single_.Resize(matrix.format, rows, cols);
          if (!DecodeGroupRows(matrix, loaded_[index], from, rows, 0, &single_)) return false;
          single_.Dequantize(out);
        }
        return Check(matrix.tensor, RangeError(format, out, rows * cols));
      });
  if (is_valid) CutColumns(&floats_, end - begin, cols, param.first_col, param.cols);
  return is_valid;
}

bool SourceReader::DecodeFloatRows(const SourceMatrix& matrix, const LoadedRows& loaded,
                                   int64_t from, int64_t rows, int64_t cols, float* out) {
  WidenFloats(matrix.type, loaded.values.At(from, 0), rows * cols, out);
  if (!matrix.scales) return true;
  const ScaleTensor& scales = *matrix.scales;
  const int64_t blocks = CeilDivide(cols, scales.block_inputs);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t output = (from + row) / scales.block_outputs;
    for (int64_t block = 0; block < blocks; ++block) {
      float scale;
      WidenFloats(
          scales.type,
          scales.is_transposed ? loaded.scales.At(block, output) : loaded.scales.At(output, block),
          1, &scale);
      if (!std::isfinite(scale)) return Check(scales.tensor, "a scale is not finite");
      const int64_t end = std::min(cols, (block + 1) * scales.block_inputs);
      for (int64_t k = block * scales.block_inputs; k < end; ++k) out[row * cols + k] *= scale;
    }
  }
  return true;
}

bool SourceReader::DecodeGroups(const ParamPlan& param, MatrixFormat format, int64_t begin,
                                int64_t end) {
  groups_.Resize(format, end - begin, param.MatrixCols());
  const bool is_valid = ForEachSlice(
      param, begin, end, [&](const SourceSlice& slice, int64_t from, int64_t rows, int64_t at) {
        const auto index = static_cast<size_t>(slice.matrix);
        return DecodeGroupRows(param.matrices[index], loaded_[index], from, rows, at, &groups_);
      });
  if (is_valid) groups_.Cut(param.first_col, param.cols);
  return is_valid;
}

bool SourceReader::DecodeProgressive(const ParamPlan& param, int64_t begin, int64_t end) {
  const int64_t cols = param.MatrixCols();
  const int64_t stored_bytes = ProgressiveRowBytes(cols);
  const int64_t bytes = ProgressiveRowBytes(param.cols);
  stored_rows_.resize(static_cast<size_t>((end - begin) * bytes));
  return ForEachSlice(
      param, begin, end, [&](const SourceSlice& slice, int64_t from, int64_t rows, int64_t at) {
        const auto index = static_cast<size_t>(slice.matrix);
        const auto* stored = loaded_[index].values.At(from, 0);
        uint8_t* out = stored_rows_.data() + at * bytes;
        for (int64_t row = 0; row < rows; ++row, stored += stored_bytes, out += bytes) {
          const char* problem = CheckProgressiveRow(stored, cols);
          if (problem != nullptr) return Check(param.matrices[index].tensor, problem);
          CutProgressiveRow(stored, param.first_col, param.cols, out);
        }
        return true;
      });
}

bool SourceReader::DecodeGroupRows(const SourceMatrix& matrix, const LoadedRows& loaded,
                                   int64_t from, int64_t rows, int64_t at, GroupBuffers* out) {
  if (IsFloat(matrix.type)) return QuantizeRows(matrix, loaded, from, rows, at, out);
  if (!IsBlocks(matrix.type)) return DecodeIntegers(matrix, loaded, from, rows, at, out);
  for (int64_t row = 0; row < rows; ++row) {
    DecodeBlocks(matrix.type, loaded.values.At(from + row, 0), out->cols(), out->Row(at + row));
  }
  return out->AllFinite(at, rows) || Check(matrix.tensor, "a scale is not finite");
}

bool SourceReader::QuantizeRows(const SourceMatrix& matrix, const LoadedRows& loaded, int64_t from,
                                int64_t rows, int64_t at, GroupBuffers* out) {
  const int64_t cols = out->cols();
  floats_.resize(static_cast<size_t>(rows * cols));
  if (!DecodeFloatRows(matrix, loaded, from, rows, cols, floats_.data())) return false;
  const std::string problem = RangeError(out->format(), floats_.data(), rows * cols);
  if (!problem.empty()) return Check(matrix.tensor, problem);
  for (int64_t row = 0; row < rows; ++row) {
    const GroupedRow target = out->Row(at + row);
    QuantizeBytes(floats_.data() + row * cols, cols, target.codes, target.scales);
  }
  return true;
}

bool SourceReader::DecodeIntegers(const SourceMatrix& matrix, const LoadedRows& loaded,
                                  int64_t from, int64_t rows, int64_t at, GroupBuffers* out) {
  const int64_t cols = out->cols();
  UnpackIntegers(matrix.integers, loaded.values, from, from + rows, cols, out->Row(at).codes);
  const ScaleTensor& scales = *matrix.scales;
  const auto bytes = static_cast<size_t>(scales.bytes());
  for (int64_t row = 0; row < rows; ++row) {
    const GroupedRow target = out->Row(at + row);
    if (!loaded.order.empty()) {
      row_.assign(target.codes, target.codes + cols);
      for (size_t k = 0; k < row_.size(); ++k) {
        target.codes[k] = row_[static_cast<size_t>(loaded.order[k])];
      }
    }
    const int64_t output = (from + row) / scales.block_outputs;
    for (int64_t g = 0; g < out->groups(); ++g) {
      const int64_t block = g * out->group() / scales.block_inputs;
      const auto* scale =
          scales.is_transposed ? loaded.scales.At(block, output) : loaded.scales.At(output, block);
      if (scales.type == SourceType::kF8E8M0) {
        if (*scale == 0xff) return Check(scales.tensor, "a scale is not finite");
        // The values of the codes are doubled.
        const uint16_t half = HalfOfPower(*scale);
        std::memcpy(target.scales + static_cast<size_t>(g) * sizeof(half), &half, sizeof(half));
      } else if (out->format().family == WeightFormat::kChannel) {
        float wide;
        WidenFloats(scales.type, scale, 1, &wide);
        std::memcpy(target.scales, &wide, sizeof(wide));
      } else {
        std::memcpy(target.scales + static_cast<size_t>(g) * bytes, scale, bytes);
      }
    }
  }
  if (!out->AllFinite(at, rows)) return Check(scales.tensor, "a scale is not finite");
  return !matrix.zero_points || DecodeZeroPoints(matrix, loaded, from, rows, at, out);
}

bool SourceReader::DecodeZeroPoints(const SourceMatrix& matrix, const LoadedRows& loaded,
                                    int64_t from, int64_t rows, int64_t at, GroupBuffers* out) {
  const int64_t inputs = matrix.scales->block_inputs;
  const int64_t groups = CeilDivide(out->cols(), inputs);
  zero_points_.resize(static_cast<size_t>(rows * groups));
  UnpackIntegers(*matrix.zero_points, loaded.zero_points, from, from + rows, groups,
                 zero_points_.data());
  const int largest = (1 << matrix.zero_points->bits) - 1;
  const int num_codes = 1 << matrix.integers.bits;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < out->groups(); ++g) {
      const int64_t group = g * out->group() / inputs;
      const int stored = zero_points_[static_cast<size_t>(row * groups + group)];
      // Programs that store a zero point minus 1 store 0 as the largest integer.
      const int zero = (stored + matrix.zero_point_offset) & largest;
      if (zero >= num_codes) {
        return Check(
            matrix.zero_points->tensor,
            "a zero point is not an integer of " + std::to_string(matrix.integers.bits) + " bits");
      }
      out->Row(at + row).zeros[g] = static_cast<uint8_t>(zero);
    }
  }
  return true;
}

}  // namespace aiomlc
