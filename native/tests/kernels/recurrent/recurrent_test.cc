#include "kernels/recurrent/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "kernels/recurrent/state_memory.h"
#include "tests/doubles/kernel_testing.h"

namespace aiomlc {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

/*! \brief Weights and inputs of one gated delta net, and its computation in float64. */
struct DeltaCase {
  DeltaCase(int64_t key_heads, int64_t ratio, int64_t key_dim, int64_t value_dim, int64_t rows,
            int64_t width = 4)
      : rows(rows) {
    call.num_key_heads = key_heads;
    call.num_value_heads = key_heads * ratio;
    call.key_dim = key_dim;
    call.value_dim = value_dim;
    call.width = width;
    call.eps = 1e-6f;
    inputs = RandomFloats(rows * call.row_size(), 1);
    gates = RandomFloats(rows * 2 * call.num_value_heads, 3, 2.0f);
    conv_weight = RandomFloats(width * call.channels(), 4, 0.5f);
    a_log = RandomFloats(call.num_value_heads, 5, 0.5f);
    dt_bias = RandomFloats(call.num_value_heads, 6);
    norm_weight = RandomFloats(value_dim, 7);
  }

  /*! \return The call with the weights, without inputs. */
  GatedDeltaCall WithWeights() const {
    GatedDeltaCall with = call;
    with.conv_weight = conv_weight.data();
    with.rates = a_log.data();
    with.dt_bias = dt_bias.data();
    with.norm_weight = norm_weight.data();
    return with;
  }

  /*! \brief Compute rows [begin, end), which the states of the chains belong to. */
  Floats Run(int64_t begin, int64_t end, const std::vector<StateChain>& chains,
             int num_threads = 1) const {
    ThreadPool pool(num_threads);
    const int64_t heads = call.num_value_heads;
    Floats out((end - begin) * heads * call.value_dim);
    GatedDeltaCall part = WithWeights();
    part.inputs = inputs.data() + begin * call.row_size();
    part.gates = gates.data() + begin * 2 * heads;
    part.out = out.data();
    GatedDelta(pool, part, chains, 0);
    return out;
  }

  Doubles Expected() const {
    const int64_t keys = call.num_key_heads * call.key_dim;
    Doubles out;
    std::vector<Doubles> states(call.num_value_heads, Doubles(call.key_dim * call.value_dim));
    for (int64_t row = 0; row < rows; ++row) {
      const Doubles mixed = Convolved(row);
      for (int64_t head = 0; head < call.num_value_heads; ++head) {
        const int64_t key_head = head / (call.num_value_heads / call.num_key_heads);
        const Doubles q = Normal(mixed, key_head * call.key_dim);
        const Doubles k = Normal(mixed, keys + key_head * call.key_dim);
        const double* const v = mixed.data() + 2 * keys + head * call.value_dim;
        AppendRow(row, head, q, k, v, &states[head], &out);
      }
    }
    return out;
  }

  GatedDeltaCall call;
  int64_t rows;
  Floats inputs, gates, conv_weight, a_log, dt_bias, norm_weight;

 private:
  static double Silu(double x) { return x / (1 + std::exp(-x)); }

  Doubles Convolved(int64_t row) const {
    Doubles mixed;
    for (int64_t channel = 0; channel < call.channels(); ++channel) {
      double sum = 0;
      for (int64_t tap = 0; tap < call.width; ++tap) {
        const int64_t source = row + tap - (call.width - 1);
        if (source < 0) continue;
        sum += static_cast<double>(inputs[source * call.row_size() + channel]) *
               conv_weight[tap * call.channels() + channel];
      }
      mixed.push_back(Silu(sum));
    }
    return mixed;
  }

  Doubles Normal(const Doubles& mixed, int64_t begin) const {
    Doubles x(mixed.begin() + begin, mixed.begin() + begin + call.key_dim);
    double squares = 0;
    for (double value : x) squares += value * value;
    for (double& value : x) value /= std::sqrt(squares + 1e-6);
    return x;
  }

  void AppendRow(int64_t row, int64_t head, const Doubles& q, const Doubles& k, const double* v,
                 Doubles* state, Doubles* out) const {
    const int64_t heads = call.num_value_heads;
    const double a = gates[(row * 2 + 1) * heads + head] + static_cast<double>(dt_bias[head]);
    const double decay = std::exp(-std::exp(a_log[head]) * std::log1p(std::exp(a)));
    const double beta = 1 / (1 + std::exp(-static_cast<double>(gates[row * 2 * heads + head])));
    Doubles o(call.value_dim);
    for (int64_t j = 0; j < call.value_dim; ++j) {
      double remembered = 0;
      for (int64_t i = 0; i < call.key_dim; ++i) {
        double& cell = (*state)[i * call.value_dim + j];
        cell *= decay;
        remembered += cell * k[i];
      }
      const double delta = beta * (v[j] - remembered);
      for (int64_t i = 0; i < call.key_dim; ++i) {
        double& cell = (*state)[i * call.value_dim + j];
        cell += k[i] * delta;
        o[j] += cell * q[i] / std::sqrt(static_cast<double>(call.key_dim));
      }
    }
    double squares = 0;
    for (double value : o) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(o.size()) + 1e-6);
    for (int64_t j = 0; j < call.value_dim; ++j) {
      out->push_back(
          o[j] * scale * norm_weight[j] *
          Silu(inputs[row * call.row_size() + call.channels() + head * call.value_dim + j]));
    }
  }
};

StateRun RowsFrom(int64_t begin, int64_t count, const Floats* source, Floats* target) {
  return {begin, count, source == nullptr ? nullptr : source->data(), target->data()};
}

std::vector<DeltaCase> DeltaCases() {
  return {{2, 2, 128, 128, 70},
          {1, 1, 8, 8, 40},
          {3, 1, 7, 33, 5},
          {2, 3, 16, 48, 1},
          {1, 2, 20, 70, 33, 1}};
}

TEST(GatedDelta, EqualsTheFloat64Recurrence) {
  for (const DeltaCase& test : DeltaCases()) {
    for (const Isa isa : SupportedTiers()) {
      const TierScope tier(isa);
      Floats state(test.call.state_size());
      const Floats out = test.Run(0, test.rows, {{RowsFrom(0, test.rows, nullptr, &state)}});
      const Doubles expected = test.Expected();
      ASSERT_EQ(out.size(), expected.size());
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << IsaName(isa);
      }
    }
  }
}

TEST(GatedDelta, TiersAndThreadsComputeTheSameBits) {
  for (const DeltaCase& test : DeltaCases()) {
    Floats first_out, first_state;
    for (const Isa isa : SupportedTiers()) {
      for (const int threads : {1, 3}) {
        const TierScope tier(isa);
        Floats state(test.call.state_size());
        const Floats out =
            test.Run(0, test.rows, {{RowsFrom(0, test.rows, nullptr, &state)}}, threads);
        if (first_out.empty()) {
          first_out = out;
          first_state = state;
        }
        ExpectSameBits(out, first_out);
        ExpectSameBits(state, first_state);
      }
    }
  }
}

TEST(GatedDelta, PassesAndRunsDoNotChangeBits) {
  for (const DeltaCase& test : DeltaCases()) {
    Floats whole(test.call.state_size());
    const Floats expected = test.Run(0, test.rows, {{RowsFrom(0, test.rows, nullptr, &whole)}});
    for (const int64_t part : {1, 2, 3, 31, 32, 33}) {
      Floats actual;
      Floats state(test.call.state_size());
      for (int64_t begin = 0; begin < test.rows; begin += part) {
        const int64_t end = std::min(begin + part, test.rows);
        const Floats rows = test.Run(
            begin, end, {{RowsFrom(0, end - begin, begin == 0 ? nullptr : &state, &state)}});
        actual.insert(actual.end(), rows.begin(), rows.end());
      }
      ExpectSameBits(actual, expected);
      ExpectSameBits(state, whole);
      if (part >= test.rows) continue;
      Floats middle(test.call.state_size());
      const Floats runs = test.Run(0, test.rows,
                                   {{RowsFrom(0, part, nullptr, &middle),
                                     RowsFrom(part, test.rows - part, &middle, &state)}});
      ExpectSameBits(runs, expected);
      ExpectSameBits(state, whole);
      // The state in the middle is the one that a pass of these tokens alone leaves.
      Floats alone(test.call.state_size());
      test.Run(0, part, {{RowsFrom(0, part, nullptr, &alone)}});
      ExpectSameBits(middle, alone);
    }
  }
}

TEST(GatedDelta, TiledHeadsAreGroupedHeadsInAnotherOrder) {
  const DeltaCase grouped(2, 3, 8, 16, 9);
  DeltaCase tiled = grouped;
  tiled.call.is_tiled = true;
  tiled.call.has_log_rates = false;
  const int64_t keys = 2 * 2 * 8;
  const auto reorder = [&](const Floats& source, Floats* target, int64_t row, int64_t begin,
                           int64_t size) {
    for (int64_t head = 0; head < 6; ++head) {
      const int64_t moved = head % 3 * 2 + head / 3;
      for (int64_t j = 0; j < size; ++j) {
        (*target)[row + begin + moved * size + j] = source[row + begin + head * size + j];
      }
    }
  };
  for (int64_t row = 0; row < 9; ++row) {
    for (const int64_t begin : {keys, keys + 6 * 16}) {
      reorder(grouped.inputs, &tiled.inputs, row * grouped.call.row_size(), begin, 16);
    }
    for (const int64_t begin : {0, 6}) reorder(grouped.gates, &tiled.gates, row * 12, begin, 1);
  }
  for (int64_t tap = 0; tap < 4; ++tap) {
    reorder(grouped.conv_weight, &tiled.conv_weight, tap * grouped.call.channels(), keys, 16);
  }
  reorder(grouped.a_log, &tiled.a_log, 0, 0, 1);
  reorder(grouped.dt_bias, &tiled.dt_bias, 0, 0, 1);
  for (float& rate : tiled.a_log) rate = -std::exp(rate);

  Floats state(grouped.call.state_size()), tiled_state(state);
  const Floats expected = grouped.Run(0, 9, {{RowsFrom(0, 9, nullptr, &state)}});
  const Floats actual = tiled.Run(0, 9, {{RowsFrom(0, 9, nullptr, &tiled_state)}});

  Floats reordered(expected.size());
  for (int64_t row = 0; row < 9; ++row) reorder(expected, &reordered, row * 96, 0, 16);
  ExpectSameBits(actual, reordered);
}

TEST(GatedDelta, SequencesOfABatchDoNotSeeEachOther) {
  const DeltaCase test(2, 2, 16, 24, 20);
  Floats alone(test.call.state_size()), other(test.call.state_size()), both(alone);
  const Floats first = test.Run(0, 8, {{RowsFrom(0, 8, nullptr, &alone)}});
  Floats second = test.Run(8, 20, {{RowsFrom(0, 12, nullptr, &other)}});
  Floats third(test.call.state_size());
  const Floats batch =
      test.Run(0, 20, {{RowsFrom(0, 8, nullptr, &both)}, {RowsFrom(8, 12, nullptr, &third)}}, 2);
  Floats expected = first;
  expected.insert(expected.end(), second.begin(), second.end());
  ExpectSameBits(batch, expected);
  ExpectSameBits(both, alone);
  ExpectSameBits(third, other);
}

TEST(ShortConv, EqualsTheFloat64Convolution) {
  for (const auto& [channels, width, rows, has_bias] :
       {std::tuple<int64_t, int64_t, int64_t, bool>{64, 3, 20, true},
        {5, 4, 9, false},
        {600, 3, 2, true},
        {17, 1, 3, false}}) {
    const Floats inputs = RandomFloats(rows * 3 * channels, 1);
    const Floats weight = RandomFloats(width * channels, 2);
    const Floats bias = RandomFloats(channels, 3);
    Floats first;
    for (const Isa isa : SupportedTiers()) {
      const TierScope tier(isa);
      for (const int64_t part : {1, 2, 1000}) {
        ThreadPool pool(2);
        Floats state(ConvStateSize(width, channels) + 1);
        Floats out(rows * channels);
        for (int64_t begin = 0; begin < rows; begin += part) {
          const int64_t count = std::min<int64_t>(part, rows - begin);
          ShortConvCall call{channels,
                             width,
                             inputs.data() + begin * 3 * channels,
                             weight.data(),
                             has_bias ? bias.data() : nullptr,
                             out.data() + begin * channels};
          const std::vector<StateChain> chains{
              {RowsFrom(0, count, begin == 0 ? nullptr : &state, &state)}};
          ShortConv(pool, call, chains, 0);
        }
        if (first.empty()) first = out;
        ExpectSameBits(out, first);
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = has_bias ? bias[c] : 0;
        for (int64_t tap = 0; tap < width; ++tap) {
          const int64_t source = row + tap - (width - 1);
          if (source < 0) continue;
          const float* const in = inputs.data() + source * 3 * channels + c;
          sum += static_cast<double>(in[0]) * in[2 * channels] * weight[tap * channels + c];
        }
        const double expected = sum * inputs[(row * 3 + 1) * channels + c];
        ASSERT_NEAR(first[row * channels + c], expected, 1e-5 * (1 + std::abs(expected)));
      }
    }
  }
}

TEST(StateMemory, ReplaysRecordedTokens) {
  const DeltaCase test(2, 2, 16, 24, 12);
  const int64_t channels = 10;
  const Floats conv_inputs = RandomFloats(12 * 3 * channels, 8);
  const Floats conv_weight = RandomFloats(3 * channels, 9);
  const ShortConvCall conv{channels, 3, nullptr, conv_weight.data(), nullptr, nullptr};
  StateMemory memory(4, {ConvStateSize(3, channels), test.call.state_size()});
  const auto pass = [&](int64_t begin, int64_t count, int source, int target, bool records) {
    const float* const from = source < 0 ? nullptr : memory.slot(source);
    memory.Begin({{7, {{0, count, from, memory.slot(target)}}, records}});
    ShortConvCall conv_call = conv;
    conv_call.inputs = conv_inputs.data() + begin * 3 * channels;
    Floats conv_out(count * channels);
    conv_call.out = conv_out.data();
    memory.Run(0, conv_call);
    GatedDeltaCall call = test.WithWeights();
    Floats out(count * call.num_values());
    call.inputs = test.inputs.data() + begin * call.row_size();
    call.gates = test.gates.data() + begin * 2 * call.num_value_heads;
    call.out = out.data();
    memory.Run(1, call);
  };
  const size_t floats = memory.slot_bytes() / sizeof(float);
  std::fill(memory.slot(0), memory.slot(0) + 4 * floats, 0.0f);
  pass(0, 4, -1, 0, false);
  pass(4, 8, 0, 1, true);
  for (int64_t count = 1; count < 8; ++count) {
    memory.Replay(7, {0, count, memory.slot(0), memory.slot(2)});
    StateMemory other(2, {ConvStateSize(3, channels), test.call.state_size()});
    std::copy_n(memory.slot(0), floats, other.slot(0));
    std::swap(memory, other);
    std::fill(memory.slot(1), memory.slot(1) + floats, 0.0f);
    pass(4, count, 0, 1, false);
    std::swap(memory, other);
    ExpectSameBits(Floats(memory.slot(2), memory.slot(2) + floats),
                   Floats(other.slot(1), other.slot(1) + floats));
  }
}

}  // namespace
}  // namespace aiomlc
