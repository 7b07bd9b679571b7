#include "grammar/constraint.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <exception>
#include <limits>
#include <system_error>
#include <utility>

namespace aiomlc {

namespace {

constexpr int64_t kBitsPerWord = 32;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
/*! \brief The engine does not wait for slower masks; most masks take a tenth of this. */
constexpr std::chrono::microseconds kSlowMask(500);
/*! \brief The longest wait of new requests while the engine only waits for masks. */
constexpr std::chrono::milliseconds kBriefWait(1);

/*!
 * \brief Work of a sequence's grammar that takes longer counts towards `kMaxCostlyTime`.
 *
 * In a vocabulary of 128,000 tokens, one mask in a hundred takes up to 9 ms.
 */
constexpr std::chrono::milliseconds kCostlyWork(10);
constexpr std::chrono::seconds kMaxCostlyTime(2);

/*! \return The processor time of the calling thread. */
std::chrono::nanoseconds ThreadTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/*! \brief A table instead of shifts lets the compiler vectorize the loop in `Apply`. */
constexpr std::array<uint32_t, kBitsPerWord> kBitAt = [] {
  std::array<uint32_t, kBitsPerWord> bits = {};
  for (int64_t i = 0; i < kBitsPerWord; ++i) bits[i] = uint32_t{1} << i;
  return bits;
}();

}  // namespace

Constraint::Constraint(std::unique_ptr<GrammarMatcher> matcher, int64_t vocab_size)
    : matcher_(std::move(matcher)), mask_((vocab_size + kBitsPerWord - 1) / kBitsPerWord) {}

bool Constraint::AcceptToken(int32_t token_id) {
  is_ready_.store(false, std::memory_order_relaxed);
  matcher_->Consume(token_id);
  return matcher_->IsComplete();
}

std::vector<int32_t> Constraint::ForcedTokens() {
  const std::chrono::nanoseconds start = ThreadTime();
  std::vector<int32_t> forced = matcher_->ForcedTokens();
  CountTime(ThreadTime() - start);
  return forced;
}

void Constraint::CountTime(std::chrono::nanoseconds time) {
  if (time > kCostlyWork) costly_time_ += time;
  if (costly_time_ > kMaxCostlyTime) {
    throw GrammarError("it is too complex: its slow masks have taken more than " +
                       std::to_string(kMaxCostlyTime.count()) + " s");
  }
}

void Constraint::ComputeMask() noexcept {
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds thread_start = ThreadTime();
  try {
    matcher_->ComputeMask(mask_);
    CountTime(ThreadTime() - thread_start);
    if (std::all_of(mask_.begin(), mask_.end(), [](uint32_t word) { return word == 0; })) {
      failure_ = "it allows no token";
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
  is_slow_.store(std::chrono::steady_clock::now() - start > kSlowMask, std::memory_order_relaxed);
  is_ready_.store(true, std::memory_order_release);
}

void Constraint::Apply(float* logits, int64_t vocab_size) const {
  if (!failure_.empty()) throw GrammarError(failure_);
  for (int64_t begin = 0; begin < vocab_size; begin += kBitsPerWord) {
    const uint32_t word = mask_[begin / kBitsPerWord];
    if (word == ~uint32_t{0}) continue;
    const int64_t count = std::min(kBitsPerWord, vocab_size - begin);
    for (int64_t i = 0; i < count; ++i) {
      const float logit = logits[begin + i];
      const bool is_excluded = (word & kBitAt[i]) == 0 && logit < kInfinity;
      logits[begin + i] = is_excluded ? -kInfinity : logit;
    }
  }
}

MaskWorker::~MaskWorker() { Stop(); }

void MaskWorker::Stop() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
    jobs_.clear();
  }
  job_ready_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void MaskWorker::Enqueue(std::shared_ptr<Constraint> constraint) {
  if (!HasThread()) return constraint->ComputeMask();
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(constraint));
  }
  job_ready_.notify_one();
}

bool MaskWorker::HasThread() {
  try {
    if (!thread_.joinable() && !is_stopping_) thread_ = std::thread(&MaskWorker::Run, this);
  } catch (const std::system_error&) {
    // A limit of the system; a later mask tries again.
  }
  return thread_.joinable();
}

void MaskWorker::RunFastJobs() {
  while (true) {
    std::shared_ptr<Constraint> constraint;
    {
      std::lock_guard lock(mutex_);
      const auto quick =
          std::find_if(jobs_.begin(), jobs_.end(), [](const auto& job) { return !job->is_slow(); });
      if (quick == jobs_.end()) return;
      constraint = std::move(*quick);
      jobs_.erase(quick);
    }
    constraint->ComputeMask();
  }
}

void MaskWorker::WaitBriefly(const std::function<bool()>& condition) {
  std::unique_lock lock(mutex_);
  mask_ready_.wait_for(lock, kBriefWait, condition);
}

bool MaskWorker::Get(const Constraint& constraint) {
  std::unique_lock lock(mutex_);
  const auto job = std::find_if(jobs_.begin(), jobs_.end(),
                                [&](const auto& queued) { return queued.get() == &constraint; });
  if (job != jobs_.end()) {
    if (constraint.is_slow()) return false;
    const std::shared_ptr<Constraint> taken = std::move(*job);
    jobs_.erase(job);
    lock.unlock();
    taken->ComputeMask();
    return true;
  }
  return mask_ready_.wait_for(lock, kSlowMask, [&] { return constraint.is_ready(); });
}

void MaskWorker::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    job_ready_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    // A shared pointer: the sequence may end while its mask is computed.
    std::shared_ptr<Constraint> constraint = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    constraint->ComputeMask();
    constraint.reset();
    lock.lock();
    mask_ready_.notify_all();
  }
}

}  // namespace aiomlc
