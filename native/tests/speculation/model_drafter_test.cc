#include "speculation/model_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

class ModelDrafterTest : public ::testing::Test {
 protected:
  Sequence MakeSequence(Tokens tokens, double temperature = 1) {
    SequenceOptions options;
    options.seed = 7;
    options.sampling.temperature = temperature;
    options.logits.frequency_penalty = 0.5;
    Sequence sequence(std::move(tokens), options, 100, &vocabulary_);
    sequence.id = 3;
    return sequence;
  }

  static Tokens Draft(ModelDrafter* drafter, Sequence* sequence, int64_t max_tokens) {
    sequence->draft_ids.clear();
    drafter->Propose({{sequence, max_tokens}}, {});
    return sequence->draft_ids;
  }

  /*! \brief Draft with a new drafter, which has no cached tokens. */
  static Tokens DraftWithoutCache(Sequence* sequence, int64_t max_tokens) {
    FakeModel model({.prefill_chunk_size = 64});
    ModelDrafter drafter(&model, 64);
    return Draft(&drafter, sequence, max_tokens);
  }

  Vocabulary vocabulary_;
  FakeModel model_{{.prefill_chunk_size = 64}};
  ModelDrafter drafter_{&model_, 64};
};

TEST_F(ModelDrafterTest, DraftsDoNotDependOnPreviousDrafts) {
  std::mt19937 random(2);
  Sequence sequence = MakeSequence({1, 2, 3});
  while (sequence.num_tokens() < 40) {
    const int64_t depth = 1 + static_cast<int64_t>(random() % 6);
    const Tokens draft = Draft(&drafter_, &sequence, depth);
    ASSERT_EQ(draft.size(), static_cast<size_t>(depth));
    EXPECT_EQ(draft, DraftWithoutCache(&sequence, depth)) << "at " << sequence.num_tokens();
    const size_t accepted = random() % (draft.size() + 1);
    // Sometimes the token after the accepted ones equals the draft token.
    const int32_t last = accepted < draft.size() && random() % 2 == 0
                             ? draft[accepted]
                             : static_cast<int32_t>(random() % 32);
    for (size_t i = 0; i <= accepted; ++i) {
      const int32_t token_id = i < accepted ? draft[i] : last;
      sequence.token_ids.push_back(token_id);
      sequence.logit_adjuster.CountToken(token_id);
    }
  }
}

TEST_F(ModelDrafterTest, AStepWithoutProgressGetsTheSameDraft) {
  Sequence sequence = MakeSequence({1, 2, 3, 4});
  for (int64_t depth : {1, 4}) {
    const Tokens draft = Draft(&drafter_, &sequence, depth);
    EXPECT_THAT(Draft(&drafter_, &sequence, depth), ElementsAreArray(draft));
  }
}

TEST_F(ModelDrafterTest, ProposesNothingWithoutPagesOrContext) {
  FakeModel small({.context_window = 10, .num_pages = 2});
  ModelDrafter drafter(&small, 64);
  Sequence sequence = MakeSequence({1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(Draft(&drafter, &sequence, 2).size(), 2u) << "the last draft token needs no cache slot";
  EXPECT_THAT(Draft(&drafter, &sequence, 3), IsEmpty()) << "there is no third page";
  sequence.token_ids.assign(11, 1);
  EXPECT_THAT(Draft(&drafter, &sequence, 1), IsEmpty()) << "the context is full";
  drafter.Remove(sequence.id);
  EXPECT_EQ(small.pages_in_use(), 0);
  drafter.Remove(sequence.id);
}

}  // namespace
}  // namespace aiomlc
