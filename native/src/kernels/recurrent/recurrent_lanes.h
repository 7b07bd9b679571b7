/*!
 * \file kernels/recurrent/recurrent_lanes.h
 * \brief The recurrent kernels for a part of one sequence, as a template over the `Lanes` classes.
 */
#ifndef AIOMLC_KERNELS_RECURRENT_RECURRENT_LANES_H_
#define AIOMLC_KERNELS_RECURRENT_RECURRENT_LANES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/recurrent/recurrent.h"
#include "kernels/simd/simd_math.h"

namespace aiomlc {

/*! \brief The kernels of one instruction-set tier. */
struct RecurrentKernels {
  /*! \brief `ShortConv` of the channels [begin, end) of one sequence. */
  void (*short_conv)(const ShortConvCall& call, const StateRun* runs, size_t num_runs,
                     int64_t offset, int64_t begin, int64_t end);
  /*!
   * \brief `GatedDelta` of one key head, and of its value heads, of one sequence.
   * \param scratch float32[GatedDeltaScratch(call)].
   */
  void (*gated_delta)(const GatedDeltaCall& call, const StateRun* runs, size_t num_runs,
                      int64_t offset, int64_t key_head, float* scratch);
};

RecurrentKernels PortableRecurrentKernels();
RecurrentKernels NeonRecurrentKernels();
RecurrentKernels Avx2RecurrentKernels();
RecurrentKernels Avx512RecurrentKernels();

/*! \brief The rows whose convolved inputs a thread keeps at a time. */
constexpr int64_t kRecurrentRows = 32;

/*! \brief The columns of a matrix S whose rows are next to each other in the state. */
constexpr int64_t kStateColumns = 32;

/*! \return The floats of scratch memory that a thread needs. */
inline int64_t GatedDeltaScratch(const GatedDeltaCall& call) {
  const int64_t ratio = call.ratio();
  // Of each row: query, key, the values and outputs of all heads, their decays and betas.
  return kRecurrentRows * (2 * call.key_dim + ratio * (2 * call.value_dim + 2) + 1);
}

/*! \brief The implementation of `RecurrentKernels` with the vectors of one tier. */
template <typename Lanes>
class Recurrent {
 public:
  static RecurrentKernels Kernels() { return {ShortConvPart, GatedDeltaPart}; }

 private:
  using Vector = typename Lanes::Vector;
  static constexpr int kWidth = Lanes::kWidth;

  static Vector Load(const float* source, int count) {
    return count == kWidth ? Lanes::Load(source) : Lanes::LoadFirst(source, count);
  }

  static void Store(float* target, Vector a, int count) {
    if (count == kWidth) {
      Lanes::Store(target, a);
    } else {
      Lanes::StoreFirst(target, a, count);
    }
  }

  static int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }

  /*! \brief Call `function(first, count)` for every vector of [begin, end); the last may be
   * shorter. */
  template <typename Function>
  static void ForVectors(int64_t begin, int64_t end, Function function) {
    for (int64_t i = begin; i < end; i += kWidth) {
      function(i, static_cast<int>(Smaller(end - i, kWidth)));
    }
  }

  /*!
   * \brief The sum of the last `width` inputs of some channels, each times its weight.
   * \param input Returns the inputs of row `i` of the run, which is at least 0.
   * \param tail The inputs before the run, at the channels; null for zeros.
   */
  template <typename Input>
  static Vector Convolve(int64_t row, int64_t width, int64_t stride, const float* weight,
                         const float* tail, Vector sum, int count, Input input) {
    for (int64_t tap = 0; tap < width; ++tap) {
      const int64_t source = row + tap - (width - 1);
      if (source < 0 && tail == nullptr) continue;
      const Vector value =
          source < 0 ? Load(tail + (source + width - 1) * stride, count) : input(source);
      sum = Lanes::Fma(value, Load(weight + tap * stride, count), sum);
    }
    return sum;
  }

  /*! \brief Write the last inputs of a run of `rows` rows; `source` may be `target`. */
  template <typename Input>
  static void KeepTail(int64_t rows, int64_t width, int64_t stride, const float* source,
                       float* target, int count, Input input) {
    for (int64_t i = 0; i < width - 1; ++i) {
      const int64_t row = rows - (width - 1) + i;
      Vector value = Lanes::Set(0.0f);
      if (row >= 0) {
        value = input(row);
      } else if (source != nullptr) {
        value = Load(source + (row + width - 1) * stride, count);
      }
      Store(target + i * stride, value, count);
    }
  }

  static void ShortConvPart(const ShortConvCall& call, const StateRun* runs, size_t num_runs,
                            int64_t offset, int64_t begin, int64_t end) {
    const int64_t size = call.channels;
    for (size_t n = 0; n < num_runs; ++n) {
      const StateRun& run = runs[n];
      const float* const inputs = call.inputs + run.begin * 3 * size;
      ForVectors(begin, end, [&](int64_t channel, int count) {
        const float* const tail = run.source == nullptr ? nullptr : run.source + offset + channel;
        const auto input = [&](int64_t row) {
          const float* const b = inputs + row * 3 * size + channel;
          return Lanes::Mul(Load(b, count), Load(b + 2 * size, count));
        };
        const Vector bias =
            call.bias == nullptr ? Lanes::Set(0.0f) : Load(call.bias + channel, count);
        if (call.out != nullptr) {
          for (int64_t row = 0; row < run.count; ++row) {
            const Vector sum =
                Convolve(row, call.width, size, call.weight + channel, tail, bias, count, input);
            const Vector c = Load(inputs + (row * 3 + 1) * size + channel, count);
            Store(call.out + (run.begin + row) * size + channel, Lanes::Mul(c, sum), count);
          }
        }
        KeepTail(run.count, call.width, size, tail, run.target + offset + channel, count, input);
      });
    }
  }

  /*! \brief The scratch memory of a thread, for up to `kRecurrentRows` rows. */
  struct Scratch {
    Scratch(const GatedDeltaCall& call, float* memory)
        : ratio(call.ratio()),
          queries(memory),
          keys(queries + kRecurrentRows * call.key_dim),
          products(keys + kRecurrentRows * call.key_dim),
          values(products + kRecurrentRows),
          outputs(values + kRecurrentRows * ratio * call.value_dim),
          decays(outputs + kRecurrentRows * ratio * call.value_dim),
          betas(decays + kRecurrentRows * ratio) {}

    const int64_t ratio;  //!< Value heads of a key head.
    float* queries;       //!< [rows, key_dim]
    float* keys;          //!< [rows, key_dim]
    float* products;      //!< [rows]: of query and key
    float* values;        //!< [rows, ratio, value_dim]
    float* outputs;       //!< [rows, ratio, value_dim]
    float* decays;        //!< [rows, ratio]
    float* betas;         //!< [rows, ratio]
  };

  static void GatedDeltaPart(const GatedDeltaCall& call, const StateRun* runs, size_t num_runs,
                             int64_t offset, int64_t key_head, float* memory) {
    const Scratch scratch(call, memory);
    for (size_t n = 0; n < num_runs; ++n) {
      const StateRun& run = runs[n];
      for (int64_t row = 0; row < run.count; row += kRecurrentRows) {
        const int64_t rows = Smaller(kRecurrentRows, run.count - row);
        ConvolveHeads(call, run, row, rows, offset, key_head, scratch);
        NormalizeHeads(call, rows, scratch);
        ComputeGates(call, run.begin + row, rows, key_head, scratch);
        for (int64_t i = 0; i < scratch.ratio; ++i) {
          UpdateState(call, run, row, rows, offset, call.ValueHead(key_head, i), i, scratch);
        }
        if (call.out != nullptr) WriteOutputs(call, run.begin + row, rows, key_head, scratch);
      }
      KeepTails(call, run, offset, key_head, scratch);
    }
  }

  /*!
   * \brief Call `function(channel, size, target, stride)` for the query, the key and the values of
   * a key head; `stride` is the distance of rows in the target.
   */
  template <typename Function>
  static void ForParts(const GatedDeltaCall& call, int64_t key_head, const Scratch& scratch,
                       Function function) {
    const int64_t keys = call.num_key_heads * call.key_dim;
    const int64_t stride = scratch.ratio * call.value_dim;
    function(key_head * call.key_dim, call.key_dim, scratch.queries, call.key_dim);
    function(keys + key_head * call.key_dim, call.key_dim, scratch.keys, call.key_dim);
    for (int64_t i = 0; i < scratch.ratio; ++i) {
      function(2 * keys + call.ValueHead(key_head, i) * call.value_dim, call.value_dim,
               scratch.values + i * call.value_dim, stride);
    }
  }

  /*! \brief Compute queries, keys and values: the SiLU of the convolution. */
  static void ConvolveHeads(const GatedDeltaCall& call, const StateRun& run, int64_t begin,
                            int64_t rows, int64_t offset, int64_t key_head,
                            const Scratch& scratch) {
    const int64_t stride = call.channels();
    const float* const inputs = call.inputs + run.begin * call.row_size();
    ForParts(call, key_head, scratch,
             [&](int64_t first, int64_t size, float* target, int64_t target_stride) {
               ForVectors(0, size, [&](int64_t i, int count) {
                 const int64_t channel = first + i;
                 const float* const tail =
                     run.source == nullptr ? nullptr : run.source + offset + channel;
                 const auto input = [&](int64_t row) {
                   return Load(inputs + row * call.row_size() + channel, count);
                 };
                 for (int64_t row = 0; row < rows; ++row) {
                   const Vector sum =
                       Convolve(begin + row, call.width, stride, call.conv_weight + channel, tail,
                                Lanes::Set(0.0f), count, input);
                   const Vector decay = Exp<Lanes>(Lanes::Sub(Lanes::Set(0.0f), sum));
                   Store(target + row * target_stride + i,
                         Lanes::Div(sum, Lanes::Add(Lanes::Set(1.0f), decay)), count);
                 }
               });
             });
  }

  static void KeepTails(const GatedDeltaCall& call, const StateRun& run, int64_t offset,
                        int64_t key_head, const Scratch& scratch) {
    const int64_t stride = call.channels();
    const float* const inputs = call.inputs + run.begin * call.row_size();
    ForParts(call, key_head, scratch,
             [&](int64_t first, int64_t size, float* /*target*/, int64_t /*stride*/) {
               ForVectors(first, first + size, [&](int64_t channel, int count) {
                 const float* const tail =
                     run.source == nullptr ? nullptr : run.source + offset + channel;
                 KeepTail(run.count, call.width, stride, tail, run.target + offset + channel, count,
                          [&](int64_t row) {
                            return Load(inputs + row * call.row_size() + channel, count);
                          });
               });
             });
  }

  static float Dot(const float* a, const float* b, int64_t size) {
    Vector sum = Lanes::Set(0.0f);
    ForVectors(0, size, [&](int64_t i, int count) {
      sum = Lanes::Fma(Load(a + i, count), Load(b + i, count), sum);
    });
    return Lanes::Sum(sum);
  }

  static void Multiply(float* x, float factor, int64_t size) {
    ForVectors(0, size, [&](int64_t i, int count) {
      Store(x + i, Lanes::Mul(Load(x + i, count), Lanes::Set(factor)), count);
    });
  }

  /*! \brief Give queries and keys length 1, and multiply queries by 1 / sqrt(key_dim). */
  static void NormalizeHeads(const GatedDeltaCall& call, int64_t rows, const Scratch& scratch) {
    constexpr float kEps = 1e-6f;
    const int64_t size = call.key_dim;
    const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(size));
    for (int64_t row = 0; row < rows; ++row) {
      float* const query = scratch.queries + row * size;
      float* const key = scratch.keys + row * size;
      Multiply(query, scale / __builtin_sqrtf(Dot(query, query, size) + kEps), size);
      Multiply(key, 1.0f / __builtin_sqrtf(Dot(key, key, size) + kEps), size);
      scratch.products[row] = Dot(query, key, size);
    }
  }

  static void ComputeGates(const GatedDeltaCall& call, int64_t begin, int64_t rows,
                           int64_t key_head, const Scratch& scratch) {
    const int64_t heads = call.num_value_heads;
    for (int64_t row = 0; row < rows; ++row) {
      const float* const gates = call.gates + (begin + row) * 2 * heads;
      for (int64_t i = 0; i < scratch.ratio; ++i) {
        const int64_t head = call.ValueHead(key_head, i);
        const float x = gates[heads + head] + call.dt_bias[head];
        const float softplus = x > 20.0f ? x : __builtin_log1pf(__builtin_expf(x));
        const float rate =
            call.has_log_rates ? -__builtin_expf(call.rates[head]) : call.rates[head];
        scratch.decays[row * scratch.ratio + i] = __builtin_expf(rate * softplus);
        scratch.betas[row * scratch.ratio + i] = 1.0f / (1.0f + __builtin_expf(-gates[head]));
      }
    }
  }

  /*! \brief Let rows update the matrix of value head `head`, the `index`-th of its key head. */
  static void UpdateState(const GatedDeltaCall& call, const StateRun& run, int64_t begin,
                          int64_t rows, int64_t offset, int64_t head, int64_t index,
                          const Scratch& scratch) {
    const int64_t matrix =
        offset + ConvStateSize(call.width, call.channels()) + head * call.key_dim * call.value_dim;
    // The first rows of a run read the state before it, the others what these have written.
    const float* const source = begin > 0               ? run.target + matrix
                                : run.source == nullptr ? nullptr
                                                        : run.source + matrix;
    for (int64_t column = 0; column < call.value_dim; column += kStateColumns) {
      const int64_t columns = Smaller(kStateColumns, call.value_dim - column);
      const int64_t block = column * call.key_dim;
      const float* const from = source == nullptr ? nullptr : source + block;
      const Block part{columns, column, index, rows};
      float* const to = run.target + matrix + block;
      int64_t i = 0;
      for (; i + kWide * kWidth <= columns; i += kWide * kWidth) {
        UpdateColumns<kWide>(call, part, i, kWidth, from, to, scratch);
      }
      ForVectors(i, columns, [&](int64_t first, int count) {
        if (count == kWidth) {
          UpdateColumns<1>(call, part, first, kWidth, from, to, scratch);
        } else {
          UpdateColumns<0>(call, part, first, count, from, to, scratch);
        }
      });
    }
  }

  /*! \brief Columns of the matrix of a value head that are next to each other in the state. */
  struct Block {
    int64_t columns;
    int64_t first;  //!< The first column.
    int64_t index;  //!< The value head among those of its key head.
    int64_t rows;
  };

  /*! \brief The vectors of columns that fit in registers with their sums. */
  static constexpr int kWide = Lanes::kRegisters == 1 ? 2 : 1;

  /*! \brief The products of a matrix with a key and a query, of some columns. */
  template <int kVectors>
  struct Products {
    /*! \brief Sums of the even and of the odd rows, since an addition takes longer than the next
     * one can wait. */
    Vector remembered[2][kVectors], answer[2][kVectors];

    Products() {
      for (int parity = 0; parity < 2; ++parity) {
        for (int v = 0; v < kVectors; ++v) {
          remembered[parity][v] = answer[parity][v] = Lanes::Set(0.0f);
        }
      }
    }

    void Add(int parity, int v, Vector cell, float key, float query) {
      remembered[parity][v] = Lanes::Fma(cell, Lanes::Set(key), remembered[parity][v]);
      answer[parity][v] = Lanes::Fma(cell, Lanes::Set(query), answer[parity][v]);
    }
  };

  /*!
   * \brief Let rows update some columns of a block.
   * \tparam kWhole The whole vectors of columns from `i` on; 0 for the first `count` columns of
   * one.
   */
  template <int kWhole>
  static void UpdateColumns(const GatedDeltaCall& call, const Block& block, int64_t i,
                            int num_columns, const float* from, float* to, const Scratch& scratch) {
    constexpr int kVectors = kWhole == 0 ? 1 : kWhole;
    const int count = kWhole == 0 ? num_columns : kWidth;
    const int64_t size = call.key_dim;
    const int64_t stride = block.columns;
    Products<kVectors> products;
    if (from != nullptr) {
      for (int64_t k = 0; k < size; ++k) {
        for (int v = 0; v < kVectors; ++v) {
          products.Add(k & 1, v, Load(from + k * stride + i + v * kWidth, count), scratch.keys[k],
                       scratch.queries[k]);
        }
      }
    }
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t pair = row * scratch.ratio + block.index;
      const int64_t at = pair * call.value_dim + block.first + i;
      const Vector decay = Lanes::Set(scratch.decays[pair]);
      Vector delta[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        const Vector remembered =
            Lanes::Mul(decay, Lanes::Add(products.remembered[0][v], products.remembered[1][v]));
        const Vector answer =
            Lanes::Mul(decay, Lanes::Add(products.answer[0][v], products.answer[1][v]));
        const Vector value = Load(scratch.values + at + v * kWidth, count);
        delta[v] = Lanes::Mul(Lanes::Set(scratch.betas[pair]), Lanes::Sub(value, remembered));
        Store(scratch.outputs + at + v * kWidth,
              Lanes::Fma(Lanes::Set(scratch.products[row]), delta[v], answer), count);
      }
      const float* const key = scratch.keys + row * size;
      // The products with the next key and query are computed while the cells are in registers.
      products = row + 1 < block.rows
                     ? UpdateCells<kVectors, true>(from, to, stride, i, count, key, size,
                                                   scratch.queries + (row + 1) * size, decay, delta)
                     : UpdateCells<kVectors, false>(from, to, stride, i, count, key, size, nullptr,
                                                    decay, delta);
      from = to;
    }
  }

  /*!
   * \brief Compute cell = decay * cell + key * delta, of all rows of some columns.
   * \return If `kHasNext`, the products of the new cells with the next key and query.
   */
  template <int kVectors, bool kHasNext>
  static Products<kVectors> UpdateCells(const float* from, float* to, int64_t stride, int64_t i,
                                        int count, const float* key, int64_t size,
                                        const float* next_query, Vector decay,
                                        const Vector (&delta)[kVectors]) {
    Products<kVectors> products;
    const auto update = [&](int64_t k, int parity) {
      for (int v = 0; v < kVectors; ++v) {
        const int64_t cell = k * stride + i + v * kWidth;
        const Vector old =
            from == nullptr ? Lanes::Set(0.0f) : Lanes::Mul(decay, Load(from + cell, count));
        const Vector updated = Lanes::Fma(Lanes::Set(key[k]), delta[v], old);
        Store(to + cell, updated, count);
        if constexpr (kHasNext) products.Add(parity, v, updated, key[size + k], next_query[k]);
      }
    };
    int64_t k = 0;
    for (; k + 1 < size; k += 2) {
      update(k, 0);
      update(k + 1, 1);
    }
    if (k < size) update(k, 0);
    return products;
  }

  /*! \brief Norm the outputs of the value heads of a key head, and gate them. */
  static void WriteOutputs(const GatedDeltaCall& call, int64_t begin, int64_t rows,
                           int64_t key_head, const Scratch& scratch) {
    const int64_t size = call.value_dim;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < scratch.ratio; ++i) {
        const float* const x = scratch.outputs + (row * scratch.ratio + i) * size;
        const int64_t head = call.ValueHead(key_head, i);
        const float* const gate_row =
            call.inputs + (begin + row) * call.row_size() + call.channels() + head * size;
        float* const out = call.out + (begin + row) * call.num_values() + head * size;
        const float mean = Dot(x, x, size) / static_cast<float>(size);
        const Vector scale = Lanes::Set(1.0f / __builtin_sqrtf(mean + call.eps));
        ForVectors(0, size, [&](int64_t j, int count) {
          const Vector normal = Lanes::Mul(Load(x + j, count), scale);
          const Vector z = Load(gate_row + j, count);
          const Vector decay = Exp<Lanes>(Lanes::Sub(Lanes::Set(0.0f), z));
          const Vector gate = Lanes::Div(z, Lanes::Add(Lanes::Set(1.0f), decay));
          const Vector weighted = Lanes::Mul(normal, Load(call.norm_weight + j, count));
          Store(out + j, Lanes::Mul(weighted, gate), count);
        });
      }
    }
  }
};

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_RECURRENT_RECURRENT_LANES_H_
