#include "weights/weights.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <thread>
#include <utility>

#include "kernels/linear/format/pack.h"
#include "kernels/linear/linear.h"
#include "platform/float_types.h"

namespace aiomlc {
namespace {

namespace fs = std::filesystem;

/*! \brief Provides a temporary directory. */
class WeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "aiomlc_weights_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ / name; }

  template <typename T>
  std::string Write(const std::string& name, const std::vector<T>& values) const {
    std::ofstream file(Path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(T)));
    return Path(name);
  }

  std::vector<char> Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  fs::path directory_;
};

std::vector<float> RandomFloats(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

ParamPlan Matrix(WeightFormat format, int64_t rows, int64_t cols, SourceType type) {
  ParamPlan param;
  param.layout = {{format, rows}};
  param.rows = rows;
  param.cols = cols;
  SourceMatrix& matrix = param.matrices.emplace_back();
  matrix.type = type;
  matrix.rows = rows;
  param.slices = OrderRows(param.matrices, {});
  return param;
}

SourceMatrix FloatRows(SourceType type, int64_t rows, SourceTensor tensor) {
  SourceMatrix matrix;
  matrix.type = type;
  matrix.rows = rows;
  matrix.tensor = tensor;
  return matrix;
}

ConversionPlan OneParam(std::string file, ParamPlan param) {
  ConversionPlan plan;
  plan.files = {std::move(file)};
  plan.bytes = ParamBytes(param);
  plan.params = {std::move(param)};
  return plan;
}

TEST_F(WeightsTest, PackingInBlocksEqualsPackingTheEntireMatrix) {
  constexpr int64_t kRows = 333;
  constexpr int64_t kCols = 1030;
  const std::vector<float> weights = RandomFloats(kRows * kCols);
  const std::string source = Write("source", weights);
  for (WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kQ4}) {
    std::vector<char> expected(PackedMatrixBytes(format, kRows, kCols));
    PackMatrixF32(format, weights.data(), kRows, kCols, 0, kRows, expected.data());
    for (int num_threads : {1, 4}) {
      ThreadPool threads(num_threads);
      Conversion conversion(OneParam(source, Matrix(format, kRows, kCols, SourceType::kF32)));

      ASSERT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kDone);

      EXPECT_EQ(Read("packed"), expected);
      EXPECT_EQ(conversion.read_bytes(), weights.size() * sizeof(float));
      EXPECT_EQ(conversion.total_bytes(), conversion.read_bytes());
    }
  }
}

TEST_F(WeightsTest, ConcatenatesSlicesOfSeveralFilesAndTypes) {
  const std::vector<uint16_t> halves = {FloatToHalf(1.5f), FloatToHalf(-0x1p-24f)};
  const std::vector<uint16_t> bfloats = {FloatToBFloat16(3.0f)};
  const std::vector<float> floats = {9.0f, 0.1f};
  ParamPlan vector;
  vector.kind = ParamKind::kVector;
  vector.rows = 4;
  vector.matrices = {FloatRows(SourceType::kF16, 2, {.file = 0}),
                     FloatRows(SourceType::kBF16, 1, {.file = 1}),
                     FloatRows(SourceType::kF32, 1, {.file = 2, .offset = 4})};
  vector.slices = OrderRows(vector.matrices, {});
  vector.destination = 64;
  ConversionPlan plan;
  plan.files = {Write("halves", halves), Write("bfloats", bfloats), Write("floats", floats)};
  plan.params = {vector};
  plan.bytes = 80;
  ThreadPool threads(2);
  Conversion conversion(plan);

  ASSERT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kDone);

  const std::vector<char> packed = Read("packed");
  ASSERT_EQ(packed.size(), 80u);
  float values[4];
  std::memcpy(values, packed.data() + 64, sizeof(values));
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -0x1p-24f);
  EXPECT_EQ(values[2], 3.0f);
  EXPECT_EQ(values[3], 0.1f);
}

TEST_F(WeightsTest, ATruncatedSourceIsAnErrorWithItsParameter) {
  const std::string source = Write("source", std::vector<float>(100));
  ThreadPool threads(2);
  Conversion conversion(OneParam(source, Matrix(WeightFormat::kQ4, 16, 32, SourceType::kF32)));

  EXPECT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kFailed);

  EXPECT_EQ(conversion.error().message, "cannot read: file ends at byte 400");
  EXPECT_EQ(conversion.error().path, source);
  EXPECT_EQ(conversion.error().param, 0);
  EXPECT_EQ(conversion.error().offset, 0);
  EXPECT_FALSE(fs::exists(Path("packed")));
}

TEST_F(WeightsTest, ANonFiniteValueIsAnErrorWithItsParameter) {
  constexpr int64_t kRows = 40;
  constexpr int64_t kCols = 64;
  for (float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> weights = RandomFloats(kRows * kCols);
    weights[kRows * kCols - 1] = bad;
    const std::string source = Write("source", weights);
    ThreadPool threads(2);
    Conversion conversion(
        OneParam(source, Matrix(WeightFormat::kQ4, kRows, kCols, SourceType::kF32)));

    ASSERT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kFailed);

    EXPECT_EQ(conversion.error().message, "a value is not finite");
    EXPECT_EQ(conversion.error().path, source);
    EXPECT_EQ(conversion.error().param, 0);
  }
}

TEST_F(WeightsTest, AValueThatOverflowsFloat16CannotBeStoredInIt) {
  std::vector<float> weights = RandomFloats(16 * 32);
  weights.back() = -65520.0f;
  const std::string source = Write("source", weights);
  ThreadPool threads(1);
  for (WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBF16, WeightFormat::kQ4}) {
    Conversion conversion(OneParam(source, Matrix(format, 16, 32, SourceType::kF32)));

    const ConversionOutcome outcome = conversion.Run(Path("packed"), threads);

    if (format == WeightFormat::kF32 || format == WeightFormat::kBF16) {
      EXPECT_EQ(outcome, ConversionOutcome::kDone);
      continue;
    }
    ASSERT_EQ(outcome, ConversionOutcome::kFailed);
    EXPECT_EQ(conversion.error().message,
              "a value is outside of the range of float16; choose the quantization q0bf16 or "
              "q0f32");
    EXPECT_EQ(conversion.error().path, source);
  }
}

TEST_F(WeightsTest, MatricesByInputsAreTransposedAndTheirRowsReordered) {
  constexpr int64_t kExperts = 3;
  constexpr int64_t kHalf = 80;  // The rows of an expert alternate between two halves.
  constexpr int64_t kRows = kExperts * 2 * kHalf;
  constexpr int64_t kCols = 70;
  const std::vector<float> weights = RandomFloats(kRows * kCols);
  std::vector<float> stored(weights.size());
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t expert = row / (2 * kHalf);
    const int64_t output = row % kHalf * 2 + row / kHalf % 2;
    for (int64_t k = 0; k < kCols; ++k) {
      stored[static_cast<size_t>((expert * kCols + k) * 2 * kHalf + output)] =
          weights[static_cast<size_t>(row * kCols + k)];
    }
  }
  const std::string source = Write("source", stored);
  for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ4}) {
    ParamPlan param = Matrix(format, kRows, kCols, SourceType::kF32);
    param.matrices.clear();
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      SourceMatrix matrix = FloatRows(SourceType::kF32, 2 * kHalf, {});
      matrix.tensor.offset = static_cast<uint64_t>(expert * kCols * 2 * kHalf) * sizeof(float);
      matrix.by_inputs = true;
      param.matrices.push_back(matrix);
    }
    param.slices = OrderRows(param.matrices, {kExperts, kHalf, 1, 1});
    EXPECT_EQ(param.slices.size(), 2 * kExperts);
    std::vector<char> expected(PackedMatrixBytes(format, kRows, kCols));
    PackMatrixF32(format, weights.data(), kRows, kCols, 0, kRows, expected.data());
    ThreadPool threads(2);
    Conversion conversion(OneParam(source, param));

    ASSERT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kDone);

    EXPECT_EQ(Read("packed"), expected);
  }
}

TEST_F(WeightsTest, RowsAtEqualDistancesMayBeInSeveralMatrices) {
  const std::vector<SourceMatrix> matrices = {FloatRows(SourceType::kF32, 3, {}),
                                              FloatRows(SourceType::kF32, 5, {})};
  std::vector<std::pair<int, int64_t>> rows;
  for (const SourceSlice& slice : OrderRows(matrices, {1, 3, 1, 1})) {
    for (int64_t i = 0; i < slice.rows; ++i) {
      rows.emplace_back(slice.matrix, slice.first + i * slice.step);
    }
  }

  const std::vector<std::pair<int, int64_t>> expected = {{0, 0}, {0, 2}, {1, 1}, {0, 1},
                                                         {1, 0}, {1, 2}, {1, 3}, {1, 4}};
  EXPECT_EQ(rows, expected);
}

TEST_F(WeightsTest, PartsOfAGroupMayHaveDifferentSizes) {
  const std::vector<SourceMatrix> matrices = {FloatRows(SourceType::kF32, 9, {})};
  std::vector<int64_t> rows;
  for (const SourceSlice& slice : OrderRows(matrices, {1, 2, 1, 3})) {
    for (int64_t i = 0; i < slice.rows; ++i) rows.push_back(slice.first + i * slice.step);
  }

  EXPECT_EQ(rows, (std::vector<int64_t>{0, 4, 1, 2, 3, 5, 6, 7, 8}));
}

TEST_F(WeightsTest, PowersOfTwoScaleCodesOfHalfTheirValue) {
  const MatrixFormat format = MatrixFormat::Parse("e2m1g32bf16");
  std::vector<uint8_t> codes(16 * 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> scales(16);
  for (size_t row = 0; row < scales.size(); ++row) scales[row] = static_cast<uint8_t>(120 + row);
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  std::vector<float> weights(16 * 32);
  for (size_t i = 0; i < weights.size(); ++i) {
    const int code = codes[i / 2] >> (4 * (i % 2)) & 15;
    const float value = std::ldexp(kValues[code & 7], scales[i / 32] - 127);
    weights[i] = code >= 8 ? 0.0f - value : value;  // Codes have no negative zero.
  }
  std::vector<char> expected(PackedMatrixBytes(WeightFormat::kF32, 16, 32));
  PackMatrixF32(WeightFormat::kF32, weights.data(), 16, 32, 0, 16, expected.data());
  ParamPlan param = Matrix(WeightFormat::kF32, 16, 32, SourceType::kIntegers);
  SourceMatrix& matrix = param.matrices[0];
  matrix.integers.unit_bytes = 1;
  matrix.integers.per_unit = 2;
  matrix.scales =
      ScaleTensor{.tensor = {.file = 1}, .type = SourceType::kF8E8M0, .block_inputs = 32};
  matrix.format = format;
  for (const bool is_valid : {true, false}) {
    if (!is_valid) scales[5] = 0xff;
    ConversionPlan plan = OneParam(Write("codes", codes), param);
    plan.files.push_back(Write("scales", scales));
    ThreadPool threads(1);
    Conversion conversion(plan);

    ASSERT_EQ(conversion.Run(Path("packed"), threads),
              is_valid ? ConversionOutcome::kDone : ConversionOutcome::kFailed);

    if (is_valid) {
      EXPECT_EQ(Read("packed"), expected);
    } else {
      EXPECT_EQ(conversion.error().message, "a scale is not finite");
    }
  }
}

/*! \brief A matrix [16, 32] of 4-bit integers in the first file, with float16 scales in the second.
 */
ParamPlan Integers(MatrixFormat format) {
  ParamPlan param = Matrix(WeightFormat::kF32, 16, 32, SourceType::kIntegers);
  param.layout = {{format, 16}};
  SourceMatrix& matrix = param.matrices[0];
  matrix.integers.per_unit = 8;
  matrix.scales.emplace();
  matrix.scales->tensor.file = 1;
  matrix.scales->block_inputs = 32;
  matrix.format = MlcQ4();
  return param;
}

TEST_F(WeightsTest, ANonFiniteScaleIsAnError) {
  std::vector<uint16_t> scales(16, FloatToHalf(1.0f));
  scales[3] = 0x7c00;
  for (const MatrixFormat format :
       {MatrixFormat(WeightFormat::kQ4), MatrixFormat(WeightFormat::kF32), MlcQ4()}) {
    ConversionPlan plan = OneParam(Write("words", std::vector<uint32_t>(16 * 4)), Integers(format));
    plan.files.push_back(Write("scales", scales));
    ThreadPool threads(1);
    Conversion conversion(plan);

    ASSERT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kFailed);

    EXPECT_EQ(conversion.error().message, "a scale is not finite");
    EXPECT_EQ(conversion.error().path, Path("scales"));
  }
}

TEST_F(WeightsTest, GroupsOfOtherSizesAreAnError) {
  for (const auto& [group, message] :
       std::vector<std::pair<int32_t, std::string>>{{1, "group 1 must have at most 8 inputs"},
                                                    {4, "groups must be in [0, 4), got 4"},
                                                    {-1, "groups must be in [0, 4), got -1"}}) {
    std::vector<int32_t> groups(32);
    for (int32_t k = 0; k < 32; ++k) groups[static_cast<size_t>(k)] = k % 4;
    groups[7 * 4] = group;
    ConversionPlan plan = OneParam(Write("words", std::vector<uint32_t>(16 * 4)),
                                   Integers(MatrixFormat::Parse("u4g8f16z7")));
    SourceMatrix& matrix = plan.params[0].matrices[0];
    matrix.scales->block_inputs = 8;
    matrix.groups = SourceTensor{.file = 2};
    plan.files.push_back(Write("scales", std::vector<uint16_t>(16 * 4)));
    plan.files.push_back(Write("groups", groups));
    ThreadPool threads(1);
    Conversion conversion(plan);

    ASSERT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kFailed);

    EXPECT_EQ(conversion.error().message, message);
    EXPECT_EQ(conversion.error().path, Path("groups"));
  }
}

TEST_F(WeightsTest, AMissingSourceIsAnError) {
  ThreadPool threads(1);
  Conversion conversion(
      OneParam(Path("missing"), Matrix(WeightFormat::kQ4, 16, 32, SourceType::kF32)));

  EXPECT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kFailed);

  EXPECT_EQ(conversion.error().message, "cannot open: No such file or directory");
  EXPECT_EQ(conversion.error().path, Path("missing"));
  EXPECT_FALSE(fs::exists(Path("packed")));
}

TEST_F(WeightsTest, AFailureToCreateTheDestinationIsAnError) {
  const std::string source = Write("source", std::vector<float>(512));
  ThreadPool threads(1);
  Conversion conversion(OneParam(source, Matrix(WeightFormat::kQ4, 16, 32, SourceType::kF32)));

  EXPECT_EQ(conversion.Run(Path("no/packed"), threads), ConversionOutcome::kFailed);

  EXPECT_EQ(conversion.error().message, "cannot create: No such file or directory");
  EXPECT_EQ(conversion.error().path, Path("no/packed"));
}

/*! \brief Makes writes beyond a size fail, like a full disk. */
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : previous_handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit = {bytes, previous_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_;
  void (*previous_handler_)(int);
};

TEST_F(WeightsTest, AFailedWriteIsAnErrorAndRemovesTheDestination) {
  const std::string source = Write("source", std::vector<float>(512));
  ThreadPool threads(1);
  Conversion conversion(OneParam(source, Matrix(WeightFormat::kQ4, 16, 32, SourceType::kF32)));

  ConversionOutcome outcome;
  {
    const FileSizeLimit limit(100);
    outcome = conversion.Run(Path("packed"), threads);
  }

  EXPECT_EQ(outcome, ConversionOutcome::kFailed);
  EXPECT_EQ(conversion.error().message, "cannot write: File too large");
  EXPECT_EQ(conversion.error().path, Path("packed"));
  EXPECT_FALSE(fs::exists(Path("packed")));
}

TEST_F(WeightsTest, ACancelledConversionLeavesNoFile) {
  const std::string source = Write("source", std::vector<float>(512));
  ThreadPool threads(2);
  Conversion conversion(OneParam(source, Matrix(WeightFormat::kQ4, 16, 32, SourceType::kF32)));

  conversion.Cancel();

  EXPECT_EQ(conversion.Run(Path("packed"), threads), ConversionOutcome::kCancelled);
  EXPECT_EQ(conversion.read_bytes(), 0u);
  EXPECT_FALSE(fs::exists(Path("packed")));
}

TEST_F(WeightsTest, ARunningConversionCanBeCancelled) {
  // A sparse file of 16 GB, so that the conversion cannot finish before it is cancelled.
  constexpr int64_t kRows = int64_t{1} << 20;
  constexpr int64_t kCols = 4096;
  const std::string source = Write("source", std::vector<float>(1));
  fs::resize_file(source, kRows * kCols * sizeof(float));
  ThreadPool threads(2);
  Conversion conversion(
      OneParam(source, Matrix(WeightFormat::kQ4, kRows, kCols, SourceType::kF32)));
  std::thread watcher([&] {
    while (conversion.read_bytes() == 0) std::this_thread::yield();
    conversion.Cancel();
  });

  const ConversionOutcome outcome = conversion.Run(Path("packed"), threads);

  watcher.join();
  EXPECT_EQ(outcome, ConversionOutcome::kCancelled);
  EXPECT_GT(conversion.read_bytes(), 0u);
  EXPECT_LT(conversion.read_bytes(), conversion.total_bytes());
  EXPECT_FALSE(fs::exists(Path("packed")));
}

TEST_F(WeightsTest, TheMappingOutlivesTheFileName) {
  const std::string path = Write("packed", std::vector<float>{1, 2, 3});
  std::string error;

  const std::shared_ptr<const MappedWeights> mapping = MappedWeights::Open(path, 12, &error);

  ASSERT_NE(mapping, nullptr) << error;
  fs::remove(path);
  float last;
  std::memcpy(&last, mapping->data() + 8, sizeof(last));
  EXPECT_EQ(last, 3.0f);
  EXPECT_EQ(mapping->size(), 12u);
}

TEST_F(WeightsTest, RejectsMappingATooShortFile) {
  const std::string path = Write("packed", std::vector<float>{1, 2, 3});
  std::string error;

  EXPECT_EQ(MappedWeights::Open(path, 13, &error), nullptr);
  EXPECT_EQ(error, "file has 12 bytes, expected 13");
  EXPECT_EQ(MappedWeights::Open(path, 0, &error), nullptr);
  EXPECT_EQ(error, "cannot map 0 bytes");
  EXPECT_EQ(MappedWeights::Open(Path("missing"), 12, &error), nullptr);
  EXPECT_EQ(error, "No such file or directory");
}

}  // namespace
}  // namespace aiomlc
