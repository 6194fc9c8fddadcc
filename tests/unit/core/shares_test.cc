// SPDX-License-Identifier: Apache-2.0
// core/shares.h: who finds what, and who is charged for it when.
#include "mediator/core/shares.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::core {
namespace {

constexpr Shares::Token kToken{1, 2, 3};

class SharesTest : public testing::Test {
 protected:
  void SetUp() override {
    ledger_.add_vgpu(0, 1000);
    for (uint32_t session : {1, 2, 3}) ledger_.add_session(0, session);
    ASSERT_TRUE(ledger_.lease(1, 800).ok());
    Shares::Share share;
    share.exporter = 1;
    share.bytes = 600;
    ASSERT_NE(shares_.add(kToken, std::move(share), 1000), nullptr);
  }
  void end(uint32_t session) {
    shares_.session_ends(session);
    ledger_.remove_session(session);
  }
  void holds(uint64_t first, uint64_t second, uint64_t third) {
    EXPECT_EQ(ledger_.held_by_session(1), first);
    EXPECT_EQ(ledger_.held_by_session(2), second);
    EXPECT_EQ(ledger_.held_by_session(3), third);
    EXPECT_EQ(ledger_.held_by_vgpu(0), first + second + third);
  }

  QuotaLedger ledger_{UINT64_MAX};
  std::vector<int> closed_;
  Shares shares_{ledger_, [this](Fd file) { closed_.push_back(file.get()); }};
};

TEST_F(SharesTest, OnlyOthersOpenIt) {
  EXPECT_EQ(shares_.open(kToken, 1), nullptr);
  EXPECT_EQ(shares_.open(Shares::Token{9}, 2), nullptr);
  ASSERT_NE(shares_.open(kToken, 2), nullptr);
  EXPECT_EQ(shares_.open(kToken, 2)->bytes, 600u);
  Shares::Share again;
  EXPECT_EQ(shares_.add(kToken, std::move(again), 1000), nullptr);
}

TEST_F(SharesTest, WhatNobodyHasGoesWithItsExporter) {
  EXPECT_TRUE(shares_.give_up(kToken, 1, 600).ok());
  holds(200, 0, 0);
  EXPECT_EQ(shares_.size(), 0u);
  EXPECT_FALSE(shares_.give_up(kToken, 1, 600).ok()) << "more than is held";
}

TEST_F(SharesTest, TheChargeGoesFromOneToTheOther) {
  shares_.open(kToken, 2);
  shares_.open(kToken, 3);
  holds(800, 0, 0);
  EXPECT_TRUE(shares_.give_up(kToken, 1, 600).ok());
  holds(200, 600, 0);
  EXPECT_NE(shares_.open(kToken, 3), nullptr) << "who has it may open it again";
  ledger_.add_session(0, 4);
  EXPECT_EQ(shares_.open(kToken, 4), nullptr) << "others not";
  shares_.close(kToken, 2);
  holds(200, 0, 600);
  shares_.close(kToken, 2);
  shares_.close(kToken, 3);
  holds(200, 0, 0);
  EXPECT_EQ(shares_.size(), 0u);
}

TEST_F(SharesTest, EndsOfSessions) {
  shares_.open(kToken, 2);
  shares_.open(kToken, 3);
  end(1);
  holds(0, 600, 0);
  end(2);
  holds(0, 0, 600);
  end(3);
  holds(0, 0, 0);
  EXPECT_EQ(shares_.size(), 0u);
}

// A worker that was taken over gives back what is charged for others' memory.
TEST_F(SharesTest, APayerThatHoldsTooLittleOnlyGivesWhatItHas) {
  shares_.open(kToken, 2);
  EXPECT_TRUE(shares_.give_up(kToken, 1, 600).ok());
  EXPECT_TRUE(ledger_.give_back(2, 500).ok());
  shares_.close(kToken, 2);
  holds(200, 0, 0);
}

// Nor is a payer given back what it never was charged for: what it holds is others' memory.
TEST_F(SharesTest, AnExporterThatSaysMoreThanItHoldsHasNothingMoved) {
  ASSERT_TRUE(ledger_.lease(2, 100).ok());
  shares_.open(kToken, 2);
  EXPECT_FALSE(shares_.give_up(kToken, 1, 801).ok());
  holds(800, 100, 0);
  shares_.close(kToken, 2);
  holds(800, 100, 0);
}

TEST_F(SharesTest, ThereIsRoomForSoMany) {
  for (size_t i = 1; i < Shares::kMost; ++i) {
    Shares::Share share;
    share.exporter = 1;
    EXPECT_NE(shares_.add(Shares::Token{7, static_cast<uint8_t>(i)}, std::move(share), 1000),
              nullptr);
  }
  EXPECT_EQ(shares_.add(Shares::Token{8}, {}, 1000), nullptr);
}

// A worker that was taken over gives back what it is charged for, and its successors hold the
// files.
TEST_F(SharesTest, WhatIsNotChargedIsBoundedAllTheSame) {
  shares_.open(kToken, 2);
  ASSERT_TRUE(shares_.give_up(kToken, 1, 0).ok());
  ASSERT_TRUE(ledger_.give_back(1, 800).ok());
  holds(0, 0, 0);
  ASSERT_TRUE(ledger_.lease(3, 600).ok());
  const auto add = [&](uint8_t number, uint64_t bytes) {
    Shares::Share share;
    share.exporter = 3;
    share.bytes = bytes;
    return shares_.add(Shares::Token{number}, std::move(share), 1000) != nullptr;
  };
  EXPECT_FALSE(add(4, 401));
  EXPECT_FALSE(add(4, UINT64_MAX));
  EXPECT_TRUE(add(4, 400));
  EXPECT_FALSE(add(5, 1));
  shares_.close(kToken, 2);
  EXPECT_EQ(shares_.bytes(), 400u);
  EXPECT_TRUE(add(5, 600));
  EXPECT_EQ(Shares::most_bytes(UINT64_MAX), UINT64_MAX);
}

// It may be large: not in the loop.
TEST_F(SharesTest, TheLastCloseOfAFileIsLeftToOthers) {
  const auto add = [&](uint8_t number) {
    Shares::Share share;
    share.exporter = 1;
    share.bytes = 1;
    share.file.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const int fd = share.file.get();
    EXPECT_NE(shares_.add(Shares::Token{number}, std::move(share), 1000), nullptr);
    return fd;
  };
  const int freed = add(4), kept = add(5), left = add(6);
  ASSERT_TRUE(shares_.give_up(Shares::Token{4}, 1, 0).ok());
  EXPECT_EQ(closed_, std::vector{freed});
  shares_.open(Shares::Token{5}, 2);
  shares_.session_ends(1);
  EXPECT_EQ(closed_, (std::vector{freed, left}));
  shares_.session_ends(2);
  EXPECT_EQ(closed_, (std::vector{freed, left, kept}));
}

}  // namespace
}  // namespace sluice::core
