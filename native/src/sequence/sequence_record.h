/*!
 * \file sequence/sequence_record.h
 * \brief Helpers that fill the records of a sequence.
 */
#ifndef AIOMLC_SEQUENCE_SEQUENCE_RECORD_H_
#define AIOMLC_SEQUENCE_SEQUENCE_RECORD_H_

#include <string>

#include "sequence/record.h"
#include "sequence/sequence.h"

namespace aiomlc {

/*! \brief Create a record with the current token counts of a sequence. */
inline Record NewRecord(const Sequence& sequence) {
  Record record;
  record.sequence_id = sequence.id;
  record.prompt_tokens = sequence.num_prompt_tokens;
  record.completion_tokens = sequence.num_completion_tokens();
  record.cached_tokens = sequence.num_cached;
  return record;
}

/*! \brief Return the text that is still held back, once a sequence gets no more tokens. */
inline std::string FlushText(Sequence* sequence) {
  std::string text =
      sequence->stop_matcher.Put(sequence->detokenizer.Finish(), sequence->may_stop());
  return text + sequence->stop_matcher.Finish();
}

}  // namespace aiomlc

#endif  // AIOMLC_SEQUENCE_SEQUENCE_RECORD_H_
