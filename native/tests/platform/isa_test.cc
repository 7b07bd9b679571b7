#include "platform/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace aiomlc {
namespace {

TEST(Isa, ANameSelectsAtMostTheHighestSupportedTier) {
  EXPECT_EQ(ParseIsa("portable"), Isa::kPortable);
  EXPECT_EQ(ParseIsa(""), SupportedIsa());
  EXPECT_EQ(ParseIsa("amx"), SupportedIsa());
  EXPECT_EQ(ParseIsa("avx512"), std::min(SupportedIsa(), Isa::kAvx512));
  EXPECT_LE(ParseIsa("avxvnni"), Isa::kAvxVnni);
  EXPECT_LE(ParseIsa("i8mm"), Isa::kI8mm);
  EXPECT_LE(ParseIsa("neon"), Isa::kNeon);
  EXPECT_EQ(ParseIsa("avx2"), std::min(SupportedIsa(), Isa::kAvx2));
}

TEST(Isa, AnUnknownNameIsRejectedWithTheVariable) {
  try {
    ParseIsa("sse9");
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("AIOMLC_ISA"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("sse9"), std::string::npos);
  }
}

TEST(Isa, SetIsaChangesTheActiveTier) {
  const Isa before = ActiveIsa();

  SetIsa(Isa::kPortable);
  EXPECT_EQ(ActiveIsa(), Isa::kPortable);
  SetIsa(SupportedIsa());
  EXPECT_EQ(ActiveIsa(), SupportedIsa());

  SetIsa(before);
}

}  // namespace
}  // namespace aiomlc
