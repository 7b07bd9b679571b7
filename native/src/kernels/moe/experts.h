/*!
 * \file kernels/moe/experts.h
 * \brief A mixture of experts: each row is routed to a few of many gated feed-forward layers.
 *
 * The bits of a row depend only on that row: not on the other rows, the rows that are routed to the
 * same experts, or the number of threads.
 */
#ifndef AIOMLC_KERNELS_MOE_EXPERTS_H_
#define AIOMLC_KERNELS_MOE_EXPERTS_H_

#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/linear/linear.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The parameters of the selection of experts by router logits. */
struct ExpertRouting {
  /*! \brief The function from logits to scores, which become weights. */
  enum class Scores { kSoftmax, kSigmoid };

  int64_t num_experts = 0;
  int64_t experts_per_row = 0;  //!< In [1, num_experts].
  bool normalize = false;  //!< Whether the weights of the selected experts are scaled to sum 1.
  Scores scores = Scores::kSoftmax;
  /*! \brief [num_experts]: added to scores for the selection only; may be null. For kSigmoid. */
  const float* selection_bias = nullptr;
  float epsilon = 0.0f;  //!< Added to the sum that `normalize` divides by. For kSigmoid.
  float scale = 1.0f;    //!< Factor on the weights. For kSigmoid.
  /*! \brief [num_experts]: factors on the weights of each expert; may be null. For kSoftmax. */
  const float* expert_scales = nullptr;
};

/*!
 * \brief Select the experts with the largest router logits or biased scores.
 *
 * The experts are in descending order of these; of equal ones, the lower index comes first.
 * \param logits float32[num_experts]. If one of them is NaN, all weights are NaN.
 * \param experts int32[experts_per_row], the result.
 * \param weights float32[experts_per_row], the result: the softmax over all logits, or over the
 *     selected logits if `normalize`; or the sigmoid of each, divided by their sum if `normalize`.
 */
void SelectExperts(const ExpertRouting& routing, const float* logits, int32_t* experts,
                   float* weights);

/*! \brief The arguments of `MixtureOfExperts`. */
struct ExpertsCall {
  ExpertRouting routing;
  const float* logits = nullptr;  //!< [rows, num_experts]
  const float* x = nullptr;       //!< [rows, size]
  int64_t rows = 0;
  int64_t size = 0;   //!< A multiple of 16.
  int64_t inner = 0;  //!< A multiple of 16.
  /*!
   * \brief The matrices of one expert. The kernels of a matrix read the same activations, and its
   * segments have multiples of 16 rows.
   */
  MatrixLayout gate_up_layout, down_layout;
  const void* gate_up = nullptr;  //!< A packed matrix [2 * inner, size] per expert, gate first.
  const void* down = nullptr;     //!< A packed matrix [size, inner] per expert.
  const float* gate_up_bias = nullptr;  //!< [num_experts, 2 * inner]; may be null.
  const float* down_bias = nullptr;     //!< [num_experts, size]; may be null.
  Activation activation = Activation::kSilu;
  const float* shared = nullptr;       //!< [rows, size], the output of shared experts; may be null.
  const float* shared_gate = nullptr;  //!< [rows], the logits of the sigmoid that scales `shared`.
  float* out = nullptr;                //!< [rows, size]; must not be an input.
};

/*!
 * \brief Compute out = sigmoid(shared_gate) * shared + the sum of weight *
 * down(activation(gate(x), up(x))) over the selected experts of each row, in ascending order of
 * their indices.
 *
 * The output of each expert has the same bits as with `Linear` and `GatedMul`.
 */
void MixtureOfExperts(ThreadPool& pool, const ExpertsCall& call);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_MOE_EXPERTS_H_
