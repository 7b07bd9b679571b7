/*!
 * \file tests/doubles/fake_grammar.h
 * \brief A grammar that is a list of places, with failures on demand.
 */
#ifndef AIOMLC_TESTS_DOUBLES_FAKE_GRAMMAR_H_
#define AIOMLC_TESTS_DOUBLES_FAKE_GRAMMAR_H_

#include <algorithm>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "grammar/grammar.h"

namespace aiomlc {

/*! \brief Which tokens may stand at each place; after the last place nothing can. */
class FakeGrammar final : public GrammarMatcher {
 public:
  using Places = std::vector<std::set<int32_t>>;
  explicit FakeGrammar(Places places) : places_(std::move(places)) {}

  /*! \brief The places where there is no choice are forced. */
  bool forces = false;
  /*! \brief `ComputeMask` fails at this place. */
  size_t fails_at = std::numeric_limits<size_t>::max();
  /*! \brief Every mask waits for this. */
  std::shared_future<void> gate;

  std::unique_ptr<GrammarMatcher> Clone() const override {
    return std::make_unique<FakeGrammar>(*this);
  }
  void ComputeMask(std::span<uint32_t> mask) override {
    if (gate.valid()) gate.wait();
    if (at_ == fails_at) throw GrammarError("out of fuel");
    std::fill(mask.begin(), mask.end(), 0);
    for (int32_t token : places_.at(at_)) mask[token / 32] |= uint32_t{1} << token % 32;
  }
  void Consume(int32_t token) override {
    if (!places_.at(at_++).contains(token)) throw GrammarError("a token that may not come");
  }
  std::vector<int32_t> ForcedTokens() override {
    std::vector<int32_t> tokens;
    for (size_t at = at_; forces && at < places_.size() && places_[at].size() == 1; ++at) {
      tokens.push_back(*places_[at].begin());
    }
    return tokens;
  }
  bool IsComplete() override { return at_ == places_.size(); }

 private:
  Places places_;
  size_t at_ = 0;
};

}  // namespace aiomlc

#endif  // AIOMLC_TESTS_DOUBLES_FAKE_GRAMMAR_H_
