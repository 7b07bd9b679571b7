/*!
 * \file kernels/elementwise/elementwise.cc
 * \brief The distribution of rows over threads, and the dispatch to the active tier.
 */
#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/elementwise/elementwise_parts.h"
#include "kernels/elementwise/elementwise_rows.h"
#include "platform/isa.h"

namespace aiomlc {

RowKernels ActiveRowKernels() {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAmx:
    case Isa::kAvx512:
      return Avx512RowKernels();
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      return Avx2RowKernels();
    case Isa::kI8mm:
    case Isa::kNeon:
    case Isa::kPortable:
      break;
  }
#elif defined(__aarch64__)
  if (ActiveIsa() >= Isa::kNeon) return NeonRowKernels();
#endif
  return PortableRowKernels();
}

GateKernel ActiveGateKernel(Activation activation) {
  const RowKernels kernels = ActiveRowKernels();
  switch (activation) {
    case Activation::kSilu:
      return kernels.silu_mul;
    case Activation::kGelu:
      return kernels.gelu_mul;
    case Activation::kGeluTanh:
      return kernels.gelu_tanh_mul;
    case Activation::kClampedSwiGlu:
      break;
  }
  return kernels.clamped_swiglu;
}

namespace {

/*! \brief Call `function(x, size, out)` in parallel for parts of `size` elements. */
void Activate(ThreadPool& pool, void (*function)(const float*, int64_t, float*), const float* x,
              int64_t size, float* out) {
  // An exponential costs as much as tens of simple operations.
  constexpr int64_t kPart = 1024;
  const int64_t parts = (size + kPart - 1) / kPart;
  ForParts(pool, parts, 8 * kPart, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kPart;
    function(x + first, std::min(end * kPart, size) - first, out + first);
  });
}

/*!
 * \brief The RoPE cosines and sines of the rows of a step.
 *
 * Each thread caches two tables, because the layers of a step use at most two.
 */
class RotaryTable {
 public:
  /*! \return The table for a call, valid until the next call on this thread. */
  static const RotaryTable& Of(ThreadPool& pool, const RotaryCall& call) {
    thread_local std::array<RotaryTable, 2> cached;
    if (!cached[0].Matches(call)) {
      std::swap(cached[0], cached[1]);
      if (!cached[0].Matches(call)) cached[0].Compute(pool, call);
    }
    return cached[0];
  }

  const float* cosines(int64_t row) const { return cosines_.data() + row * frequencies_.size(); }
  const float* sines(int64_t row) const { return sines_.data() + row * frequencies_.size(); }

 private:
  static int64_t NumPositions(const RotaryCall& call) {
    return call.axes == nullptr ? call.rows : 3 * call.rows;
  }

  static int64_t NumAxes(const RotaryCall& call) {
    return call.axes == nullptr ? 0 : call.num_frequencies;
  }

  bool Matches(const RotaryCall& call) const {
    return amplitude_ == call.amplitude &&
           std::equal(positions_.begin(), positions_.end(), call.positions,
                      call.positions + NumPositions(call)) &&
           std::equal(axes_.begin(), axes_.end(), call.axes, call.axes + NumAxes(call)) &&
           std::equal(frequencies_.begin(), frequencies_.end(), call.inverse_frequencies,
                      call.inverse_frequencies + call.num_frequencies);
  }

  void Compute(ThreadPool& pool, const RotaryCall& call) {
    const size_t num_rows = static_cast<size_t>(call.rows);
    const size_t size = static_cast<size_t>(call.num_frequencies);
    positions_.clear();  // Without positions, an incomplete table matches no call.
    cosines_.resize(num_rows * size);
    sines_.resize(num_rows * size);
    // A sine costs as much as tens of simple operations.
    ForParts(pool, call.rows, 32 * call.num_frequencies, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        for (size_t i = 0; i < size; ++i) {
          const int64_t axis = call.axes == nullptr ? 0 : call.axes[i];
          const auto position = static_cast<float>(call.positions[axis * call.rows + row]);
          const float angle = position * call.inverse_frequencies[i];
          cosines_[row * size + i] = call.amplitude * std::cos(angle);
          sines_[row * size + i] = call.amplitude * std::sin(angle);
        }
      }
    });
    amplitude_ = call.amplitude;
    frequencies_.assign(call.inverse_frequencies, call.inverse_frequencies + size);
    axes_.assign(call.axes, call.axes + NumAxes(call));
    positions_.assign(call.positions, call.positions + NumPositions(call));
  }

  std::vector<int32_t> positions_;
  std::vector<uint8_t> axes_;
  float amplitude_ = 1.0f;
  std::vector<float> frequencies_;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

}  // namespace

void RmsNorm(ThreadPool& pool, const float* x, const float* weight, float eps, int64_t rows,
             int64_t size, float* out) {
  const RowKernels kernels = ActiveRowKernels();
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels.rms_norm(x + row * size, weight, eps, size, out + row * size, FloatType::kF32);
    }
  });
}

void AddRmsNorm(ThreadPool& pool, const float* x, const float* residual, const float* weight,
                float eps, int64_t rows, int64_t size, float* out, float* out_residual) {
  const RowKernels kernels = ActiveRowKernels();
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* sum = out_residual + row * size;
      for (int64_t i = 0; i < size; ++i) sum[i] = x[row * size + i] + residual[row * size + i];
      kernels.rms_norm(sum, weight, eps, size, out + row * size, FloatType::kF32);
    }
  });
}

void LayerNorm(ThreadPool& pool, const float* x, const float* weight, const float* bias, float eps,
               int64_t rows, int64_t size, float* out) {
  const RowKernels kernels = ActiveRowKernels();
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels.layer_norm(x + row * size, weight, bias, eps, size, out + row * size);
    }
  });
}

void AddLayerNorm(ThreadPool& pool, const float* x, const float* residual, const float* weight,
                  const float* bias, float eps, int64_t rows, int64_t size, float* out,
                  float* out_residual) {
  const RowKernels kernels = ActiveRowKernels();
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* sum = out_residual + row * size;
      for (int64_t i = 0; i < size; ++i) sum[i] = x[row * size + i] + residual[row * size + i];
      kernels.layer_norm(sum, weight, bias, eps, size, out + row * size);
    }
  });
}

void Gelu(ThreadPool& pool, const float* x, int64_t size, float* out) {
  Activate(pool, ActiveRowKernels().gelu, x, size, out);
}

void GeluTanh(ThreadPool& pool, const float* x, int64_t size, float* out) {
  Activate(pool, ActiveRowKernels().gelu_tanh, x, size, out);
}

void QuickGelu(ThreadPool& pool, const float* x, int64_t size, float* out) {
  Activate(pool, ActiveRowKernels().quick_gelu, x, size, out);
}

void SquaredRelu(ThreadPool& pool, const float* x, int64_t size, float* out) {
  ForParts(pool, size, 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // The comparison is false for NaN, so NaN stays NaN.
      out[i] = x[i] < 0.0f ? 0.0f : x[i] * x[i];
    }
  });
}

void Add(ThreadPool& pool, const float* a, const float* b, int64_t size, float* out) {
  ForParts(pool, size, 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  });
}

void Scale(ThreadPool& pool, const float* x, float factor, int64_t size, float* out) {
  ForParts(pool, size, 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = x[i] * factor;
  });
}

void ScaleColumns(ThreadPool& pool, const float* x, const float* factors, int64_t rows,
                  int64_t size, float* out) {
  ForParts(pool, rows, size, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < size; ++i) out[row * size + i] = x[row * size + i] * factors[i];
    }
  });
}

void SoftCap(ThreadPool& pool, const float* x, float cap, int64_t size, float* out) {
  const RowKernels kernels = ActiveRowKernels();
  ForParts(pool, size, 1, [&](int64_t begin, int64_t end) {
    kernels.soft_cap(x + begin, cap, end - begin, out + begin);
  });
}

void ExpScaled(const float* x, float shift, float factor, int64_t size, float* out) {
  ActiveRowKernels().exp_scaled(x, shift, factor, size, out);
}

float LargestElement(const float* x, int64_t size) { return ActiveRowKernels().largest(x, size); }

void SumsAtMost(const float* x, int64_t size, const float* limits, float* sums) {
  ActiveRowKernels().sums_at_most(x, size, limits, sums);
}

int64_t CollectBetween(const float* x, int64_t begin, int64_t end, float low, float high,
                       float* values, int32_t* ids) {
  return ActiveRowKernels().collect_between(x, begin, end, low, high, values, ids);
}

void GatedMul(ThreadPool& pool, Activation activation, const float* gate_up, int64_t rows,
              int64_t size, float* out) {
  const GateKernel kernel = ActiveGateKernel(activation);
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = gate_up + row * 2 * size;
      kernel(gate, gate + size, size, out + row * size);
    }
  });
}

void SiluMul(ThreadPool& pool, const float* gate_up, int64_t rows, int64_t size, float* out) {
  GatedMul(pool, Activation::kSilu, gate_up, rows, size, out);
}

void DropGate(ThreadPool& pool, const GatedColumns& columns, float* out) {
  const auto& [rows, count, width, size] = columns;
  ForParts(pool, count, width,
           [&, rows = rows, width = width, size = size](int64_t begin, int64_t end) {
             for (int64_t row = begin; row < end; ++row) {
               const float* const source = rows + row * width;
               float* const target = out + row * (width - size);
               std::copy_n(source, size, target);
               std::copy_n(source + 2 * size, width - 2 * size, target + size);
             }
           });
}

void SigmoidGate(ThreadPool& pool, const void* x, FloatType type, const GatedColumns& columns,
                 float* out) {
  const RowKernels kernels = ActiveRowKernels();
  const int64_t size = columns.size;
  // An exponential costs as much as tens of simple operations.
  ForParts(pool, columns.count, 8 * size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* const source =
          static_cast<const std::byte*>(x) + row * size * static_cast<int64_t>(FloatBytes(type));
      kernels.sigmoid_mul(source, type, columns.rows + row * columns.width + size, size,
                          out + row * size);
    }
  });
}

void QkNorm(ThreadPool& pool, const HeadLayout& heads, QkSpan span, const float* qkv,
            const float* query_weight, const float* key_weight, float eps, int64_t rows, void* out,
            FloatType out_type) {
  const RowKernels kernels = ActiveRowKernels();
  const int64_t row_size = heads.num_heads() * heads.head_dim;
  const auto bytes = static_cast<int64_t>(FloatBytes(out_type));
  ForParts(pool, rows, row_size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* source = qkv + row * row_size;
      std::byte* target = static_cast<std::byte*>(out) + row * row_size * bytes;
      const auto normalize = [&](const float* weight, int64_t num_heads) {
        const int64_t spanned = span == QkSpan::kHead ? 1 : num_heads;
        for (int64_t head = 0; head < num_heads; head += spanned) {
          kernels.rms_norm(source, weight, eps, spanned * heads.head_dim, target, out_type);
          source += spanned * heads.head_dim;
          target += spanned * heads.head_dim * bytes;
        }
      };
      normalize(query_weight, heads.num_query_heads);
      normalize(key_weight, heads.num_kv_heads);
      kernels.convert(source, heads.num_kv_heads * heads.head_dim, target, out_type);
    }
  });
}

void QkvNorm(ThreadPool& pool, const HeadLayout& heads, ValueSource source, const float* qkv,
             const float* query_weight, const float* key_weight, float eps, int64_t rows, void* out,
             FloatType out_type) {
  const RowKernels kernels = ActiveRowKernels();
  const int64_t keys = heads.num_query_heads + heads.num_kv_heads;
  const bool has_values = source == ValueSource::kValues;
  const int64_t read = (has_values ? heads.num_heads() : keys) * heads.head_dim;
  const int64_t written = heads.num_heads() * heads.head_dim;
  const auto bytes = static_cast<int64_t>(FloatBytes(out_type));
  const std::vector<float> ones(static_cast<size_t>(heads.head_dim), 1.0f);
  ForParts(pool, rows, written, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = qkv + row * read;
      std::byte* to = static_cast<std::byte*>(out) + row * written * bytes;
      for (int64_t head = 0; head < heads.num_heads(); ++head) {
        const bool is_value = head >= keys;
        const float* weight = head < heads.num_query_heads ? query_weight : key_weight;
        const int64_t index = is_value && !has_values ? head - heads.num_kv_heads : head;
        kernels.rms_norm(from + index * heads.head_dim, is_value ? ones.data() : weight, eps,
                         heads.head_dim, to + head * heads.head_dim * bytes, out_type);
      }
    }
  });
}

void SplitRotary(ThreadPool& pool, const RotaryCall& call) {
  const RowKernels kernels = ActiveRowKernels();
  const RotaryTable& table = RotaryTable::Of(pool, call);

  const HeadLayout& heads = call.heads;
  const size_t bytes = FloatBytes(call.type);
  const size_t head_bytes = static_cast<size_t>(heads.head_dim) * bytes;
  const size_t rotated_bytes = 2 * static_cast<size_t>(call.num_frequencies) * bytes;
  ForParts(pool, call.rows, heads.num_heads() * heads.head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* source =
          static_cast<const std::byte*>(call.qkv) + row * heads.num_heads() * head_bytes;
      const auto split = [&](void* part, int64_t count, bool rotate) {
        std::byte* target = static_cast<std::byte*>(part) + row * count * head_bytes;
        for (int64_t head = 0; head < count; ++head) {
          const size_t skipped = rotate ? rotated_bytes : 0;
          if (rotate) {
            kernels.rotate(source, table.cosines(row), table.sines(row), call.num_frequencies,
                           target, call.type);
          }
          std::memcpy(target + skipped, source + skipped, head_bytes - skipped);
          source += head_bytes;
          target += head_bytes;
        }
      };
      split(call.q, heads.num_query_heads, true);
      split(call.k, heads.num_kv_heads, true);
      split(call.v, heads.num_kv_heads, false);
    }
  });
}

void GatherRows(const float* x, const int32_t* row_ids, int64_t count, int64_t size, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out + i * size, x + row_ids[i] * size, sizeof(float) * size);
  }
}

namespace {

template <typename Element>
void GatherColumnsOf(ThreadPool& pool, const void* x, const int32_t* order, int64_t rows,
                     int64_t size, void* out) {
  ForParts(pool, rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Element* source = static_cast<const Element*>(x) + row * size;
      Element* target = static_cast<Element*>(out) + row * size;
      for (int64_t k = 0; k < size; ++k) target[k] = source[order[k]];
    }
  });
}

}  // namespace

void ReplaceUnknownIds(const int32_t* ids, int32_t limit, int64_t count, int32_t* out) {
  std::transform(ids, ids + count, out,
                 [limit](int32_t id) { return id >= 0 && id < limit ? id : 0; });
}

void ConcatColumns(ThreadPool& pool, const ColumnRange& a, const ColumnRange& b, int64_t count,
                   FloatType type, void* out) {
  const size_t bytes = FloatBytes(type);
  const int64_t size = a.size + b.size;
  ForParts(pool, count, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::byte* target = static_cast<std::byte*>(out) + static_cast<size_t>(row * size) * bytes;
      for (const ColumnRange* part : {&a, &b}) {
        const std::byte* source = static_cast<const std::byte*>(part->rows) +
                                  static_cast<size_t>(row * part->width + part->begin) * bytes;
        target = std::copy_n(source, static_cast<size_t>(part->size) * bytes, target);
      }
    }
  });
}

void GatherColumns(ThreadPool& pool, const void* x, FloatType type, const int32_t* order,
                   int64_t rows, int64_t size, void* out) {
  const auto gather =
      type == FloatType::kF16 ? GatherColumnsOf<uint16_t> : GatherColumnsOf<uint32_t>;
  gather(pool, x, order, rows, size, out);
}

}  // namespace aiomlc
