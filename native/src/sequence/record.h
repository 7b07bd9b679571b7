/*!
 * \file sequence/record.h
 * \brief The output records that the engine reports for a sequence.
 */
#ifndef AIOMLC_SEQUENCE_RECORD_H_
#define AIOMLC_SEQUENCE_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sampling/token_logprobs.h"
#include "sequence/request_times.h"

namespace aiomlc {

/*! \brief Why a sequence ended; kNone while it is live. */
enum class FinishReason { kNone, kStop, kLength, kAbort, kError, kTimeout };
inline constexpr size_t kNumFinishReasons = 6;

/*! \brief Whether a sequence completed normally: it stopped or reached its length limit. */
inline bool IsSuccessful(FinishReason reason) {
  return reason == FinishReason::kStop || reason == FinishReason::kLength;
}

/*! \brief The output of a sequence since its previous record. */
struct Record {
  int64_t sequence_id = 0;
  /*! \brief New text: complete UTF-8 code points, without stop strings; may be empty. */
  std::string text;
  /*!
   * \brief The generated tokens in order, as many as `completion_tokens` counts.
   *
   * The text of the last tokens may follow in a later record, if it ends in an incomplete code
   * point or in a prefix of a stop string. The stop token, and tokens that are part of a stop
   * string, are included.
   */
  std::vector<int32_t> token_ids;
  /*! \brief One entry for each of `token_ids` if `top_logprobs` is set, else empty. */
  std::vector<TokenLogprobs> logprobs;
  /*!
   * \brief One entry for each prompt token except the first if `prompt_logprobs` is set, else
   * empty.
   *
   * Reported with the first generated token.
   */
  std::vector<TokenLogprobs> prompt_logprobs;
  /*! \brief Set only on the last record of a sequence. */
  FinishReason finish_reason = FinishReason::kNone;
  /*! \brief The error message for kError, the name of the exceeded time limit for kTimeout. */
  std::string error;
  int64_t prompt_tokens = 0;
  /*! \brief Tokens generated so far in total, including a stop token. */
  int64_t completion_tokens = 0;
  /*! \brief Prompt tokens that were taken from the prefix cache. */
  int64_t cached_tokens = 0;
  /*! \brief Set only on the last record. */
  RequestTiming timing;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_RECORD_H_
