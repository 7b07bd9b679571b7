#include "engine/engine.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <random>
#include <stdexcept>
#include <utility>

#include "sequence/sequence_record.h"
#include "speculation/model_drafter.h"
#include "speculation/prompt_lookup.h"

namespace aiomlc {

namespace {

int64_t StepTokenBudget(const Model& model, const EngineOptions& options) {
  if (options.step_token_budget < 1) {
    throw EngineError(ErrorKind::kBadRequest, "step_token_budget is " +
                                                  std::to_string(options.step_token_budget) +
                                                  ", it must be at least 1");
  }
  return std::min(options.step_token_budget, model.prefill_chunk_size());
}

int64_t MaxLiveSequences(const Model& model, const EngineOptions& options) {
  if (options.max_queue_size < 0) {
    throw EngineError(
        ErrorKind::kBadRequest,
        "max_queue_size is " + std::to_string(options.max_queue_size) + ", it must be at least 0");
  }
  return std::min(model.max_batch_size(), StepTokenBudget(model, options)) + options.max_queue_size;
}

std::unique_ptr<Drafter> CreateDrafter(const Model& model, const EngineOptions& options) {
  if (options.speculative_mode == SpeculativeMode::kPromptLookup) {
    return std::make_unique<PromptLookup>();
  }
  Model* draft_model = options.draft_model;
  if (draft_model == nullptr) {
    throw EngineError(ErrorKind::kBadRequest, "small_draft has no additional model");
  }
  if (draft_model->vocab_size() != model.vocab_size()) {
    throw EngineError(ErrorKind::kBadRequest,
                      "the additional model has " + std::to_string(draft_model->vocab_size()) +
                          " tokens, the model " + std::to_string(model.vocab_size()));
  }
  return std::make_unique<ModelDrafter>(draft_model, StepTokenBudget(model, options));
}

std::unique_ptr<Speculation> CreateSpeculation(const Model& model, const EngineOptions& options) {
  if (options.draft_length < 0) {
    throw EngineError(
        ErrorKind::kBadRequest,
        "draft_length is " + std::to_string(options.draft_length) + ", it must be at least 0");
  }
  if (options.speculative_mode == SpeculativeMode::kDisable) return nullptr;
  return std::make_unique<Speculation>(CreateDrafter(model, options), options.draft_length);
}

uint64_t DrawSeed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

SequenceSnapshot Snapshot(const Sequence& sequence) {
  return {sequence.id,        sequence.num_tokens(),  sequence.num_computed,
          sequence.num_pages, sequence.awaits_mask(), sequence.priority};
}

}  // namespace

Engine::Engine(Model* model, Vocabulary vocabulary, EngineOptions options)
    : model_(model),
      vocabulary_(std::move(vocabulary)),
      max_sequence_tokens_(
          std::min(model->context_window(), model->num_pages() * model->page_size())),
      now_(options.now),
      max_live_sequences_(MaxLiveSequences(*model, options)),
      scheduler_({.total_pages = model->num_pages(),
                  .page_size = model->page_size(),
                  .max_batch_size = model->max_batch_size(),
                  .step_token_budget = StepTokenBudget(*model, options),
                  .max_recycling = options.max_recycling_sequences,
                  .separate_prefill = options.separate_prefill}) {
  speculation_ = CreateSpeculation(*model, options);
  Publish();
}

Engine::~Engine() {
  try {
    Close();
  } catch (const EngineError&) {
    // The model could not free a page, and nobody is left to use it or to be told.
  }
}

// ---- From any thread ----

void Engine::Validate(const std::vector<int32_t>& prompt_ids,
                      const SequenceOptions& options) const {
  const int64_t vocab_size = model_->vocab_size();
  ValidateOptions(options, vocab_size);
  if (options.is_pinned && !scheduler_.prefix_cache().is_on()) {
    throw EngineError(ErrorKind::kBadRequest, "nothing can be pinned: the prefix cache is off");
  }
  if (prompt_ids.empty()) throw EngineError(ErrorKind::kBadRequest, "the prompt has no tokens");
  for (int32_t token_id : prompt_ids) {
    if (token_id >= 0 && token_id < vocab_size) continue;
    throw EngineError(ErrorKind::kBadRequest, "the prompt has token " + std::to_string(token_id) +
                                                  ", the vocabulary has " +
                                                  std::to_string(vocab_size) + " tokens");
  }
  const int64_t num_tokens = static_cast<int64_t>(prompt_ids.size());
  if (num_tokens >= max_sequence_tokens_) {
    throw PromptTooLongError(num_tokens, max_sequence_tokens_);
  }
}

int64_t Engine::Submit(std::vector<int32_t> prompt_ids, SequenceOptions options) {
  Validate(prompt_ids, options);
  if (!options.seed.has_value()) options.seed = DrawSeed();
  const int64_t room = max_sequence_tokens_ - static_cast<int64_t>(prompt_ids.size());
  auto sequence = std::make_unique<Sequence>(std::move(prompt_ids), options,
                                             std::min(options.max_tokens.value_or(room), room),
                                             &vocabulary_, now_());
  if (options.grammar != nullptr) {
    sequence->constraint =
        std::make_shared<Constraint>(options.grammar->Clone(), model_->vocab_size());
  }
  int64_t sequence_id;
  {
    std::lock_guard lock(mutex_);
    if (!death_.empty()) throw EngineError(ErrorKind::kEngineDead, death_);
    if (closed_) throw EngineError(ErrorKind::kEngineClosed, "the engine is closed");
    CheckLoad();
    sequence_id = next_sequence_id_++;
    sequence->id = sequence_id;
    sequence->model_id = sequence_id;
    inbox_.submitted.push_back(std::move(sequence));
  }
  wake_.notify_one();
  return sequence_id;
}

void Engine::CheckLoad() const {
  const int64_t num_submitted = static_cast<int64_t>(inbox_.submitted.size());
  // Those that wait for their readers come back to the queue.
  const int64_t num_live =
      published_.num_running + published_.num_waiting + published_.num_paused + num_submitted;
  if (num_live < max_live_sequences_) return;
  throw EngineError(ErrorKind::kEngineOverloaded,
                    std::to_string(num_live) + " sequences run or wait, as many as may at once");
}

void Engine::Pause(int64_t sequence_id) { PutPause(sequence_id, true); }

void Engine::Resume(int64_t sequence_id) { PutPause(sequence_id, false); }

void Engine::Unpin(int64_t sequence_id) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !death_.empty()) return;
    inbox_.unpinned.push_back(sequence_id);
  }
  wake_.notify_one();
}

void Engine::Reset() {
  {
    std::lock_guard lock(mutex_);
    inbox_.is_reset = true;
  }
  wake_.notify_one();
}

void Engine::PutPause(int64_t sequence_id, bool is_paused) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !death_.empty()) return;
    inbox_.paused.emplace_back(sequence_id, is_paused);
  }
  wake_.notify_one();
}

void Engine::Cancel(int64_t sequence_id) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !death_.empty()) return;
    inbox_.cancelled.push_back(sequence_id);
  }
  wake_.notify_one();
}

void Engine::Stop() {
  {
    std::lock_guard lock(mutex_);
    stop_requested_ = true;
  }
  wake_.notify_one();
}

std::vector<std::string> Engine::TakeNotices() {
  std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

std::vector<Record> Engine::Drain() {
  std::lock_guard lock(mutex_);
  return outbox_.Drain();
}

Statistics Engine::GetStatistics() const {
  std::lock_guard lock(mutex_);
  Statistics statistics = published_;
  statistics.num_waiting += static_cast<int64_t>(inbox_.submitted.size());
  return statistics;
}

std::string Engine::Failure() const {
  std::lock_guard lock(mutex_);
  return death_;
}

// ---- The loop ----

bool Engine::WaitForWork() {
  std::unique_lock lock(mutex_);
  const auto is_awaited = [this] {
    return stop_requested_ || closed_ || !death_.empty() || has_live_sequences_ ||
           !inbox_.empty() || next_deadline_ <= now_();
  };
  while (!is_awaited()) {
    // Without a deadline this must not be a wait until the end of time: that may overflow.
    if (next_deadline_ == TimePoint::max()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, next_deadline_);
    }
  }
  if (!death_.empty()) throw EngineError(ErrorKind::kEngineDead, death_);
  return !closed_ && !std::exchange(stop_requested_, false);
}

void Engine::Run() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_running_, true)) throw std::logic_error("the engine runs already");
  }
  struct Leave {
    Engine* engine;
    ~Leave() {
      std::lock_guard lock(engine->mutex_);
      engine->is_running_ = false;
    }
  } leave{this};
  while (WaitForWork()) Step();
}

bool Engine::Step() {
  std::lock_guard step_lock(step_mutex_);
  {
    std::lock_guard lock(mutex_);
    if (!death_.empty()) throw EngineError(ErrorKind::kEngineDead, death_);
    if (closed_) return false;
  }
  try {
    meter_.StepBegun();
    TakeInbox();
    EndExpired();
    SettleHeld();
    if (sequences_.size() > paused_.size()) RunPlan();
  } catch (const std::exception& error) {
    Die(error.what());
  }
  Publish();
  std::lock_guard lock(mutex_);
  return has_live_sequences_ || !inbox_.empty();
}

void Engine::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  std::lock_guard step_lock(step_mutex_);
  AdoptSubmitted();
  const std::string failure = EndAll(FinishReason::kAbort, "");
  Publish();
  if (failure.empty()) return;
  std::lock_guard lock(mutex_);
  death_ = failure;
  throw EngineError(ErrorKind::kEngineDead, death_);
}

void Engine::CheckInvariants() {
  std::lock_guard step_lock(step_mutex_);
  EngineSnapshot snapshot;
  snapshot.total_pages = scheduler_.pages().total_pages();
  snapshot.free_pages = scheduler_.pages().free_pages();
  snapshot.page_size = scheduler_.pages().page_size();
  snapshot.max_running = scheduler_.max_running();
  snapshot.max_sequence_tokens = max_sequence_tokens_;
  snapshot.recycling_pages =
      scheduler_.prefix_cache().num_pages() + scheduler_.prefix_cache().num_pinned_pages();
  for (const auto& [id, sequence] : sequences_) snapshot.live_ids.push_back(id);
  for (const Sequence* sequence : scheduler_.running()) {
    snapshot.running.push_back(Snapshot(*sequence));
  }
  for (const Sequence* sequence : scheduler_.waiting()) {
    snapshot.waiting.push_back(Snapshot(*sequence));
  }
  for (const Sequence* sequence : paused_) snapshot.paused.push_back(Snapshot(*sequence));
  std::string message;
  for (const std::string& violation : FindViolations(snapshot)) message += violation + "; ";
  for (const std::string& violation : scheduler_.prefix_cache().FindViolations()) {
    message += violation + "; ";
  }
  if (!message.empty()) throw std::logic_error(message);
}

// ---- Between steps ----

std::vector<int64_t> Engine::AdoptSubmitted() {
  std::vector<int64_t> sequence_ids;
  std::vector<std::unique_ptr<Sequence>> submitted;
  {
    std::lock_guard lock(mutex_);
    submitted.swap(inbox_.submitted);
    // They wait, for whoever is refused or told the load before this step is done.
    published_.num_waiting += static_cast<int64_t>(submitted.size());
  }
  for (std::unique_ptr<Sequence>& sequence : submitted) {
    totals_.prompt_tokens += sequence->num_prompt_tokens;
    sequence_ids.push_back(sequence->id);
    scheduler_.Add(sequence.get());
    QueueDeadline(sequence.get());
    meter_.Adopted(*sequence);
    sequences_.emplace(sequence->id, std::move(sequence));
  }
  return sequence_ids;
}

void Engine::TakeInbox() {
  std::vector<int64_t> cancelled;
  std::vector<std::pair<int64_t, bool>> paused;
  std::vector<int64_t> unpinned;
  bool is_reset;
  {
    // Before the submissions: a sequence must not be cancelled before it is known.
    std::lock_guard lock(mutex_);
    cancelled.swap(inbox_.cancelled);
    paused.swap(inbox_.paused);
    unpinned.swap(inbox_.unpinned);
    is_reset = std::exchange(inbox_.is_reset, false);
  }
  for (int64_t sequence_id : AdoptSubmitted()) {
    Sequence* const sequence = sequences_.at(sequence_id).get();
    if (sequence->constraint != nullptr) FollowGrammar(sequence);
  }
  for (int64_t sequence_id : cancelled) {
    const auto entry = sequences_.find(sequence_id);
    if (entry == sequences_.end()) continue;
    End(entry->second.get(), NewRecord(*entry->second), FinishReason::kAbort);
  }
  for (const auto& [sequence_id, is_paused] : paused) {
    const auto entry = sequences_.find(sequence_id);
    if (entry == sequences_.end() || entry->second->is_paused == is_paused) continue;
    if (is_paused) {
      Park(entry->second.get());
    } else {
      Unpark(entry->second.get());
    }
  }
  for (int64_t sequence_id : unpinned) {
    const auto name = pin_names_.extract(sequence_id);
    RemoveFromModel(scheduler_.Unpin(name.empty() ? sequence_id : name.mapped()));
  }
  if (!is_reset) return;
  pin_names_.clear();
  RemoveFromModel(scheduler_.EvictAll());
  totals_ = Statistics();
}

int64_t Engine::NewId() {
  std::lock_guard lock(mutex_);
  return next_sequence_id_++;
}

void Engine::Park(Sequence* sequence) {
  DropHeld(sequence);
  const bool is_in_model = sequence->num_pages > 0;
  std::vector<int64_t> removed;
  if (is_in_model) {
    removed = scheduler_.Recycle(sequence);
    // The old one is the name of what is kept.
    sequence->model_id = NewId();
  } else {
    scheduler_.Remove(sequence);
  }
  sequence->num_computed = 0;
  sequence->is_paused = true;
  sequence->timer.Pause();
  QueueDeadline(sequence);
  paused_.insert(sequence);
  RemoveFromModel(removed, sequence->id);
}

void Engine::Unpark(Sequence* sequence) {
  paused_.erase(sequence);
  sequence->is_paused = false;
  if (sequence->num_completion_tokens() > 0) sequence->timer.Restart(now_());
  QueueDeadline(sequence);
  scheduler_.Add(sequence);
}

void Engine::QueueDeadline(Sequence* sequence) {
  const TimePoint next = sequence->timer.Next().at;
  deadlines_.Set(sequence->id, sequence->deadline, next);
  sequence->deadline = next;
}

void Engine::EndExpired() {
  if (deadlines_.Next() == TimePoint::max()) return;
  for (int64_t sequence_id : deadlines_.Expired(now_())) {
    Sequence* const sequence = sequences_.at(sequence_id).get();
    Record record = NewRecord(*sequence);
    record.text = FlushText(sequence);
    record.error = sequence->timer.Next().limit;
    End(sequence, std::move(record), FinishReason::kTimeout);
  }
}

void Engine::End(Sequence* sequence, Record record, FinishReason reason) {
  const int64_t sequence_id = sequence->id;
  const bool is_in_model = sequence->num_pages > 0;
  // What a failed sequence computed may be what made it fail.
  const bool is_kept = is_in_model && reason != FinishReason::kError;
  // The first thing that can throw: until then the sequence is as it was.
  if (is_kept) PopUnverified(sequence);
  DropHeld(sequence);
  deadlines_.Set(sequence_id, sequence->deadline, TimePoint::max());
  record.finish_reason = reason;
  record.timing = meter_.Ended(*sequence, reason);
  records_.push_back(std::move(record));
  std::vector<int64_t> removed = {sequence->model_id};
  if (sequence->is_paused) {
    paused_.erase(sequence);
  } else if (is_kept) {
    const bool is_pinned = sequence->is_pinned && IsAnswer(reason);
    if (is_pinned && sequence->model_id != sequence_id) {
      pin_names_[sequence_id] = sequence->model_id;
    }
    removed = is_pinned ? scheduler_.Pin(sequence) : scheduler_.Recycle(sequence);
  } else {
    scheduler_.Remove(sequence);
  }
  sequences_.erase(sequence_id);
  RemoveFromModel(is_in_model ? removed : std::vector<int64_t>(), sequence_id);
}

void Engine::RemoveFromModel(const std::vector<int64_t>& sequence_ids,
                             std::optional<int64_t> ended_id) {
  std::exception_ptr failure;
  for (int64_t sequence_id : sequence_ids) {
    try {
      model_->RemoveSequence(sequence_id);
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (speculation_ != nullptr && ended_id.has_value()) speculation_->Remove(*ended_id);
  if (failure != nullptr) std::rethrow_exception(failure);
}

std::string Engine::EndAll(FinishReason reason, const std::string& error) {
  std::string failure;
  const auto attempt = [&](auto action) {
    try {
      action();
    } catch (const std::exception& thrown) {
      // The rest must end too; the first failure is the one to report.
      if (failure.empty()) failure = std::string("the model failed: ") + thrown.what();
    }
  };
  std::vector<int64_t> sequence_ids;
  for (const auto& [sequence_id, sequence] : sequences_) sequence_ids.push_back(sequence_id);
  std::sort(sequence_ids.begin(), sequence_ids.end());
  for (int64_t sequence_id : sequence_ids) {
    Sequence* sequence = sequences_.at(sequence_id).get();
    Record record = NewRecord(*sequence);
    record.error = error;
    attempt([&] { End(sequence, std::move(record), reason); });
  }
  attempt([&] { RemoveFromModel(scheduler_.EvictAll()); });
  return failure;
}

void Engine::Die(const std::string& cause) {
  const std::string death = "the model failed: " + cause;
  {
    std::lock_guard lock(mutex_);
    death_ = death;
  }
  // From here on nothing is submitted. What the model says while it is taken down is a consequence.
  AdoptSubmitted();
  EndAll(FinishReason::kError, death);
  Publish();
  wake_.notify_all();
  throw EngineError(ErrorKind::kEngineDead, death);
}

void Engine::TellDraftFailures() {
  if (speculation_ == nullptr) return;
  totals_.speculation_failure = speculation_->failure();
  for (const auto& [sequence_id, cause] : speculation_->TakeFailures()) {
    const bool is_first = totals_.draft_failures == 0;
    meter_.DraftFailed(sequence_id);
    std::lock_guard lock(mutex_);
    if (sequence_id < 0) {
      notices_.push_back("there are no guesses from now on: " + cause);
    } else if (is_first) {
      notices_.push_back("a sequence goes on without guesses, as others may: " + cause);
    }
  }
}

void Engine::Publish() {
  TellDraftFailures();
  totals_.num_running = static_cast<int64_t>(scheduler_.running().size());
  totals_.num_waiting = static_cast<int64_t>(scheduler_.waiting().size());
  totals_.num_paused = static_cast<int64_t>(paused_.size());
  totals_.total_pages = scheduler_.pages().total_pages();
  totals_.free_pages = scheduler_.available_pages();
  totals_.num_recycling = scheduler_.prefix_cache().num_recycling();
  totals_.num_pinned = static_cast<int64_t>(scheduler_.prefix_cache().pinned().size());
  std::lock_guard lock(mutex_);
  for (Record& record : records_) outbox_.Put(std::move(record));
  records_.clear();
  published_ = totals_;
  has_live_sequences_ = sequences_.size() > paused_.size();
  next_deadline_ = deadlines_.Next();
}

}  // namespace aiomlc
