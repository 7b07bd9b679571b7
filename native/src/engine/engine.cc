#include "engine/engine.h"

#include <exception>
#include <stdexcept>
#include <utility>

namespace aiomlc {

Engine::Engine(Model* model, Vocabulary vocabulary, const EngineOptions& options)
    : stepper_(model, options, &ids_),
      factory_(*model, std::move(vocabulary), options.max_recycling_sequences != 0, options.now),
      max_live_sequences_(MaxLiveSequences(*model, options)),
      now_(options.now) {
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

template <typename Change>
void Engine::Post(Change change) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !death_.empty()) return;
    change();
  }
  wake_.notify_one();
}

int64_t Engine::Submit(std::vector<int32_t> prompt_ids, SequenceOptions options) {
  std::unique_ptr<Sequence> sequence = factory_.Create(std::move(prompt_ids), std::move(options));
  int64_t sequence_id;
  {
    std::lock_guard lock(mutex_);
    if (!death_.empty()) throw EngineError(ErrorKind::kEngineDead, death_);
    if (closed_) throw EngineError(ErrorKind::kEngineClosed, "the engine is closed");
    CheckLoad();
    sequence_id = ids_.Next();
    sequence->id = sequence_id;
    sequence->cache_id = sequence_id;
    inbox_.submitted.push_back(std::move(sequence));
  }
  wake_.notify_one();
  return sequence_id;
}

void Engine::CheckLoad() const {
  const int64_t num_submitted = static_cast<int64_t>(inbox_.submitted.size());
  // Paused sequences return to the queue.
  const int64_t num_live =
      published_.num_running + published_.num_waiting + published_.num_paused + num_submitted;
  if (num_live < max_live_sequences_) return;
  throw EngineError(ErrorKind::kEngineOverloaded,
                    std::to_string(num_live) +
                        " sequences run or wait, which is the limit: try again later, or raise "
                        "max_queue_size");
}

void Engine::Cancel(int64_t sequence_id) {
  Post([&] { inbox_.cancelled.push_back(sequence_id); });
}

void Engine::Pause(int64_t sequence_id) {
  Post([&] { inbox_.paused.emplace_back(sequence_id, true); });
}

void Engine::Resume(int64_t sequence_id) {
  Post([&] { inbox_.paused.emplace_back(sequence_id, false); });
}

void Engine::Unpin(int64_t sequence_id) {
  Post([&] { inbox_.unpinned.push_back(sequence_id); });
}

void Engine::Reset() {
  Post([&] { inbox_.is_reset = true; });
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

void Engine::CheckInvariants() {
  std::lock_guard step_lock(step_mutex_);
  stepper_.CheckInvariants(factory_.max_sequence_tokens());
}

// ---- The loop ----

bool Engine::WaitForWork() {
  std::unique_lock lock(mutex_);
  const auto is_awaited = [this] {
    return stop_requested_ || closed_ || !death_.empty() || has_unpaused_ || !inbox_.empty() ||
           next_deadline_ <= now_();
  };
  while (!is_awaited()) {
    // Not wait_until(max): the conversion of that time point may overflow.
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
    if (std::exchange(is_running_, true)) throw std::logic_error("the engine is running already");
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
  Inbox calls;
  {
    std::lock_guard lock(mutex_);
    if (!death_.empty()) throw EngineError(ErrorKind::kEngineDead, death_);
    if (closed_) return false;
    calls = TakeCalls();
  }
  try {
    stepper_.Step(std::move(calls));
  } catch (const std::exception& error) {
    Die(error.what());
  }
  Publish();
  std::lock_guard lock(mutex_);
  return has_unpaused_ || !inbox_.empty();
}

Inbox Engine::TakeCalls() {
  // From here on they wait in the scheduler, which `CheckLoad` does not see before the step's end.
  published_.num_waiting += static_cast<int64_t>(inbox_.submitted.size());
  return inbox_.Take();
}

void Engine::Close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  std::lock_guard step_lock(step_mutex_);
  Inbox calls;
  {
    std::lock_guard lock(mutex_);
    calls = TakeCalls();
  }
  const std::string failure = stepper_.Abort(std::move(calls.submitted), FinishReason::kAbort, "");
  Publish();
  if (failure.empty()) return;
  std::lock_guard lock(mutex_);
  death_ = failure;
  throw EngineError(ErrorKind::kEngineDead, death_);
}

void Engine::Die(const std::string& cause) {
  const std::string death = "the model failed: " + cause;
  Inbox calls;
  {
    std::lock_guard lock(mutex_);
    death_ = death;  // From here on nothing is submitted.
    calls = TakeCalls();
  }
  // Further errors of the model are consequences of the first.
  stepper_.Abort(std::move(calls.submitted), FinishReason::kError, death);
  Publish();
  wake_.notify_all();
  throw EngineError(ErrorKind::kEngineDead, death);
}

void Engine::Publish() {
  std::vector<std::string> notices = stepper_.TakeNotices();
  const Statistics& statistics = stepper_.UpdateStatistics();
  std::lock_guard lock(mutex_);
  for (Record& record : stepper_.records()) outbox_.Put(std::move(record));
  stepper_.records().clear();
  for (std::string& notice : notices) notices_.push_back(std::move(notice));
  published_ = statistics;
  has_unpaused_ = stepper_.has_unpaused();
  next_deadline_ = stepper_.next_deadline();
}

}  // namespace aiomlc
