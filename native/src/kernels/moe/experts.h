/*!
 * \file kernels/moe/experts.h
 * \brief A mixture of experts: gated layers of which every row takes a few.
 *
 * A row's bits depend on that row alone: neither on the rows beside it, nor on which of them share
 * its experts, nor on the number of threads.
 */
#ifndef AIOMLC_KERNELS_MOE_EXPERTS_H_
#define AIOMLC_KERNELS_MOE_EXPERTS_H_

#include <cstdint>

#include "kernels/linear/linear.h"
#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief How a row chooses among experts. */
struct ExpertChoice {
  int64_t num_experts = 0;
  int64_t per_row = 0;     //!< In [1, num_experts].
  bool normalize = false;  //!< Whether the weights of the chosen are scaled to a sum of one.
};

/*!
 * \brief The experts of the largest logits, the largest first; of equal ones that of lower index.
 * \param logits float32[num_experts]. If one of them is NaN, all weights are.
 * \param experts int32[per_row]. \param weights Their softmax over all logits, float32[per_row].
 */
void ChooseExperts(const ExpertChoice& choice, const float* logits, int32_t* experts,
                   float* weights);

/*! \brief The arguments of `MixExperts`. */
struct ExpertsCall {
  ExpertChoice choice;
  const float* logits = nullptr;  //!< [rows, num_experts]
  const float* x = nullptr;       //!< [rows, size]
  int64_t rows = 0;
  int64_t size = 0;   //!< A multiple of 16.
  int64_t inner = 0;  //!< A multiple of 16.
  WeightFormat format = WeightFormat::kQ4;
  const void* gate_up = nullptr;  //!< A matrix [2 * inner, size] for each expert, gate first.
  const void* down = nullptr;     //!< A matrix [size, inner] for each expert.
  const float* shared = nullptr;  //!< What every row gets as well, [rows, size]; null is nothing.
  const float* shared_gate = nullptr;  //!< [rows]: its sigmoid weighs a row of `shared`.
  float* out = nullptr;                //!< [rows, size], none of the inputs.
};

/*!
 * \brief out = what is shared, and the sum of weight * down(silu(gate(x)) * up(x)) over the experts
 * of each row, in the order of their indices.
 *
 * Each expert has the bits that `Linear` and `SiluMul` give for its matrices.
 */
void MixExperts(ThreadPool& pool, const ExpertsCall& call);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_MOE_EXPERTS_H_
