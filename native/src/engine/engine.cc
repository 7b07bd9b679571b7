#include "engine/engine.h"

#include <exception>
#include <stdexcept>
#include <utility>

namespace aiomlc {

Engine::Engine(Model* model, Vocabulary vocabulary, const EngineOptions& options)
    : stepper_(model, options, &ids_),
      factory_(*model, std::move(vocabulary), StepTokenBudget(*model, options),
               options.max_recycling_sequences != 0, options.now),
      max_live_sequences_(MaxLiveSequences(*model, options)),
      now_(options.now) {
  Publish();
}

Engine::~Engine() {
  try {
    Close();
  } catch (const std::exception&) {
    // The model failed to free a page, or memory is exhausted; a destructor cannot report this.
  }
}

// ---- From any thread ----

template <typename Change>
void Engine::Post(Change change) {
  {
    std::lock_guard lock(mutex_);
    if (closed_ || !failure_.empty()) return;
    change();
  }
  wake_.notify_one();
}

int64_t Engine::Submit(Prompt prompt, SequenceOptions options) {
  std::unique_ptr<Sequence> sequence = factory_.Create(std::move(prompt), std::move(options));
  int64_t sequence_id;
  {
    std::lock_guard lock(mutex_);
    CheckServing();
    CheckLoad();
    sequence_id = ids_.Next();
    sequence->id = sequence_id;
    sequence->cache_id = sequence_id;
    inbox_.submitted.push_back(std::move(sequence));
  }
  wake_.notify_one();
  return sequence_id;
}

void Engine::CheckServing() const {
  if (!failure_.empty()) throw EngineError(ErrorKind::kEngineDead, failure_);
  if (closed_) throw EngineError(ErrorKind::kEngineClosed, "the engine is closed");
}

void Engine::CheckLoad() const {
  const int64_t num_submitted = static_cast<int64_t>(inbox_.submitted.size());
  // Paused sequences return to the queue.
  const int64_t num_live =
      published_.num_running + published_.num_waiting + published_.num_paused + num_submitted;
  if (num_live < max_live_sequences_) return;
  throw EngineError(ErrorKind::kEngineOverloaded,
                    std::to_string(num_live) +
                        " sequences are running or waiting, which is the limit: try again later, "
                        "or raise max_queue_size");
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

template <typename Action>
void Engine::CallBetweenSteps(Action action) {
  struct WaitingCall {
    explicit WaitingCall(Engine* engine) : engine(engine) {
      std::lock_guard lock(engine->mutex_);
      ++engine->num_waiting_calls_;
    }
    ~WaitingCall() {
      {
        std::lock_guard lock(engine->mutex_);
        --engine->num_waiting_calls_;
        ++engine->num_ended_calls_;
      }
      engine->wake_.notify_all();
    }
    Engine* engine;
  } waiting_call{this};
  std::lock_guard step_lock(step_mutex_);
  Inbox calls;
  {
    std::lock_guard lock(mutex_);
    CheckServing();
    calls = TakeCalls();
  }
  try {
    try {
      stepper_.ApplyCalls(std::move(calls));
      action(stepper_.prefixes());
    } catch (const EngineError&) {
      Publish();
      throw;
    }
    Publish();
  } catch (const EngineError&) {
    throw;
  } catch (const std::exception& error) {
    Fail(error.what());
  }
}

int64_t Engine::CountCached(const PrefixKey& key) {
  int64_t count = 0;
  CallBetweenSteps([&](PrefixTransfer& prefixes) { count = prefixes.CountCached(key); });
  return count;
}

void Engine::ExportPrefix(const PrefixKey& key, int64_t begin, std::span<std::byte> data) {
  CallBetweenSteps([&](PrefixTransfer& prefixes) { prefixes.Export(key, begin, data); });
}

void Engine::ImportPrefix(const PrefixKey& key, int64_t begin, std::span<const std::byte> data) {
  CallBetweenSteps([&](PrefixTransfer& prefixes) {
    prefixes.Import(key, begin, data, factory_.max_sequence_tokens());
  });
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
  return failure_;
}

void Engine::CheckInvariants() {
  std::lock_guard step_lock(step_mutex_);
  stepper_.CheckInvariants(factory_.max_sequence_tokens());
}

// ---- The loop ----

bool Engine::WaitForWork() {
  std::unique_lock lock(mutex_);
  // A mutex is not fair: without this, the next step could begin before any call that waits.
  wake_.wait(lock, [this, num_ended = num_ended_calls_] {
    return num_waiting_calls_ == 0 || num_ended_calls_ != num_ended;
  });
  const auto has_work = [this] {
    return stop_requested_ || closed_ || !failure_.empty() || has_unpaused_ || !inbox_.empty() ||
           next_deadline_ <= now_();
  };
  while (!has_work()) {
    // Not wait_until(TimePoint::max()), whose conversion to the system's clock may overflow.
    if (next_deadline_ == TimePoint::max()) {
      wake_.wait(lock);
    } else {
      wake_.wait_until(lock, next_deadline_);
    }
  }
  if (!failure_.empty()) throw EngineError(ErrorKind::kEngineDead, failure_);
  return !closed_ && !std::exchange(stop_requested_, false);
}

void Engine::Run() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_running_, true)) throw std::logic_error("the engine is already running");
  }
  struct RunGuard {
    Engine* engine;
    ~RunGuard() {
      std::lock_guard lock(engine->mutex_);
      engine->is_running_ = false;
    }
  } guard{this};
  while (WaitForWork()) Step();
}

bool Engine::Step() {
  std::lock_guard step_lock(step_mutex_);
  Inbox calls;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw EngineError(ErrorKind::kEngineDead, failure_);
    if (closed_) return false;
    calls = TakeCalls();
  }
  try {
    stepper_.Step(std::move(calls));
    Publish();
  } catch (const std::exception& error) {
    Fail(error.what());
  }
  std::lock_guard lock(mutex_);
  return has_unpaused_ || !inbox_.empty();
}

Inbox Engine::TakeCalls() {
  // The submitted sequences move to the scheduler, whose queue `Publish` counts only after the
  // step.
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
  stepper_.StopMasks();
  Publish();
  if (failure.empty()) return;
  std::lock_guard lock(mutex_);
  failure_ = failure;
  throw EngineError(ErrorKind::kEngineDead, failure_);
}

void Engine::Fail(const std::string& cause) {
  const std::string failure = "the model failed: " + cause;
  Inbox calls;
  {
    std::lock_guard lock(mutex_);
    failure_ = failure;  // `Submit` throws from here on.
    calls = TakeCalls();
  }
  // Ignore further errors of the model, which are consequences of the first.
  stepper_.Abort(std::move(calls.submitted), FinishReason::kError, failure);
  Publish();
  wake_.notify_all();
  throw EngineError(ErrorKind::kEngineDead, failure);
}

void Engine::Publish() {
  std::vector<std::string> notices = stepper_.TakeNotices();
  const Statistics& statistics = stepper_.UpdateStatistics();
  std::lock_guard lock(mutex_);
  std::vector<Record>& records = stepper_.records();
  size_t num_put = 0;
  try {
    for (; num_put < records.size(); ++num_put) outbox_.Put(std::move(records[num_put]));
  } catch (...) {  // Memory is exhausted: `Fail` publishes the others.
    records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(num_put));
    throw;
  }
  records.clear();
  for (std::string& notice : notices) notices_.push_back(std::move(notice));
  published_ = statistics;
  has_unpaused_ = stepper_.has_unpaused();
  next_deadline_ = stepper_.next_deadline();
}

}  // namespace aiomlc
