/*!
 * \file kernels/recurrent/recurrent.h
 * \brief Layers whose tokens see each other through a state of constant size.
 *
 * Every number is computed with the same float32 operations in the same order, independent of the
 * instruction-set tier, the other sequences, the division of a sequence into passes, and the number
 * of threads: tokens update a state one by one.
 */
#ifndef AIOMLC_KERNELS_RECURRENT_RECURRENT_H_
#define AIOMLC_KERNELS_RECURRENT_RECURRENT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief Consecutive rows of one sequence, and the states before and after them. */
struct StateRun {
  int64_t begin = 0;  //!< The first row.
  int64_t count = 0;
  const float* source = nullptr;  //!< Null before a sequence has tokens: zeros.
  float* target = nullptr;        //!< May be the source.
};

/*! \brief The runs of one sequence in one pass: each begins with the state after the one before. */
using StateChain = std::vector<StateRun>;

// The functions below are always inlined, because files of instruction-set tiers call them, too.

/*! \return The floats of the last `width - 1` inputs of a convolution. */
[[gnu::always_inline]] constexpr int64_t ConvStateSize(int64_t width, int64_t channels) {
  return (width - 1) * channels;
}

/*! \brief The arguments of `ShortConv`. */
struct ShortConvCall {
  int64_t channels = 0;
  int64_t width = 0;
  const float* inputs = nullptr;  //!< [rows, 3, channels]: B, C, x
  const float* weight = nullptr;  //!< [width, channels]
  const float* bias = nullptr;    //!< [channels]; null for none
  float* out = nullptr;           //!< [rows, channels]
};

/*!
 * \brief Compute out = C * conv(B * x), where conv sees the `width` last tokens of each channel.
 *
 * The state is float32[width - 1, channels] at `offset`: the last values of B * x.
 */
void ShortConv(ThreadPool& pool, const ShortConvCall& call, std::span<const StateChain> chains,
               int64_t offset);

/*! \brief The arguments of `GatedDelta`. */
struct GatedDeltaCall {
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;  //!< A multiple of num_key_heads.
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t width = 0;  //!< Of the convolution.
  float eps = 0;      //!< Of the norm.
  /*! \brief [rows, row_size()]: queries, keys, values before the convolution, and the output gate
   * z. */
  const float* inputs = nullptr;
  const float* gates = nullptr;        //!< [rows, 2, num_value_heads]: b, a
  const float* conv_weight = nullptr;  //!< [width, channels()]
  const float* rates = nullptr;        //!< [num_value_heads]
  const float* dt_bias = nullptr;      //!< [num_value_heads]
  const float* norm_weight = nullptr;  //!< [value_dim]
  float* out = nullptr;                //!< [rows, num_value_heads, value_dim]; null for none

  /*! \brief Whether `rates` are log(r), and not -r, for decays by r. */
  bool has_log_rates = true;
  /*! \brief Whether value heads h and h + num_key_heads, and not h and h + 1, share a key head. */
  bool is_tiled = false;

  [[gnu::always_inline]] int64_t ratio() const { return num_value_heads / num_key_heads; }
  /*! \return The `index`-th value head of a key head. */
  [[gnu::always_inline]] int64_t ValueHead(int64_t key_head, int64_t index) const {
    return is_tiled ? index * num_key_heads + key_head : key_head * ratio() + index;
  }
  [[gnu::always_inline]] int64_t num_values() const { return num_value_heads * value_dim; }
  [[gnu::always_inline]] int64_t channels() const {
    return 2 * num_key_heads * key_dim + num_values();
  }
  [[gnu::always_inline]] int64_t row_size() const { return channels() + num_values(); }
  [[gnu::always_inline]] int64_t state_size() const {
    return ConvStateSize(width, channels()) + key_dim * num_values();
  }
};

/*!
 * \brief Compute a gated delta net (arXiv:2412.06464) after a short convolution.
 *
 * For each value head, with the query q and key k of its key head, both of length 1, and value v:
 *
 *   decay = exp(-r * softplus(a + dt_bias)),  beta = sigmoid(b)
 *   delta = beta * (v - decay * S^T k),  S = decay * S + k delta^T,  o = S^T q / sqrt(key_dim)
 *   out = RMS norm(o) * norm_weight * silu(z)
 *
 * The state at `offset` is the last inputs of the convolution, float32[width - 1, channels()], then
 * the matrices S.
 */
void GatedDelta(ThreadPool& pool, const GatedDeltaCall& call, std::span<const StateChain> chains,
                int64_t offset);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_RECURRENT_RECURRENT_H_
