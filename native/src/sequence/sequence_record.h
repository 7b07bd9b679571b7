/*!
 * \file sequence/sequence_record.h
 * \brief A sequence as it is told to its caller.
 */
#ifndef AIOMLC_SEQUENCE_SEQUENCE_RECORD_H_
#define AIOMLC_SEQUENCE_SEQUENCE_RECORD_H_

#include <string>

#include "sequence/record.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief A record with the counts of now. */
inline Record NewRecord(const Sequence& sequence) {
  Record record;
  record.sequence_id = sequence.id;
  record.prompt_tokens = sequence.num_prompt_tokens;
  record.completion_tokens = sequence.num_completion_tokens();
  record.cached_tokens = sequence.num_cached;
  return record;
}

/*! \brief The text that was held back, for a sequence that gets no more tokens. */
inline std::string FlushText(Sequence* sequence) {
  std::string text =
      sequence->stop_matcher.Put(sequence->detokenizer.Finish(), sequence->may_stop());
  return text + sequence->stop_matcher.Finish();
}

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_SEQUENCE_RECORD_H_
