// Every allocation of a step fails once: the engine ends, and every sequence has one last record.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/engine.h"
#include "tests/doubles/failing_allocation.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/letter_vocabulary.h"

namespace aiomlc {
namespace {

/*!
 * \brief Run some steps of sequences with a common prefix, and then one in which an allocation
 * fails.
 */
class ExhaustedMemory {
 public:
  explicit ExhaustedMemory(int num_steps) {
    SequenceOptions options;
    options.sampling.temperature = 0;
    options.max_tokens = 3;
    options.stop = {"zz"};
    for (int32_t i = 0; i < 5; ++i) {
      num_last_[engine_.Submit({1, 2, 3, 4, 5, i, 7, 8}, options)] = 0;
    }
    for (int i = 0; i < num_steps; ++i) engine_.Step();
    Read();
  }

  /*! \return Whether the step has that many allocations. */
  bool FailAt(int64_t index) {
    bool is_dead = false;
    bool has_failed = false;
    try {
      const FailingAllocation failure(index);
      engine_.Step();
      has_failed = FailingAllocation::has_failed();
    } catch (const EngineError& error) {
      has_failed = true;
      is_dead = true;
      EXPECT_EQ(error.kind(), ErrorKind::kEngineDead);
    }
    EXPECT_EQ(engine_.Failure().empty(), !is_dead);
    if (!is_dead) Finish();
    try {
      engine_.Close();
    } catch (const EngineError&) {
      EXPECT_TRUE(is_dead);
    }
    Read();
    for (const auto& [id, count] : num_last_) EXPECT_EQ(count, 1) << "sequence " << id;
    return has_failed;
  }

  /*! \brief Run all steps; none fails. */
  void Finish() {
    engine_.CheckInvariants();
    while (engine_.Step()) engine_.CheckInvariants();
  }

  /*! \brief Take the records. */
  void Read() {
    for (const Record& record : engine_.Drain()) {
      if (record.finish_reason != FinishReason::kNone) ++num_last_[record.sequence_id];
      outputs_[record.sequence_id] += record.text;
    }
  }

  const std::map<int64_t, std::string>& outputs() const { return outputs_; }

 private:
  FakeModel model_{FakeModel::Sizes()};
  Engine engine_{&model_, LetterVocabulary(32, {}), {.max_recycling_sequences = 4}};
  std::map<int64_t, int> num_last_;
  std::map<int64_t, std::string> outputs_;
};

class ExhaustedMemoryTest : public ::testing::TestWithParam<int> {};

TEST_P(ExhaustedMemoryTest, EndsTheEngineAndEverySequenceOnce) {
  ExhaustedMemory complete(0);
  complete.Finish();
  complete.Read();
  for (int64_t index = 0;; ++index) {
    ExhaustedMemory exhausted(GetParam());
    const bool has_failed = exhausted.FailAt(index);
    for (const auto& [id, text] : exhausted.outputs()) {
      EXPECT_TRUE(complete.outputs().at(id).starts_with(text)) << "sequence " << id << ": " << text;
    }
    ASSERT_FALSE(HasFailure()) << "allocation " << index;
    if (has_failed) continue;
    EXPECT_GT(index, 10);
    break;
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, ExhaustedMemoryTest, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace aiomlc
