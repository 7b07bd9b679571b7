// Prefixes that are copied between engines: their tokens, their pages, and what may go wrong.
#include "engine/prefix_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>

#include "engine/engine.h"
#include "tests/doubles/fake_model.h"

namespace aiomlc {
namespace {

using Tokens = std::vector<int32_t>;
using ::testing::HasSubstr;

SequenceOptions Greedy(int64_t max_tokens) {
  SequenceOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

Tokens Range(int32_t begin, int32_t end) {
  Tokens tokens;
  for (int32_t token = begin; token < end; ++token) tokens.push_back(token % 32);
  return tokens;
}

/*! \return The rows that `FakeModel` exports for these tokens from `begin` on. */
std::vector<std::byte> DataOf(const Tokens& tokens, int64_t begin) {
  std::vector<std::byte> data((tokens.size() - static_cast<size_t>(begin)) * sizeof(int32_t));
  std::memcpy(data.data(), tokens.data() + begin, data.size());
  return data;
}

/*! \brief An engine with pages of 4 tokens, which must have no page left at the end. */
class PrefixTransferTest : public ::testing::Test {
 protected:
  void Open(FakeModel::Sizes sizes, EngineOptions options = {.max_recycling_sequences = 8}) {
    engine_.reset();
    model_ = std::make_unique<FakeModel>(sizes);
    engine_ = std::make_unique<Engine>(model_.get(), Vocabulary(), options);
  }
  void SetUp() override { Open({}); }

  void TearDown() override {
    engine_->CheckInvariants();
    try {
      engine_->Close();
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kEngineDead);
    }
    engine_->CheckInvariants();
    EXPECT_EQ(engine_->GetStatistics().free_pages, model_->num_pages());
    EXPECT_EQ(model_->num_sequences(), 0u);
    EXPECT_EQ(model_->pages_in_use(), 0);
  }

  Record Generate(const Tokens& prompt, int64_t max_tokens) {
    engine_->Submit(prompt, Greedy(max_tokens));
    while (engine_->Step()) engine_->CheckInvariants();
    Record output;
    for (Record& record : engine_->Drain()) {
      output.token_ids.insert(output.token_ids.end(), record.token_ids.begin(),
                              record.token_ids.end());
      output.cached_tokens = record.cached_tokens;
    }
    return output;
  }

  void Import(const Tokens& tokens, int64_t begin) {
    engine_->ImportPrefix(tokens, begin, DataOf(tokens, begin));
    engine_->CheckInvariants();
    EXPECT_GE(engine_->GetStatistics().free_pages, 0);
  }

  template <typename Call>
  void ExpectError(ErrorKind kind, const char* message, Call call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown; expected: " << message;
    } catch (const EngineError& error) {
      EXPECT_EQ(error.kind(), kind);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
    engine_->CheckInvariants();
  }

  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(PrefixTransferTest, AnExportHasTheRowsOfACachedPrefix) {
  const Tokens prompt = Range(0, 11);
  Generate(prompt, 2);

  EXPECT_EQ(engine_->CountCached(prompt), 11);
  for (int64_t begin : {0, 3, 4, 10}) {
    std::vector<std::byte> data(static_cast<size_t>(11 - begin) * sizeof(int32_t));
    engine_->ExportPrefix(prompt, begin, data);
    EXPECT_EQ(data, DataOf(prompt, begin)) << "from " << begin;
  }
}

TEST_F(PrefixTransferTest, AnImportedPrefixIsNotPrefilledAgain) {
  for (int32_t length : {1, 4, 5, 16, 17, 33}) {
    Open({});
    const Tokens prompt = Range(0, length + 1);
    const Tokens expected = Generate(prompt, 6).token_ids;
    Open({});
    Import(Range(0, length), 0);
    const Record output = Generate(prompt, 6);

    EXPECT_EQ(output.token_ids, expected) << "length " << length;
    EXPECT_EQ(output.cached_tokens, length);
    EXPECT_EQ(engine_->GetStatistics().prefill_tokens, 1);
  }
}

TEST_F(PrefixTransferTest, PiecesExtendOneEntry) {
  Import(Range(0, 4), 0);
  Import(Range(0, 20), 4);
  Import(Range(0, 26), 20);

  EXPECT_EQ(engine_->CountCached(Range(0, 30)), 26);
  EXPECT_EQ(engine_->GetStatistics().num_recycling, 1);
  EXPECT_EQ(model_->num_sequences(), 1u);
  EXPECT_EQ(model_->pages_in_use(), 7);
}

TEST_F(PrefixTransferTest, ARepeatedImportChangesNothing) {
  Import(Range(0, 10), 0);
  Import(Range(0, 10), 0);
  Import(Range(0, 6), 4);

  EXPECT_EQ(engine_->GetStatistics().num_recycling, 1);
  EXPECT_EQ(engine_->CountCached(Range(0, 10)), 10);
}

TEST_F(PrefixTransferTest, AnImportContinuesARunningSequence) {
  const Tokens prompt = Range(0, 9);
  engine_->Submit(prompt, Greedy(20));
  engine_->Step();
  Tokens longer = Range(0, 8);
  longer.insert(longer.end(), {30, 29, 28});
  Import(longer, 8);

  EXPECT_EQ(engine_->CountCached(longer), 11);
  while (engine_->Step()) engine_->CheckInvariants();
  EXPECT_EQ(engine_->CountCached(longer), 11);
}

TEST_F(PrefixTransferTest, AnImportEvictsTheLeastRecentlyUsedEntries) {
  Open({.num_pages = 8}, {.max_recycling_sequences = -1});
  Import(Range(0, 12), 0);  // Three pages each.
  Import(Range(20, 32), 0);
  std::vector<std::byte> data(4 * sizeof(int32_t));
  engine_->ExportPrefix(Range(0, 12), 8, data);
  Import(Range(10, 22), 0);

  EXPECT_EQ(engine_->CountCached(Range(0, 12)), 12);
  EXPECT_EQ(engine_->CountCached(Range(20, 32)), 0);
  EXPECT_EQ(engine_->CountCached(Range(10, 22)), 12);
}

TEST_F(PrefixTransferTest, AnImportTakesThePagesOfItsOwnSource) {
  Open({.num_pages = 8}, {.max_recycling_sequences = -1});
  Import(Range(0, 20), 0);  // Five of eight pages.
  Import(Range(0, 32), 20);

  EXPECT_EQ(engine_->CountCached(Range(0, 32)), 32);
  EXPECT_EQ(model_->pages_in_use(), 8);
}

TEST_F(PrefixTransferTest, AnImportThatDoesNotFitChangesNothing) {
  Open({.num_pages = 8});
  SequenceOptions pinned = Greedy(1);
  pinned.is_pinned = true;
  engine_->Submit(Range(0, 12), pinned);
  while (engine_->Step()) {
  }
  engine_->Drain();
  Import(Range(20, 24), 0);

  ExpectError(ErrorKind::kEngineOverloaded, "no room for a prefix of 21 tokens",
              [&] { Import(Range(8, 29), 0); });
  EXPECT_EQ(engine_->CountCached(Range(20, 24)), 4);
  EXPECT_EQ(engine_->CountCached(Range(0, 12)), 12);
}

TEST_F(PrefixTransferTest, ImportsNeverPreemptARunningSequence) {
  Open({.num_pages = 8}, {.max_recycling_sequences = -1});
  const Tokens prompt = Range(0, 9);
  const Tokens expected = Generate(prompt, 20).token_ids;
  Open({.num_pages = 8}, {.max_recycling_sequences = -1});
  engine_->Submit(prompt, Greedy(20));
  engine_->Step();
  Import(Range(16, 32), 0);
  while (engine_->Step()) engine_->CheckInvariants();

  Tokens output;
  for (const Record& record : engine_->Drain()) {
    output.insert(output.end(), record.token_ids.begin(), record.token_ids.end());
  }
  EXPECT_EQ(output, expected);
  EXPECT_EQ(engine_->GetStatistics().preemptions, 0);
}

TEST_F(PrefixTransferTest, PrecedingCallsAreAppliedFirst) {
  Import(Range(0, 8), 0);
  engine_->Reset();
  Import(Range(16, 24), 0);

  EXPECT_EQ(engine_->CountCached(Range(0, 8)), 0);
  engine_->Step();
  EXPECT_EQ(engine_->CountCached(Range(16, 24)), 8);
}

TEST_F(PrefixTransferTest, ARefusedTransferDoesNotDelayOtherCalls) {
  engine_->Submit(Range(0, 8), Greedy(4));
  ExpectError(ErrorKind::kPrefixNotCached, "only 0", [&] { Import(Range(16, 24), 4); });

  EXPECT_EQ(engine_->GetStatistics().num_waiting, 1);
  while (engine_->Step()) {
  }
  EXPECT_EQ(engine_->Drain().size(), 1u);
}

TEST_F(PrefixTransferTest, InvalidTransfersAreRefused) {
  std::vector<std::byte> data(4 * sizeof(int32_t));
  const Tokens tokens = Range(0, 4);
  const auto bad = ErrorKind::kBadRequest;

  ExpectError(bad, "begin must be in [0, 4), got 4", [&] { engine_->ImportPrefix(tokens, 4, {}); });
  ExpectError(bad, "begin must be in [0, 4), got -1",
              [&] { engine_->ExportPrefix(tokens, -1, data); });
  ExpectError(bad, "begin must be in [0, 0)", [&] { engine_->ImportPrefix({}, 0, {}); });
  ExpectError(bad, "must be a multiple of 4, got 2", [&] { Import(tokens, 2); });
  ExpectError(bad, "4 tokens have 16 bytes, got 15",
              [&] { engine_->ImportPrefix(tokens, 0, std::span(data).first(15)); });
  ExpectError(bad, "in [0, 32), got 32", [&] { Import({1, 32}, 0); });
  ExpectError(bad, "in [0, 32), got -1", [&] { Import({-1, 2}, 0); });
  ExpectError(bad, "at most 64 tokens, got 65", [&] { Import(Range(0, 65), 0); });
  EXPECT_EQ(engine_->CountCached(tokens), 0);
}

TEST_F(PrefixTransferTest, APrefixThatIsNotCachedIsReported) {
  std::vector<std::byte> data(8 * sizeof(int32_t));
  Import(Range(0, 5), 0);

  ExpectError(ErrorKind::kPrefixNotCached, "only 5 of the first 8 tokens",
              [&] { engine_->ExportPrefix(Range(0, 8), 0, data); });
  ExpectError(ErrorKind::kPrefixNotCached, "only 5 of the first 8 tokens",
              [&] { Import(Range(0, 12), 8); });
}

TEST_F(PrefixTransferTest, WithoutAPrefixCacheNothingIsTransferred) {
  Open({}, {.max_recycling_sequences = 0});

  ExpectError(ErrorKind::kBadRequest, "prefix cache is disabled", [&] { Import(Range(0, 4), 0); });
}

TEST_F(PrefixTransferTest, AModelThatFailsToImportKillsTheEngine) {
  model_->ThrowOnImport();

  ExpectError(ErrorKind::kEngineDead, "import failed", [&] { Import(Range(0, 4), 0); });
  ExpectError(ErrorKind::kEngineDead, "import failed", [&] { engine_->CountCached(Range(0, 4)); });
}

TEST_F(PrefixTransferTest, AClosedEngineTransfersNothing) {
  engine_->Close();

  ExpectError(ErrorKind::kEngineClosed, "closed", [&] { Import(Range(0, 4), 0); });
}

TEST_F(PrefixTransferTest, ABusyEngineServesTransfersBetweenItsSteps) {
  Open({.context_window = 4000, .num_pages = 1000});
  std::thread runner([&] { engine_->Run(); });
  const int64_t id = engine_->Submit(Range(0, 3), Greedy(3900));
  std::vector<std::thread> callers;
  for (int32_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([this, caller] {
      for (int32_t length = 4; length <= 40; length += 4) {
        const Tokens tokens = Range(5 + caller, 5 + caller + length);
        engine_->ImportPrefix(tokens, length - 4, DataOf(tokens, length - 4));
        EXPECT_EQ(engine_->CountCached(tokens), length);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  engine_->Cancel(id);
  engine_->Stop();
  runner.join();

  EXPECT_EQ(engine_->Failure(), "");
}

}  // namespace
}  // namespace aiomlc
