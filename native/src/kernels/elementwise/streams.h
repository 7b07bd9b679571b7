/*!
 * \file kernels/elementwise/streams.h
 * \brief The parallel residual streams of Gemma 3n (AltUp), and its sparse gates.
 *
 * The streams of a token are adjacent: a row is [streams, size]. Every element is computed with the
 * same float32 operations in the same order, whatever the other rows and the number of threads.
 */
#ifndef AIOMLC_KERNELS_ELEMENTWISE_STREAMS_H_
#define AIOMLC_KERNELS_ELEMENTWISE_STREAMS_H_

#include <cstdint>

#include "platform/thread_pool.h"

namespace aiomlc {

/*! \brief The shape of rows of streams. */
struct StreamShape {
  int64_t rows = 0;
  int64_t count = 0;  //!< Streams.
  int64_t size = 0;   //!< Of one stream.
};

/*!
 * \brief Compute out[s] = x[s] + the sum over t of coefficients[s][t] * x[t] for each row.
 * \param coefficients [rows, count, count].
 */
void PredictStreams(ThreadPool& pool, const StreamShape& shape, const float* x,
                    const float* coefficients, float* out);

/*!
 * \brief Compute out[s] = predicted[s] + (coefficients[s] + 1) * (activated - predicted[active]).
 * \param activated [rows, size].
 * \param coefficients [rows, count].
 */
void CorrectStreams(ThreadPool& pool, const StreamShape& shape, int64_t active,
                    const float* predicted, const float* activated, const float* coefficients,
                    float* out);

/*! \brief Compute out[s] = x[s] + update for s > 0, and out[0] = x[0]. \param update [rows, size].
 */
void AddToLaterStreams(ThreadPool& pool, const StreamShape& shape, const float* x,
                       const float* update, float* out);

/*! \brief Scale each row of `x` to the root mean square of `target`; its own is at least 1e-5^0.5.
 */
void MatchMagnitude(ThreadPool& pool, const float* x, const float* target, int64_t rows,
                    int64_t size, float* out);

/*! \brief Compute out = x * weight[column]. */
void MultiplyColumns(ThreadPool& pool, const float* x, const float* weight, int64_t rows,
                     int64_t size, float* out);

/*!
 * \brief Lower gates by mean + deviations * standard deviation of their row, and cut them at 0.
 * \param gate_up [rows, 2 * size], gates first; the rest is copied.
 */
void CutGates(ThreadPool& pool, const float* gate_up, float deviations, int64_t rows, int64_t size,
              float* out);

}  // namespace aiomlc

#endif  // AIOMLC_KERNELS_ELEMENTWISE_STREAMS_H_
