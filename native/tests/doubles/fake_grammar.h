/*!
 * \file tests/doubles/fake_grammar.h
 * \brief A fake grammar: a list of allowed tokens per position, with injected failures.
 */
#ifndef AIOMLC_TESTS_DOUBLES_FAKE_GRAMMAR_H_
#define AIOMLC_TESTS_DOUBLES_FAKE_GRAMMAR_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <future>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace aiomlc {

/*! \brief Allows the given tokens at each position; the output is complete after the last one. */
class FakeGrammar final : public GrammarMatcher {
 public:
  using Positions = std::vector<std::set<int32_t>>;
  explicit FakeGrammar(Positions positions) : positions_(std::move(positions)) {}

  /*! \brief Whether tokens are forced at positions that allow only one. */
  bool has_forced_tokens = false;
  /*! \brief `ComputeMask` throws at this position. */
  size_t fails_at = std::numeric_limits<size_t>::max();
  /*! \brief `ComputeMask` blocks until this is ready. */
  std::shared_future<void> gate;
  /*! \brief Shared by all clones, as the next. */
  std::shared_ptr<void> alive;
  /*! \brief Set when `ComputeMask` is called. */
  std::shared_ptr<std::atomic<bool>> has_begun = std::make_shared<std::atomic<bool>>(false);
  /*! \brief The processor time that each mask takes, from position `slow_from` on. */
  std::chrono::milliseconds mask_time{0};
  size_t slow_from = 0;

  std::unique_ptr<GrammarMatcher> Clone() const override {
    return std::make_unique<FakeGrammar>(*this);
  }
  void ComputeMask(std::span<uint32_t> mask) override {
    has_begun->store(true);
    has_begun->notify_all();
    if (gate.valid()) gate.wait();
    const std::clock_t start = std::clock();
    while (position_ >= slow_from &&
           std::clock() - start < mask_time.count() * CLOCKS_PER_SEC / 1000) {
    }
    if (position_ == fails_at) throw GrammarError("out of fuel");
    std::fill(mask.begin(), mask.end(), 0);
    for (int32_t token : positions_.at(position_)) mask[token / 32] |= uint32_t{1} << token % 32;
  }
  void Consume(int32_t token) override {
    if (!positions_.at(position_++).contains(token)) throw GrammarError("token is not allowed");
  }
  std::vector<int32_t> ForcedTokens() override {
    std::vector<int32_t> tokens;
    for (size_t i = position_;
         has_forced_tokens && i < positions_.size() && positions_[i].size() == 1; ++i) {
      tokens.push_back(*positions_[i].begin());
    }
    return tokens;
  }
  bool IsComplete() override { return position_ == positions_.size(); }

 private:
  Positions positions_;
  size_t position_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_FAKE_GRAMMAR_H_
