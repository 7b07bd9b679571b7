// Hidden states as a second output of the models.
#include "model/hidden_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "model/faulty_model.h"
#include "tests/doubles/fake_model.h"
#include "tests/doubles/recurrent_model.h"

namespace aiomlc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Tokens = std::vector<int32_t>;

ForwardInput PassOf(const Tokens& tokens) {
  ForwardInput input;
  input.sequence_ids = {5};
  input.append_lengths = {static_cast<int32_t>(tokens.size())};
  input.token_ids = tokens;
  return input;
}

template <typename AnyModel>
class HiddenStatesTest : public ::testing::Test {
 protected:
  void SetUp() override { model_.state().Add(5); }

  AnyModel model_{{.hidden_layers = {0, 2, kFinalNorm}}};
};

using Models = ::testing::Types<FakeModel, RecurrentModel>;
TYPED_TEST_SUITE(HiddenStatesTest, Models);

TYPED_TEST(HiddenStatesTest, ThoseOfTheChosenRowsAndLayersAreReturned) {
  ForwardInput input = PassOf({7, 8, 9, 10});
  input.logit_positions = {3};
  input.hidden = {.layers = {2, kFinalNorm}, .positions = {1, 3}};
  const ForwardOutput output = this->model_.Forward(input);

  ASSERT_THAT(output.hidden, SizeIs(2));
  for (size_t layer = 0; layer < 2; ++layer) {
    const float* states = output.hidden[layer];
    const HiddenLayer name = input.hidden.layers[layer];
    EXPECT_EQ(HiddenBits::HashOf(states, name), FakeModel::HashOf({7, 8}));
    EXPECT_EQ(HiddenBits::HashOf(states + this->model_.hidden_size(), name),
              FakeModel::HashOf({7, 8, 9, 10}));
  }
}

TYPED_TEST(HiddenStatesTest, TheyAreIndependentOfTheLogitPositions) {
  ForwardInput input = PassOf({7, 8});
  input.hidden = {.layers = {kFinalNorm}, .positions = {0}};
  EXPECT_EQ(HiddenBits::HashOf(this->model_.Forward(input).hidden.at(0), kFinalNorm),
            FakeModel::HashOf({7}));
}

TYPED_TEST(HiddenStatesTest, NoneIsReturnedUnlessItIsRequested) {
  ForwardInput input = PassOf({7, 8});
  input.logit_positions = {1};
  EXPECT_THAT(this->model_.Forward(input).hidden, IsEmpty());
}

TYPED_TEST(HiddenStatesTest, ALayerThatTheModelLacksIsATypedErrorAndNothingIsAppended) {
  ForwardInput input = PassOf({7});
  input.hidden = {.layers = {0, 1}, .positions = {0}};
  EXPECT_THROW(this->model_.Forward(input), HiddenLayerError);
  input.hidden.layers = {0};
  EXPECT_EQ(HiddenBits::HashOf(this->model_.Forward(input).hidden.at(0), 0),
            FakeModel::HashOf({7}));
}

TEST(HiddenLayerError, SaysWhichLayersThereAre) {
  const std::vector<HiddenLayer> some = {0, 12, kFinalNorm};
  EXPECT_STREQ(HiddenLayerError(5, some).what(),
               "the model returns the hidden states of layer 0, layer 12, the final norm; those of "
               "layer 5 were requested");
  EXPECT_STREQ(HiddenLayerError(kFinalNorm, {}).what(),
               "the model returns no hidden states; those of the final norm were requested");
  EXPECT_EQ(HiddenLayerError(5, {}).kind(), ErrorKind::kBadRequest);
}

TEST(FaultyModel, ReplacesLogitsAndNoHiddenState) {
  FakeModel model({.hidden_layers = {kFinalNorm}});
  model.Add(5);
  FaultyModel faulty(&model, {.nan_at_pass = 1});
  ForwardInput input = PassOf({7});
  input.logit_positions = {0};
  input.hidden = {.layers = {kFinalNorm}, .positions = {0}};
  const ForwardOutput output = faulty.Forward(input);

  EXPECT_TRUE(std::isnan(output.logits[0]));
  EXPECT_EQ(HiddenBits::HashOf(output.hidden.at(0), kFinalNorm), FakeModel::HashOf({7}));
  EXPECT_THAT(faulty.hidden_layers(), ElementsAre(kFinalNorm));
  EXPECT_EQ(faulty.hidden_size(), HiddenBits::kSize);
}

}  // namespace
}  // namespace aiomlc
