/*!
 * \file sampling/logits.h
 * \brief Sums over the vocabulary, in an order that does not depend on the processor.
 */
#ifndef AIOMLC_SAMPLING_LOGITS_H_
#define AIOMLC_SAMPLING_LOGITS_H_

#include <cstdint>

namespace aiomlc {

/*! \return The sum of the weights that are at least `lowest`, in float64. */
double SumWeights(const float* weights, int64_t size, double lowest = 0.0);

/*! \return The sum of e^(logit - max_logit), in float64. */
double SumExp(const float* logits, int64_t size, float max_logit);

}  // namespace aiomlc

#endif  // AIOMLC_SAMPLING_LOGITS_H_
