// SPDX-License-Identifier: Apache-2.0
// A session's memory, each part by itself: what a guest may name, what it has freed, what is asked
// of sluiced, and what it pays for.
#include <sys/socket.h>

#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "abi/channel.h"
#include "mediator/worker/memory/charges.h"
#include "mediator/worker/memory/control_link.h"
#include "mediator/worker/memory/freed_memory.h"
#include "mediator/worker/memory/memory_table.h"

namespace sluice::worker {
namespace {

namespace wp = worker_protocol;

TEST(MemoryTable, AnExtentIsOwnedUpToItsLastByte) {
  MemoryTable m;
  m.add_extent(0x200000, 0x200000);
  EXPECT_TRUE(m.owns_region(0x200000, 0x200000));
  EXPECT_TRUE(m.owns_region(0x3fffff, 1));
  EXPECT_FALSE(m.owns_region(0x3fffff, 2));
  EXPECT_FALSE(m.owns_region(0x1fffff, 1));
  EXPECT_FALSE(m.owns_region(0x400000, 0));
  EXPECT_TRUE(m.owns_range(SLUICE_WINDOW_ADDRESS + 0x200000, 16));
  EXPECT_FALSE(m.owns_range(SLUICE_WINDOW_ADDRESS, 16));
}

TEST(MemoryTable, LengthsThatOverflowOwnNothing) {
  MemoryTable m;
  m.add_extent(0, 0x200000);
  ASSERT_TRUE(m.allocations.add({0x700000000, 4096, 1, 4096}));
  const uint64_t most = ~uint64_t{0};
  EXPECT_FALSE(m.owns_region(1, most));
  EXPECT_FALSE(m.owns_region(most, most));
  EXPECT_FALSE(m.owns_range(0x700000001, most));
  EXPECT_FALSE(m.owns_range(most, 2));
  EXPECT_FALSE(m.owns_rows(0x700000000, 16, most / 2, 4));
  EXPECT_TRUE(m.owns_rows(0x700000000, 16, 1024, 4));
  EXPECT_FALSE(m.owns_rows(0x700000000, 16, 1024, 5));
}

TEST(MemoryTable, AnExtentGoesOnlyAsAWhole) {
  MemoryTable m;
  m.add_extent(0x200000, 0x400000);
  EXPECT_FALSE(m.remove_extent(0x400000, 0x200000));
  EXPECT_FALSE(m.remove_extent(0x200000, 0x200000));
  EXPECT_TRUE(m.remove_extent(0x200000, 0x400000));
  EXPECT_FALSE(m.owns_region(0x200000, 1));
  EXPECT_FALSE(m.remove_extent(0x200000, 0x400000));
}

TEST(FreedMemory, IsForAllocationsOfItsSizeAndOwner) {
  constexpr uint64_t kOwner = 1, kOther = 2;
  FreedMemory freed;
  const uint64_t block = freed.add({0x1000, 800, kOwner, 1024}, 1, 100);
  EXPECT_EQ(freed.charged_bytes(), 1024u);
  EXPECT_FALSE(freed.take(kOther, 1, 800).has_value());
  EXPECT_FALSE(freed.take(kOwner, 2, 800).has_value()) << "its stream has not come there";
  EXPECT_FALSE(freed.take(kOwner, 1, 801).has_value());
  EXPECT_FALSE(freed.take(kOwner, 1, 699).has_value()) << "too large";
  EXPECT_FALSE(freed.take(kOwner, 1, 0).has_value());
  EXPECT_TRUE(freed.take_passed(1000).empty());
  freed.passed(block);
  EXPECT_TRUE(freed.take_passed(1000, 901).empty()) << "too young";
  const auto taken = freed.take(kOwner, 2, 700);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->address, 0x1000u);
  EXPECT_EQ(taken->bytes, 700u);
  EXPECT_EQ(taken->charged_bytes, 1024u);
  EXPECT_TRUE(freed.empty());
  EXPECT_EQ(freed.charged_bytes(), 0u);
  freed.passed(block);  // it has been taken
}

TEST(FreedMemory, GoesBackOnceOrWithItsOwner) {
  FreedMemory freed;
  std::vector<uint64_t> blocks;
  for (uint64_t i = 0; i < FreedMemory::kMost; ++i)
    blocks.push_back(freed.add({0x1000 * (i + 1), 512, i % 2, 512}, 1, i));
  EXPECT_EQ(freed.add({0x10, 512, 0, 512}, 1, 0), 0u) << "there are too many";
  EXPECT_EQ(freed.remove_owner(1).size(), FreedMemory::kMost / 2);
  EXPECT_FALSE(freed.has_passed());
  for (const uint64_t block : blocks) freed.passed(block);
  EXPECT_TRUE(freed.has_passed());
  EXPECT_EQ(freed.take_passed(100, 90).size(), 6u) << "of 0, 2, .. 10";
  EXPECT_EQ(freed.take_passed(0).size(), 0u) << "none is of then";
  EXPECT_EQ(freed.take_passed(1u << 20).size(), FreedMemory::kMost / 2 - 6);
  EXPECT_TRUE(freed.empty());
  EXPECT_EQ(freed.charged_bytes(), 0u);
}

class ControlLinkTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    sluiced = Fd(ends[1]);
    wp::Start start{};
    start.region_bytes = 64 * SLUICE_EXTENT_BYTES;
    start.memory_limit_bytes = 256ull << 20;
    start.host_memory_bytes = 256ull << 20;
    link.emplace(Fd(ends[0]), start, [this] { ++times_full; });
  }
  wp::Message next() {
    wp::Message m{};
    EXPECT_EQ(::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT), static_cast<ssize_t>(sizeof m));
    return m;
  }
  bool nothing_sent() {
    wp::Message m;
    return ::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT) < 0;
  }
  static wp::Message reply(wp::Type type, uint64_t request, int code) {
    wp::Message m{};
    m.type = type;
    m.request = request;
    m.code = code;
    return m;
  }
  Fd sluiced;
  int times_full = 0;
  std::optional<ControlLink> link;
};

TEST_F(ControlLinkTest, AsksForJustWhatIsLackingWhenAChunkIsRefused) {
  std::optional<bool> granted;
  link->ask_lease(wp::kDeviceMemory, 1000, [&](bool g) { granted = g; });
  const wp::Message chunk = next();
  EXPECT_EQ(chunk.type, wp::Type::kLeaseRequest);
  EXPECT_GT(chunk.bytes, 1000u);
  EXPECT_FALSE(link->on_lease_reply(reply(wp::Type::kLeaseReply, chunk.request, 1)));
  const wp::Message just = next();
  EXPECT_EQ(just.bytes, 1000u);
  const auto ready = link->on_lease_reply(reply(wp::Type::kLeaseReply, just.request, 0));
  ASSERT_TRUE(ready);
  ready();
  EXPECT_EQ(granted, true);
  EXPECT_EQ(link->device().leased_bytes(), 1000u);
  EXPECT_EQ(link->host().leased_bytes(), 0u);
}

TEST_F(ControlLinkTest, IgnoresAReplyThatNobodyWaitsForOrThatCameBefore) {
  EXPECT_FALSE(link->on_lease_reply(reply(wp::Type::kLeaseReply, 77, 0)));
  EXPECT_FALSE(link->on_extent_reply(reply(wp::Type::kExtentReply, 77, 0)));
  int calls = 0;
  link->ask_lease(wp::kHostMemory, 1, [&](bool) { ++calls; });
  const wp::Message m = next();
  const auto ready = link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, 0));
  ASSERT_TRUE(ready);
  ready();
  EXPECT_FALSE(link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, 0)));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(link->host().leased_bytes(), m.bytes);
}

TEST_F(ControlLinkTest, TakesNoRangeThatIsNotOfItsRegion) {
  const auto lent = [&](uint64_t offset, uint64_t bytes) {
    std::optional<sluice_bulk> range;
    link->ask_extent(SLUICE_EXTENT_BYTES, [&](std::optional<sluice_bulk> r) { range = r; });
    wp::Message m = reply(wp::Type::kExtentReply, next().request, 0);
    m.offset = offset;
    m.bytes = bytes;
    link->on_extent_reply(m)();
    return range.has_value();
  };
  EXPECT_TRUE(lent(0, SLUICE_EXTENT_BYTES));
  EXPECT_TRUE(lent(63ull * SLUICE_EXTENT_BYTES, SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(63ull * SLUICE_EXTENT_BYTES, 2ull * SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(64ull * SLUICE_EXTENT_BYTES, SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(1, SLUICE_EXTENT_BYTES));
  EXPECT_FALSE(lent(0, 0));
  EXPECT_FALSE(lent(SLUICE_EXTENT_BYTES, ~uint64_t{0}));
}

TEST_F(ControlLinkTest, RefusesEverythingOnceSluicedIsGone) {
  int refused = 0;
  link->ask_lease(wp::kDeviceMemory, 1, [&](bool granted) { refused += granted ? 0 : 1; });
  link->ask_extent(1, [&](std::optional<sluice_bulk> range) { refused += range ? 0 : 1; });
  sluiced = Fd();
  wp::Message m;
  EXPECT_EQ(link->receive(&m), ControlLink::Received::kLost);
  EXPECT_TRUE(link->lost());
  for (const auto& refuse : link->refuse_all()) refuse();
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(link->leases_waiting() + link->extents_waiting(), 0u);
  EXPECT_TRUE(link->refuse_all().empty());
}

// A request that is lost is never answered, and what is given back in vain is the vGPU's no more.
TEST_F(ControlLinkTest, WhatTheSocketDoesNotTakeIsSentLater) {
  constexpr uint64_t kRequests = 1000, kMiB = 1u << 20;
  for (uint64_t i = 0; i < kRequests; ++i) link->ask_extent(SLUICE_EXTENT_BYTES, [](auto) {});
  link->device().leased(kRequests * kMiB);
  ASSERT_TRUE(link->device().charge(kRequests * kMiB));
  for (uint64_t i = 0; i < kRequests; ++i) link->release_device(kMiB, ChargeKind::kAllocations);
  EXPECT_EQ(times_full, 1);
  ASSERT_TRUE(link->full());
  uint64_t requests = 0, given_back = 0;
  for (wp::Message m; requests < kRequests || link->full(); link->flush()) {
    while (::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT) > 0) {
      if (m.type == wp::Type::kLeaseReturn)
        given_back += m.bytes;
      else
        EXPECT_EQ(m.request, ++requests) << "in order";
    }
  }
  for (wp::Message m; ::recv(sluiced.get(), &m, sizeof m, MSG_DONTWAIT) > 0;) given_back += m.bytes;
  EXPECT_EQ(given_back + link->device().leased_bytes(), kRequests * kMiB);
}

TEST_F(ControlLinkTest, AMessageOfAnotherLengthIsNoMessage) {
  wp::Message m;
  EXPECT_EQ(link->receive(&m), ControlLink::Received::kNothing);
  ASSERT_EQ(::send(sluiced.get(), "x", 1, 0), 1);
  EXPECT_EQ(link->receive(&m), ControlLink::Received::kMalformed);
  EXPECT_FALSE(link->lost());
}

TEST_F(ControlLinkTest, ReturnsWhatIsBeyondOneUnusedChunk) {
  link->ask_lease(wp::kDeviceMemory, 100ull << 20, [](bool) {});
  const wp::Message m = next();
  link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, 0))();
  ASSERT_TRUE(link->device().charge(100ull << 20, ChargeKind::kAllocations));
  link->release_device(1, ChargeKind::kAllocations);
  EXPECT_TRUE(nothing_sent());
  link->release_device((100ull << 20) - 1, ChargeKind::kAllocations);
  const wp::Message back = next();
  EXPECT_EQ(back.type, wp::Type::kLeaseReturn);
  EXPECT_EQ(back.code, wp::kDeviceMemory);
  EXPECT_EQ(link->device().leased_bytes(), m.bytes - back.bytes);
}

class ChargesTest : public ControlLinkTest, private Charges::Owner {
 protected:
  void SetUp() override {
    ControlLinkTest::SetUp();
    charges.emplace(static_cast<Charges::Owner&>(*this),
                    Charges::Parts{mutex, *link, handles, memory},
                    Charges::Limits{64ull << 20, 64ull << 20, true, 2});
  }
  // sluiced answers the oldest request; then the jobs run.
  void answer(bool grants) {
    for (wp::Message m = next();; m = next()) {
      if (const auto ready = link->on_lease_reply(reply(wp::Type::kLeaseReply, m.request, !grants)))
        return ready(), run_jobs();
    }
  }
  void run_jobs() {
    for (const auto& job : std::exchange(jobs, {})) job();
  }
  // How with_device_memory() went; nothing: it waits.
  std::optional<bool> take(uint64_t bytes) {
    auto charged = std::make_shared<std::optional<bool>>();
    charges->with_device_memory(bytes, ChargeKind::kAllocations,
                                [charged](bool so) { *charged = so; });
    last = charged;
    return *charged;
  }

  std::mutex mutex;
  HandleTable handles;
  MemoryTable memory;
  std::vector<std::function<void()>> jobs;
  std::shared_ptr<std::optional<bool>> last;
  int freed = 0, too_many = 0, held_answers = 0;
  std::optional<Charges> charges;

 private:
  void release_freed_memory() override {
    for (const Allocation& a : memory.freed.take_passed(1)) charges->release_allocation(a);
    ++freed;
  }
  void on_too_many_parked() override { ++too_many; }
  void post_job(std::function<void()> job) override { jobs.push_back(std::move(job)); }
  void on_held_answered(bool) override { ++held_answers; }
};

TEST_F(ChargesTest, AsksOnceAndGoesOnAsAJob) {
  EXPECT_EQ(take(1000), std::nullopt);
  answer(true);
  EXPECT_EQ(*last, true);
  EXPECT_EQ(link->device().used_bytes(), 1024u);
  EXPECT_EQ(take(1000), true) << "the lease holds it";
  EXPECT_TRUE(nothing_sent());
  charges->release_device(2048);
  EXPECT_EQ(link->device().used_bytes(), 0u);
}

TEST_F(ChargesTest, WhatIsRefusedIsNotCharged) {
  EXPECT_EQ(take(1000), std::nullopt);
  answer(false);
  EXPECT_EQ(*last, false);
  EXPECT_EQ(take((64ull << 20) + 1), false) << "more than the vGPU has";
  EXPECT_EQ(take(~uint64_t{0}), false) << "overflows";
  EXPECT_EQ(link->device().used_bytes(), 0u);
  EXPECT_TRUE(nothing_sent());
}

TEST_F(ChargesTest, FreedMemoryGoesBackBeforeSluicedIsAsked) {
  take(1 << 20);
  answer(true);
  ASSERT_EQ(take((63ull << 20)), std::nullopt);
  answer(true);
  const uint64_t block = memory.freed.add({0x1000, 1 << 20, 1, 1 << 20}, 1, 0);
  memory.freed.passed(block);
  EXPECT_EQ(take(1 << 20), std::nullopt);
  EXPECT_TRUE(nothing_sent());
  run_jobs();  // frees, and tries again by a job
  run_jobs();
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(*last, true);
  EXPECT_EQ(link->device().used_bytes(), 64ull << 20);
}

TEST_F(ChargesTest, WithoutSluicedAndBeyondTheBoundNothingIsGiven) {
  take(1 << 20), take(1 << 20);
  EXPECT_EQ(too_many, 0);
  take(1 << 20);
  EXPECT_EQ(too_many, 1);
  sluiced = Fd();
  wp::Message m;
  while (link->receive(&m) == ControlLink::Received::kMessage) continue;
  ASSERT_TRUE(link->lost());
  EXPECT_EQ(take(1 << 20), std::nullopt);
  run_jobs(), run_jobs();
  EXPECT_EQ(*last, false);
}

TEST_F(ChargesTest, LeaveToLoadIsAskedForEachTime) {
  int given = 0;
  for (int i = 1; i <= 2; ++i) {
    charges->with_leave_to_load([&](bool leave) { given += leave; });
    EXPECT_EQ(given, i - 1);
    answer(true);
    EXPECT_EQ(given, i);
  }
}

TEST_F(ChargesTest, HeldMemoryIsRefusedUntilLessIsHeld) {
  constexpr uint64_t kMany = 32ull << 20;
  charges->charge_held(0, 0);
  EXPECT_TRUE(nothing_sent()) << "some is free";
  charges->charge_held(0, kMany);
  charges->charge_held(0, kMany);
  answer(false);
  EXPECT_EQ(held_answers, 1);
  EXPECT_TRUE(charges->held_is_refused());
  charges->charge_held(0, 0);
  EXPECT_FALSE(charges->held_is_refused());
  EXPECT_EQ(link->host().used_bytes(), 0u);
}

TEST_F(ChargesTest, APoolThatCannotPayNowAsksForLater) {
  ContextObject c;
  EXPECT_FALSE(charges->pay_pool(c, 4096));
  EXPECT_FALSE(charges->pay_pool(c, 4096)) << "and asks once";
  answer(true);
  EXPECT_TRUE(nothing_sent());
  EXPECT_TRUE(charges->pay_pool(c, 4096));
  EXPECT_EQ(c.charged.own, 4096u);
  charges->release_context(c);
  EXPECT_EQ(c.charged.own, 0u);
  EXPECT_EQ(link->device().used_bytes(), 0u);
}

}  // namespace
}  // namespace sluice::worker
