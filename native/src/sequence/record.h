/*!
 * \file sequence/record.h
 * \brief What the engine reports about a sequence.
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

/*! \brief Why a sequence ended; kNone while it goes on. */
enum class FinishReason { kNone, kStop, kLength, kAbort, kError, kTimeout };
inline constexpr size_t kNumFinishReasons = 6;

/*! \brief Whether a sequence ended as its caller wanted. */
inline bool IsSuccessful(FinishReason reason) {
  return reason == FinishReason::kStop || reason == FinishReason::kLength;
}

/*! \brief What a sequence produced since its previous record. */
struct Record {
  int64_t sequence_id = 0;
  /*! \brief Complete UTF-8 code points, stop strings already removed; may be empty. */
  std::string text;
  /*!
   * \brief The generated tokens in order, stop token excluded.
   *
   * Their text may come with a later record, while it is an unfinished code point or the beginning
   * of a stop string. Tokens that carry a stop string are included.
   */
  std::vector<int32_t> token_ids;
  /*! \brief One for each of `token_ids` where they were asked for, else empty. */
  std::vector<TokenLogprobs> logprobs;
  /*! \brief Of each prompt token but the first, if asked for: with the first token. */
  std::vector<TokenLogprobs> prompt_logprobs;
  /*! \brief Set on the last record of a sequence, and only there. */
  FinishReason finish_reason = FinishReason::kNone;
  /*! \brief What went wrong if finish_reason is kError, the name of the limit if it is kTimeout. */
  std::string error;
  int64_t prompt_tokens = 0;
  /*! \brief Tokens sampled so far in all, a stop token included. */
  int64_t completion_tokens = 0;
  /*! \brief Prompt tokens that were in the KV cache already. */
  int64_t cached_tokens = 0;
  /*! \brief Set on the last record. */
  RequestTiming timing;
};

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_RECORD_H_
