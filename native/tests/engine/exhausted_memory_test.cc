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
      last_records_[engine_.Submit({1, 2, 3, 4, 5, i, 7, 8}, options)] = 0;
    }
    for (int i = 0; i < num_steps; ++i) engine_.Step();
  }

  /*! \return Whether the step has that many allocations. */
  bool FailAt(int64_t index) {
    bool is_dead = false;
    bool has_failed = false;
    try {
      const FailingAllocation failure(index);
      const auto step = [&] {
        engine_.Step();
        has_failed = FailingAllocation::has_failed();
      };
      step();
    } catch (const EngineError& error) {
      has_failed = true;
      is_dead = true;
      EXPECT_EQ(error.kind(), ErrorKind::kEngineDead);
    }
    EXPECT_EQ(engine_.Failure().empty(), !is_dead);
    try {
      engine_.Close();
    } catch (const EngineError&) {
      EXPECT_TRUE(is_dead);
    }
    for (const Record& record : engine_.Drain()) {
      if (record.finish_reason != FinishReason::kNone) ++last_records_[record.sequence_id];
    }
    for (const auto& [id, count] : last_records_) EXPECT_EQ(count, 1) << "sequence " << id;
    return has_failed;
  }

 private:
  FakeModel model_{FakeModel::Sizes()};
  Engine engine_{&model_, LetterVocabulary(32, {}), {.max_recycling_sequences = 4}};
  std::map<int64_t, int> last_records_;
};

class ExhaustedMemoryTest : public ::testing::TestWithParam<int> {};

TEST_P(ExhaustedMemoryTest, EndsTheEngineAndEverySequenceOnce) {
  int64_t index = 0;
  while (ExhaustedMemory(GetParam()).FailAt(index)) {
    ASSERT_FALSE(HasFailure()) << "allocation " << index;
    ++index;
  }
  EXPECT_GT(index, 10);
}

INSTANTIATE_TEST_SUITE_P(Steps, ExhaustedMemoryTest, ::testing::Values(0, 1, 2, 3));

}  // namespace
}  // namespace aiomlc
