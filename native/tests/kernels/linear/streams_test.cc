#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/linear/base/linear_kernels.h"
#include "kernels/linear/channel/channel_kernels.h"
#include "kernels/linear/format/panel.h"
#include "kernels/linear/linear.h"
#include "platform/isa.h"
#include "tests/doubles/channel_matrix.h"
#include "tests/doubles/grouped_matrix.h"
#include "tests/doubles/kernel_testing.h"
#include "tests/doubles/q4_matrix.h"

#if defined(__x86_64__)

namespace aiomlc {
namespace {

using Kernel = void (*)(const LinearBlock&);

constexpr int64_t kInputs = 160;

/*! \brief Compares kernels that compute several tiles at a time with those they replace. */
class StreamsTest : public ::testing::Test {
 protected:
  static void RequireTier(Isa isa) {
    if (!IsSupported(isa)) GTEST_SKIP() << "needs " << IsaName(isa);
  }

  /*! \brief Compare the outputs of 1 to 6 rows. `set_rows(x, rows, block)` sets the activations. */
  template <typename SetRows>
  static void ExpectSameOutputs(Kernel kernel, Kernel expected, LinearBlock block,
                                SetRows set_rows) {
    block.num_inputs = kInputs;
    block.out_stride = block.num_outputs;
    block.tile_end = (block.num_outputs + kTileRows - 1) / kTileRows;
    block.out_type = FloatType::kF32;
    for (int64_t rows = 1; rows <= 6; ++rows) {
      SCOPED_TRACE(std::to_string(block.num_outputs) + " outputs, " + std::to_string(rows) +
                   " rows");
      const Floats x = RandomFloats(rows * kInputs, 3);
      set_rows(x, rows, block);
      block.row_end = rows;
      Floats outputs(rows * block.num_outputs, 1234.0f);
      Floats expected_outputs = outputs;
      block.out = outputs.data();
      kernel(block);
      block.out = expected_outputs.data();
      expected(block);
      ExpectSameBits(outputs, expected_outputs);
    }
  }

  /*! \brief Call `compare` for numbers of outputs with and without a rest of tiles. */
  template <typename Compare>
  static void ForOutputs(Compare compare) {
    for (const int64_t outputs : {1, 16, 63, 64, 65, 100, 128, 144}) compare(outputs);
  }

  static void CompareQ4(Kernel kernel, Kernel expected) {
    ForOutputs([&](int64_t outputs) {
      const Bytes packed = Q4Matrix(outputs, kInputs, 1).Pack();
      std::vector<ActivationGroup> groups;
      LinearBlock block = {};
      block.packed = packed.data();
      block.num_outputs = outputs;
      ExpectSameOutputs(kernel, expected, block,
                        [&](const Floats& x, int64_t rows, LinearBlock& of_rows) {
                          groups.resize(rows * GroupsOf(kInputs));
                          kLinearPortable.quantize({x.data(), FloatType::kF32, rows, kInputs,
                                                    GroupsOf(kInputs), 0, rows, groups.data()});
                          of_rows.activations = groups.data();
                        });
    });
  }
};

TEST_F(StreamsTest, Q4OnAvx2) {
  RequireTier(Isa::kAvx2);
  if (!IsSkipped()) CompareQ4(Q4StreamsAvx2, kLinearAvx2.q4);
}

TEST_F(StreamsTest, Q4OnAvxVnni) {
  RequireTier(Isa::kAvxVnni);
  if (!IsSkipped()) CompareQ4(kQ4StreamsAvxVnni, kQ4AvxVnni);
}

TEST_F(StreamsTest, Q4OnAvx512) {
  RequireTier(Isa::kAvx512);
  if (!IsSkipped()) CompareQ4(Q4StreamsAvx512, kLinearAvx512.q4);
}

TEST_F(StreamsTest, GroupedOnAvx512) {
  RequireTier(Isa::kAvx512);
  if (IsSkipped()) return;
  for (const char* name : kGroupedFormats) {
    SCOPED_TRACE(name);
    const MatrixFormat format = MatrixFormat::Parse(name);
    ForOutputs([&](int64_t outputs) {
      const Bytes packed = GroupedMatrix(format, outputs, kInputs, 1).Pack();
      std::vector<BiasedGroup> groups;
      LinearBlock block = {};
      block.packed = packed.data();
      block.tile = GroupedTileOf(format);
      block.num_outputs = outputs;
      ExpectSameOutputs(
          GroupedStreamsAvx512, GroupedAvx512, block,
          [&](const Floats& x, int64_t rows, LinearBlock& of_rows) {
            groups.resize(rows * GroupsOf(kInputs));
            kLinearPortable.quantize_biased({x.data(), FloatType::kF32, rows, kInputs,
                                             GroupsOf(kInputs), 0, rows, groups.data()});
            of_rows.biased = groups.data();
          });
    });
  }
}

TEST_F(StreamsTest, ChannelsOnAvx512) {
  RequireTier(Isa::kAvx512);
  if (IsSkipped()) return;
  ForOutputs([&](int64_t outputs) {
    const Bytes packed = ChannelMatrix(outputs, kInputs, 1).Pack();
    Bytes panel;
    LinearBlock block = {};
    block.packed = packed.data();
    block.num_outputs = outputs;
    ExpectSameOutputs(
        ChannelStreamsAvx512, kChannelAvx512.multiply, block,
        [&](const Floats& x, int64_t rows, LinearBlock& of_rows) {
          panel.resize(rows * ChannelRowBytes(kInputs));
          const int64_t scales = rows * ChannelGroupsOf(kInputs) * kChannelGroup;
          for (int64_t row = 0; row < rows; ++row) {
            kChannelAvx512.quantize({x.data(), FloatType::kF32, row * kInputs, kInputs,
                                     &panel[row * kChannelGroup], rows * kChannelGroup,
                                     &panel[scales + row * static_cast<int64_t>(sizeof(float))]});
          }
          of_rows.int8_rows = panel.data();
        });
  });
}

}  // namespace
}  // namespace aiomlc

#endif  // defined(__x86_64__)
