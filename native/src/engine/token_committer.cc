#include "engine/token_committer.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "sequence/sequence_record.h"

namespace aiomlc {

namespace {

constexpr const char* kNotFinite = "the model's logits are not finite";
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr const char* kProcessorNotFinite =
    "a logits processor has set a logit to NaN or to infinity; to exclude a token, set it to minus "
    "infinity";
constexpr const char* kNoTokenLeft =
    "no token is allowed: biases, banned tokens, the grammar and logits processors exclude every "
    "token";

std::string GrammarFailure(const GrammarError& error) {
  return std::string("the grammar cannot continue: ") + error.what();
}

}  // namespace

std::optional<int32_t> RowSampler::Sample(const Sequence& sequence, const float* logits,
                                          int64_t vocab_size) {
  if (sequence.logits_processor || sequence.logit_adjuster.is_active() ||
      sequence.constraint != nullptr) {
    adjusted_logits.assign(logits, logits + vocab_size);
    if (sequence.logits_processor) sequence.logits_processor(sequence.token_ids, adjusted_logits);
    sequence.logit_adjuster.Apply(adjusted_logits.data(), vocab_size);
    if (sequence.constraint != nullptr) {
      sequence.constraint->Apply(adjusted_logits.data(), vocab_size);
    }
    logits = adjusted_logits.data();
  }
  return sampler.Sample(logits, vocab_size, sequence.sampling, sequence.seed,
                        static_cast<uint64_t>(sequence.num_completion_tokens()));
}

void TokenCommitter::Commit(const StepPlan& plan, const float* logits) {
  const int64_t vocab_size = context_.model->vocab_size();
  SampleRows(plan, logits);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    row.sequence->num_computed += row.num_tokens;
    const float* row_logits = logits + row.num_scored * vocab_size;
    const float* end = row_logits + (row.needs_logits ? 1 + row.num_draft : 0) * vocab_size;
    if (ScorePrompt(row, std::exchange(logits, end)) && row.needs_logits) {
      CommitRow(row, row_logits, sampled_[i]);
    }
  }
}

void TokenCommitter::SampleRows(const StepPlan& plan, const float* logits) {
  struct Row {
    size_t index;
    const float* logits;
  };
  const int64_t vocab_size = context_.model->vocab_size();
  sampled_.assign(plan.rows.size(), std::nullopt);
  std::vector<Row> rows;
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    const StepRow& row = plan.rows[i];
    logits += row.num_scored * vocab_size;
    if (!row.needs_logits) continue;
    const Sequence& sequence = *row.sequence;
    // A processor is called in the step thread, and a mask may not be ready.
    if (row.num_draft == 0 && sequence.constraint == nullptr && !sequence.logits_processor) {
      rows.push_back({i, logits});
    }
    logits += (1 + row.num_draft) * vocab_size;
  }
  constexpr int64_t kWorthwhile = 32768;  // Logits; for fewer, waking threads takes longer.
  ThreadPool* const pool = context_.model->thread_pool();
  const int64_t num_rows = static_cast<int64_t>(rows.size());
  if (pool == nullptr || num_rows < 2 || num_rows * vocab_size < kWorthwhile) return;
  const int num_tasks = static_cast<int>(std::min<int64_t>(pool->num_threads(), num_rows));
  if (num_tasks < 2) return;
  if (samplers_.size() < static_cast<size_t>(num_tasks)) samplers_.resize(num_tasks);
  std::atomic<size_t> next = 0;
  pool->Run(num_tasks, [&](int task) {
    for (size_t i = next++; i < rows.size(); i = next++) {
      const Row& row = rows[i];
      sampled_[row.index] =
          samplers_[task].Sample(*plan.rows[row.index].sequence, row.logits, vocab_size);
    }
  });
}

void TokenCommitter::CommitDeferred() {
  const std::vector<Sequence*> deferred = sequences_.deferred();
  for (Sequence* sequence : deferred) {
    if (!sequence->constraint->is_ready()) continue;
    const std::vector<float> logits = std::move(sequence->deferred_logits);
    sequences_.DropDeferred(sequence);
    SampleAndCommit(sequence, logits.data());
  }
}

bool TokenCommitter::CommitForcedTokens(Sequence* sequence) {
  try {
    // Log-probabilities need the logits of every token, so no token is forced if they are
    // requested; those of the prompt are reported with the first token.
    if (!sequence->top_logprobs.has_value() && sequence->prompt_scorer.is_done()) {
      const Clock::time_point start = Clock::now();
      const std::vector<int32_t> forced = sequence->constraint->ForcedTokens();
      context_.meter.OnForcedTokens(Clock::now() - start);
      for (int32_t token_id : forced) {
        // Then sampling finds that no token is allowed.
        if (sequence->logit_adjuster.Suppresses(token_id)) break;
        ++context_.totals.forced_tokens;
        ++sequence->num_forced;
        if (!CommitToken(sequence, token_id, nullptr)) return false;
      }
    }
    mask_worker_.Enqueue(sequence->constraint);
    return true;
  } catch (const GrammarError& error) {
    Fail(sequence, GrammarFailure(error));
  }
  return false;
}

void TokenCommitter::WaitForAnyMask(std::span<Sequence* const> sequences) {
  mask_worker_.WaitBriefly([=] {
    return std::any_of(sequences.begin(), sequences.end(),
                       [](const Sequence* sequence) { return sequence->constraint->is_ready(); });
  });
}

bool TokenCommitter::ScorePrompt(const StepRow& row, const float* logits) {
  Sequence* sequence = row.sequence;
  if (sequence->prompt_scorer.Score(logits, row.num_scored, context_.model->vocab_size(),
                                    sequence->token_ids)) {
    return true;
  }
  FailNonFinite(sequence);
  return false;
}

void TokenCommitter::CommitRow(const StepRow& row, const float* logits,
                               std::optional<int32_t> sampled) {
  Sequence* sequence = row.sequence;
  const std::vector<int32_t> draft = std::exchange(sequence->draft_ids, {});
  if (row.num_draft > 0) {
    VerifyDraft(sequence, std::span(draft).first(static_cast<size_t>(row.num_draft)), logits);
  } else if (sequence->constraint != nullptr && !sequence->constraint->is_ready()) {
    sequences_.DeferForMask(sequence, logits);
  } else {
    SampleAndCommit(sequence, logits, sampled);
  }
}

void TokenCommitter::VerifyDraft(Sequence* sequence, std::span<const int32_t> draft,
                                 const float* logits) {
  const int64_t num_draft = static_cast<int64_t>(draft.size());
  const int64_t first = sequence->num_tokens();
  int64_t num_verified = num_draft;
  int64_t accepted = 0;
  bool continues = true;
  sequence->num_speculated = num_draft;
  while (continues && first + accepted == sequence->num_tokens()) {
    const float* next_logits = logits + accepted * context_.model->vocab_size();
    if (sequence->constraint != nullptr && !mask_worker_.Get(*sequence->constraint)) {
      // The masks of the remaining draft tokens depend on this one, so they are given up.
      sequences_.DeferForMask(sequence, next_logits);
      num_verified = accepted;
      break;
    }
    continues = SampleAndCommit(sequence, next_logits);
    // More than one token may have been committed, because the grammar may force tokens.
    while (continues && accepted < num_draft && first + accepted < sequence->num_tokens() &&
           sequence->token_ids[first + accepted] == draft[accepted]) {
      ++accepted;
      ++sequence->num_computed;
      --sequence->num_speculated;
    }
  }
  context_.meter.OnDraftVerified(num_draft, accepted);
  if (!continues) return;
  sequences_.DropSpeculated(sequence);
  context_.scheduler.Trim(sequence);
  if (num_verified > 0) {
    context_.speculation->OnDraftVerified(sequence->id, num_verified, accepted);
  }
}

bool TokenCommitter::SampleAndCommit(Sequence* sequence, const float* logits,
                                     std::optional<int32_t> sampled) {
  try {
    const int64_t vocab_size = context_.model->vocab_size();
    RowSampler& sampler = samplers_.front();
    const std::optional<int32_t> token_id =
        sampled.has_value() ? sampled : sampler.Sample(*sequence, logits, vocab_size);
    if (token_id.has_value()) {
      context_.scheduler.Share(*sequence);
      return CommitToken(sequence, *token_id, logits) &&
             (sequence->constraint == nullptr || CommitForcedTokens(sequence));
    }
    if (!AreFinite(logits, vocab_size)) {
      FailNonFinite(sequence);
    } else if (std::any_of(sampler.adjusted_logits.begin(), sampler.adjusted_logits.end(),
                           [](float logit) { return !(logit < kInfinity); })) {
      Fail(sequence, kProcessorNotFinite);
    } else {
      Fail(sequence, kNoTokenLeft);
    }
  } catch (const GrammarError& error) {
    Fail(sequence, GrammarFailure(error));
  } catch (const LogitsProcessorError& error) {
    Fail(sequence, error.what());
  }
  return false;
}

bool TokenCommitter::CommitToken(Sequence* sequence, int32_t token_id, const float* logits) {
  const bool is_stop_token = sequence->IsStopToken(token_id);
  const bool is_complete = !is_stop_token && sequence->constraint != nullptr &&
                           sequence->constraint->AcceptToken(token_id);
  sequence->token_ids.push_back(token_id);
  sequence->logit_adjuster.CountToken(token_id);
  ++context_.totals.completion_tokens;
  // Tokens that are forced while it waits for its first step say nothing about its speed.
  if (sequence->has_started) {
    sequence->timer.Restart(context_.now());
    sequences_.QueueDeadline(sequence);
    context_.meter.OnToken(sequence);
  }
  Record record = NewRecord(*sequence);
  record.prompt_logprobs = sequence->prompt_scorer.TakeLogprobs();
  record.token_ids = {token_id};
  if (sequence->top_logprobs.has_value()) {
    record.logprobs.push_back(
        ComputeLogprobs(logits, context_.model->vocab_size(), token_id, *sequence->top_logprobs));
  }
  if (is_stop_token) {
    record.text = FlushText(sequence);
    sequences_.End(sequence, std::move(record), FinishReason::kStop);
    return false;
  }
  StopMatcher& stop_matcher = sequence->stop_matcher;
  record.text = stop_matcher.Put(sequence->detokenizer.Put(token_id), sequence->may_stop());
  const bool is_full = sequence->num_completion_tokens() >= sequence->max_completion_tokens;
  if ((is_full || is_complete) && !stop_matcher.matched()) record.text += FlushText(sequence);
  if (stop_matcher.matched() || is_complete) {
    sequences_.End(sequence, std::move(record), FinishReason::kStop);
    return false;
  }
  if (is_full) {
    sequences_.End(sequence, std::move(record), FinishReason::kLength);
    return false;
  }
  context_.records.push_back(std::move(record));
  return true;
}

void TokenCommitter::Fail(Sequence* sequence, std::string error) {
  Record record = NewRecord(*sequence);
  record.error = std::move(error);
  sequences_.End(sequence, std::move(record), FinishReason::kError);
}

void TokenCommitter::FailNonFinite(Sequence* sequence) {
  Fail(sequence, kNotFinite);
  // A cached prefix may be the cause, and would make later sequences fail, too.
  sequences_.EvictAll();
}

}  // namespace aiomlc
