// SPDX-License-Identifier: Apache-2.0
// The byte ring: order and contents under load, wake-ups, and a peer that lies about everything.
#include "mediator/ring/ring.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/ring/wait.h"
#include "mediator/ring/wait_forecast.h"

namespace sluice {
namespace {

struct RingFixture {
  explicit RingFixture(uint32_t size = 4096) : data(size), bytes(size) {}
  RingMemory memory() { return {&indices, data.data(), bytes}; }
  sluice_ring indices{};
  std::vector<std::byte> data;
  uint32_t bytes;
};

std::vector<std::byte> pattern(size_t n, uint64_t seed) {
  std::vector<std::byte> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>((seed * 31 + i * 7) & 0xff);
  return v;
}

TEST(Ring, CarriesRecordsInOrderAcrossTheEnd) {
  RingFixture f;
  RingProducer producer(f.memory(), {});
  RingConsumer consumer(f.memory(), {});
  RecordBuffer got;
  std::mt19937 random(1);
  for (uint64_t i = 1; i <= 2000; ++i) {
    const auto body = pattern(random() % 700, i);
    sluice_record record{};
    record.call_id = i;
    record.opcode = static_cast<uint16_t>(i);
    ASSERT_TRUE(producer.push(record, body));
    EXPECT_EQ(consumer.pop(got), Pop::kEmpty) << "seen before it was published";
    producer.publish();
    ASSERT_EQ(consumer.pop(got), Pop::kRecord);
    EXPECT_EQ(got.record().call_id, i);
    ASSERT_GE(got.body().size(), body.size());
    EXPECT_TRUE(std::equal(body.begin(), body.end(), got.body().begin()));
    for (size_t k = body.size(); k < got.body().size(); ++k)
      EXPECT_EQ(got.body()[k], std::byte{0}) << "padding carries old bytes";
  }
  EXPECT_EQ(consumer.pop(got), Pop::kEmpty);
}

TEST(Ring, IsFullUntilRoomIsGivenBack) {
  RingFixture f;
  RingProducer producer(f.memory(), {});
  RingConsumer consumer(f.memory(), {});
  sluice_record record{};
  int pushed = 0;
  while (producer.push(record)) ++pushed;
  EXPECT_EQ(pushed, 4096 / 32);
  EXPECT_FALSE(producer.broken());
  EXPECT_TRUE(producer.arm_space(32));
  producer.disarm_space();
  producer.publish();
  RecordBuffer got;
  for (int i = 0; i < pushed; ++i) ASSERT_EQ(consumer.pop(got), Pop::kRecord);
  ASSERT_EQ(consumer.pop(got), Pop::kEmpty);
  EXPECT_FALSE(producer.arm_space(32)) << "there is room already";
  EXPECT_EQ(f.indices.space_armed, 0u);
  EXPECT_TRUE(producer.push(record));
}

TEST(Ring, RingsOnlyIfTheConsumerSleeps) {
  RingFixture f;
  Fd bell(::eventfd(0, EFD_NONBLOCK));
  RingProducer producer(f.memory(), Bell::for_eventfd(bell.get()));
  RingConsumer consumer(f.memory(), {});
  producer.push(sluice_record{});
  EXPECT_FALSE(producer.publish());
  EXPECT_FALSE(drain_eventfd(bell.get()));
  EXPECT_FALSE(consumer.arm()) << "must not sleep on a record";
  RecordBuffer got;
  ASSERT_EQ(consumer.pop(got), Pop::kRecord);
  EXPECT_TRUE(consumer.arm());
  producer.push(sluice_record{});
  EXPECT_TRUE(producer.publish());
  EXPECT_TRUE(drain_eventfd(bell.get()));
  consumer.disarm();
  ASSERT_EQ(consumer.pop(got), Pop::kRecord);
}

TEST(Ring, StoresTheDoorbellValue) {
  volatile uint32_t reg = 0;
  Bell::for_mmio(&reg, 0x20003).ring();
  EXPECT_EQ(reg, 0x20003u);
}

// Both ends sleep and wake over and over, with a ring so small that it is often full.
TEST(Ring, LosesNoWakeUpBetweenTwoThreads) {
  constexpr uint64_t kRecords = 60000;
  RingFixture f(2048);
  Fd to_consumer(::eventfd(0, EFD_NONBLOCK)), to_producer(::eventfd(0, EFD_NONBLOCK));
  auto sleep_on = [](int fd) {
    pollfd p{fd, POLLIN, 0};
    // A lost wake-up would sleep for good; the limit turns that into a failure.
    const int n = ::poll(&p, 1, 60000);
    drain_eventfd(fd);
    return n == 1;
  };
  std::atomic<bool> lost{false};
  std::thread producing([&] {
    RingProducer producer(f.memory(), Bell::for_eventfd(to_consumer.get()));
    std::mt19937 random(2);
    Spinner spinner(5);
    for (uint64_t i = 1; i <= kRecords && !lost; ++i) {
      sluice_record record{};
      record.call_id = i;
      const auto body = pattern(random() % 300, i);
      while (!producer.push(record, body)) {
        if (producer.arm_space(record_bytes(body.size()))) {
          if (!sleep_on(to_producer.get())) lost = true;
          producer.disarm_space();
        }
        if (lost) return;
      }
      if (random() % 3 == 0) producer.publish();
    }
    producer.publish();
  });
  RingConsumer consumer(f.memory(), Bell::for_eventfd(to_producer.get()));
  RecordBuffer got;
  std::mt19937 random(2);
  Spinner spinner(5);
  uint64_t seen = 0;
  while (seen < kRecords && !lost) {
    const Pop pop = consumer.pop(got);
    ASSERT_NE(pop, Pop::kBroken) << consumer.broken_reason();
    if (pop == Pop::kEmpty) {
      if (spinner.spin([&] { return consumer.readable(); })) continue;
      if (consumer.arm()) {
        if (!sleep_on(to_consumer.get())) lost = true;
        consumer.disarm();
      }
      continue;
    }
    ++seen;
    ASSERT_EQ(got.record().call_id, seen);
    const auto body = pattern(random() % 300, seen);
    ASSERT_TRUE(std::equal(body.begin(), body.end(), got.body().begin()));
    random();  // the producer's coin
  }
  producing.join();
  EXPECT_FALSE(lost);
  EXPECT_EQ(seen, kRecords);
}

// ---- a hostile peer ----

Pop pop_with_head(RingFixture& f, uint64_t head) {
  RingConsumer consumer(f.memory(), {});
  f.indices.head = head;
  RecordBuffer got;
  return consumer.pop(got);
}

TEST(HostileRing, HeadOutOfRange) {
  for (uint64_t head : {uint64_t{4096 + 32}, uint64_t{8192}, ~uint64_t{0}, uint64_t{1} << 63,
                        uint64_t{33}, uint64_t{7}}) {
    RingFixture f;
    EXPECT_EQ(pop_with_head(f, head), Pop::kBroken) << head;
  }
}

TEST(HostileRing, HeadGoesBack) {
  RingFixture f;
  RingProducer producer(f.memory(), {});
  RingConsumer consumer(f.memory(), {});
  for (int i = 0; i < 4; ++i) producer.push(sluice_record{});
  producer.publish();
  RecordBuffer got;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(consumer.pop(got), Pop::kRecord);
  f.indices.head = 64;
  EXPECT_EQ(consumer.pop(got), Pop::kBroken);
  EXPECT_TRUE(consumer.broken());
  f.indices.head = 128;
  EXPECT_EQ(consumer.pop(got), Pop::kBroken) << "broken is for good";
}

TEST(HostileRing, RecordLengths) {
  auto with_length = [](uint32_t bytes, uint16_t flags, uint64_t head) {
    RingFixture f;
    auto* record = reinterpret_cast<sluice_record*>(f.data.data());
    record->bytes = bytes;
    record->flags = flags;
    return pop_with_head(f, head);
  };
  EXPECT_EQ(with_length(32, 0, 64), Pop::kRecord);
  for (uint32_t bytes :
       {0u, 1u, 31u, 33u, 96u, 4096u, 4128u, 0x80000000u, 0xffffffe0u, 0xffffffffu})
    EXPECT_EQ(with_length(bytes, 0, 64), Pop::kBroken) << bytes;
  // A filler may only end the ring.
  EXPECT_EQ(with_length(64, SLUICE_RECORD_PAD, 64), Pop::kBroken);
  EXPECT_EQ(with_length(4096, SLUICE_RECORD_PAD, 4096), Pop::kEmpty);
}

TEST(HostileRing, RecordLongerThanTheLimit) {
  RingFixture f(4 * SLUICE_RECORD_MAX_BYTES);
  reinterpret_cast<sluice_record*>(f.data.data())->bytes = SLUICE_RECORD_MAX_BYTES + 32;
  EXPECT_EQ(pop_with_head(f, 2 * SLUICE_RECORD_MAX_BYTES), Pop::kBroken);
}

TEST(HostileRing, TailJumps) {
  for (uint64_t tail : {uint64_t{64}, uint64_t{1}, ~uint64_t{31}, uint64_t{1} << 40}) {
    RingFixture f;
    RingProducer producer(f.memory(), {});
    producer.push(sluice_record{});
    producer.publish();
    f.indices.tail = tail;
    EXPECT_FALSE(producer.arm_space(2048));
    EXPECT_TRUE(producer.broken()) << tail;
    EXPECT_EQ(producer.reserve(32), nullptr);
  }
}

// The peer rewrites the header and the index as fast as it can while we pop. Whatever is read must
// be in bounds: the sanitizer builds would tell, and every record given out must be consistent.
TEST(HostileRing, RecordsThatChangeWhileTheyAreRead) {
  RingFixture f;
  std::atomic<bool> stop{false};
  std::thread hostile([&] {
    std::mt19937 random(3);
    auto words = reinterpret_cast<uint32_t*>(f.data.data());
    while (!stop) {
      std::atomic_ref<uint32_t>(words[(random() % 128) * 8])
          .store(random() % 2 ? static_cast<uint32_t>(random()) : (random() % 64) * 32);
      std::atomic_ref<uint64_t>(f.indices.head).store((random() % 160) * 32);
    }
  });
  uint64_t broken = 0;
  RecordBuffer got;
  // Until enough has gone wrong: how fast that is, is the scheduler's affair.
  while (broken < 5000) {
    RingConsumer consumer(f.memory(), {});
    for (int i = 0; i < 8; ++i) {
      const Pop pop = consumer.pop(got);
      if (pop == Pop::kBroken) {
        ++broken;
        break;
      }
      if (pop == Pop::kEmpty) continue;
      ASSERT_EQ(got.record().bytes, got.bytes());
      ASSERT_LE(got.bytes(), 4096u);
      ASSERT_EQ(got.bytes() % 32, 0u);
    }
  }
  stop = true;
  hostile.join();
}

}  // namespace

// How often a wait of `spinner` polls, if nothing comes until it sleeps, and then after `slept_ns`.
// ---- forecasts of waits ----

TEST(WaitForecast, PollsAroundTheEndOfWaitsThatTakeTheSame) {
  WaitForecast forecast;
  EXPECT_EQ(forecast.plan(0).sleep_ns, 0u) << "nothing is known";
  forecast.took(5'000'000);
  EXPECT_EQ(forecast.plan(0).sleep_ns, 0u) << "one may be chance";
  forecast.took(5'100'000);
  const auto plan = forecast.plan(200'000);
  EXPECT_EQ(plan.sleep_ns, 5'100'000u - 300'000 - 200'000);
  EXPECT_EQ(plan.poll_ns, 600'000u);
  EXPECT_EQ(forecast.plan(4'900'000).sleep_ns, 0u) << "it is too late to sleep";
  EXPECT_EQ(forecast.plan(4'900'000).poll_ns, 500'000u);
  EXPECT_EQ(forecast.plan(5'400'000).poll_ns, 0u) << "it took longer";
  forecast.took(9'000'000);
  EXPECT_EQ(forecast.plan(0).poll_ns, 0u) << "they differ again";
}

// The end is near once a spin was in vain: a sleep would outlast it.
TEST(WaitForecast, PollsOnForShortWaits) {
  WaitForecast forecast;
  forecast.took(300'000), forecast.took(300'000);
  EXPECT_EQ(forecast.expected_ns(), 300'000u);
  const auto plan = forecast.plan(200'000);
  EXPECT_EQ(plan.sleep_ns, 0u);
  EXPECT_EQ(plan.poll_ns, 300'000u + 120'000 - 200'000);
}

TEST(WaitForecast, PollsForALimitedTime) {
  for (uint64_t ns = 1; ns < UINT64_C(1) << 40; ns = ns * 3 + 1) {
    WaitForecast forecast;
    forecast.took(ns), forecast.took(ns);
    const auto plan = forecast.plan(0);
    EXPECT_LE(plan.poll_ns, std::max<uint64_t>(ns / 4, 290'000)) << ns;
    EXPECT_LE(plan.poll_ns, 600'000u) << ns;
    EXPECT_LT(plan.sleep_ns, ns) << ns;
    EXPECT_EQ(plan.poll_ns != 0, forecast.expected_ns() != 0) << ns;
  }
}

int looks_in_vain(Spinner& spinner, uint64_t slept_ns) {
  int polls = 0;
  EXPECT_FALSE(spinner.spin([&] {
    ++polls;
    return false;
  }));
  spinner.slept(slept_ns);
  return polls;
}

TEST(Spinner, StandsAsideWhereThePeerComesOnlyOnceItSleeps) {
  Spinner spinner(50);
  EXPECT_GT(looks_in_vain(spinner, 3000), 1);
  EXPECT_GT(looks_in_vain(spinner, 3000), 1);  // the second time is no chance
  int aside = 0;
  while (looks_in_vain(spinner, 3000) == 1) ASSERT_LT(++aside, 1000);
  EXPECT_GE(aside, 4);
  // That was a trial in vain: aside again, for longer.
  int again = 0;
  while (looks_in_vain(spinner, 3000) == 1) ASSERT_LT(++again, 1000);
  EXPECT_GT(again, aside);
  // The trial that finds something ends it.
  for (;;) {
    int polls = 0;
    if (spinner.spin([&] { return ++polls == 4; })) break;
    spinner.slept(3000);
  }
  EXPECT_GT(looks_in_vain(spinner, 3000), 1);
}

TEST(Spinner, SpinsUntilATimeHoweverOftenThatWasInVain) {
  int polls = 0;
  EXPECT_FALSE(Spinner::spin_until(monotonic_ns(), [&] { return ++polls > 0; })) << "it is over";
  EXPECT_EQ(polls, 0);
  EXPECT_TRUE(Spinner::spin_until(UINT64_MAX, [&] { return ++polls == 1000; }));
  const uint64_t until_ns = monotonic_ns() + 1000;
  EXPECT_FALSE(Spinner::spin_until(until_ns, [] { return false; }));
  EXPECT_GE(monotonic_ns(), until_ns);
}

TEST(Spinner, StandsAsideNoLongerThanSleepsAreShort) {
  Spinner spinner(50);
  looks_in_vain(spinner, 3000);
  looks_in_vain(spinner, 3000);
  EXPECT_EQ(looks_in_vain(spinner, 3000), 1);
  EXPECT_EQ(looks_in_vain(spinner, 250'000), 1);  // so the peer was not kept from anything
  EXPECT_GT(looks_in_vain(spinner, 3000), 1);
}

TEST(Spinner, DoesNotStandAsideForWhatWasLongInComing) {
  Spinner spinner(5);
  for (int i = 0; i < 20; ++i) EXPECT_GT(looks_in_vain(spinner, 40000), 1);
  // Nor after one that came at once.
  EXPECT_GT(looks_in_vain(spinner, 3000), 1);
  for (int i = 0; i < 20; ++i) EXPECT_GT(looks_in_vain(spinner, 40000), 1);
}

TEST(Spinner, WithoutABudgetLooksOnce) {
  Spinner spinner(0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(looks_in_vain(spinner, 3000), 1);
  spinner.set_budget(50);
  EXPECT_GT(looks_in_vain(spinner, 3000), 1);
  spinner.set_budget(0);
  EXPECT_EQ(looks_in_vain(spinner, 3000), 1);
}

}  // namespace sluice
