// SPDX-License-Identifier: Apache-2.0
// The parts of a sluice-worker's session, each by itself: calls that wait, jobs, the slot's header,
// what may be queued, what the decoder knows of its streams, who polls, and the end word.
#include <sys/eventfd.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "mediator/base/unix_socket.h"
#include "mediator/worker/session/end_word.h"
#include "mediator/worker/session/job_queue.h"
#include "mediator/worker/session/outlook.h"
#include "mediator/worker/session/pollers.h"
#include "mediator/worker/session/polling.h"
#include "mediator/worker/session/queue_bounds.h"
#include "mediator/worker/session/slot_header.h"
#include "mediator/worker/session/waiting_calls.h"

namespace sluice::worker {
namespace {

TEST(WaitingCalls, EachIsCompletedOnce) {
  WaitingCalls w;
  int calls = 0;
  CUresult with = CUDA_SUCCESS;
  const uint64_t token = w.add([&](CUresult status) {
    ++calls;
    with = status;
  });
  EXPECT_EQ(w.calls(), 1u);
  w.complete(token + 1, CUDA_SUCCESS);
  EXPECT_EQ(calls, 0);
  w.complete(token, CUDA_ERROR_UNKNOWN);
  w.complete(token, CUDA_SUCCESS);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(with, CUDA_ERROR_UNKNOWN);
  EXPECT_TRUE(w.empty());
  EXPECT_EQ(w.calls(), 0u);
}

TEST(WaitingCalls, TheWorkersOwnAreNoCalls) {
  WaitingCalls w;
  bool done = false;
  const uint64_t token = w.add_own([&](CUresult) { done = true; });
  EXPECT_EQ(w.calls(), 0u);
  EXPECT_FALSE(w.empty());
  w.complete(token, CUDA_SUCCESS);
  EXPECT_TRUE(done && w.empty());
  EXPECT_EQ(w.calls(), 0u);
}

TEST(WaitingCalls, AHostFunctionsIdIsTakenUntilItHasRun) {
  WaitingCalls w;
  EXPECT_TRUE(w.add_host_function(7, 100));
  EXPECT_FALSE(w.add_host_function(7, 101));
  EXPECT_EQ(w.host_function(7), 100u);
  EXPECT_EQ(w.host_function(8), std::nullopt);
  w.remove_host_function(7);
  EXPECT_TRUE(w.add_host_function(7, 102));
}

TEST(JobQueue, KeepsTheirOrderAndSaysWhenItIsFull) {
  JobQueue q;
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) q.post([&ran, i] { ran.push_back(i); });
  bool stopped = false;
  EXPECT_FALSE(q.full(4, [&] { stopped = true; }));
  EXPECT_FALSE(stopped);
  EXPECT_TRUE(q.full(3, [&] { stopped = true; }));
  EXPECT_TRUE(stopped);
  Spinner spinner(0);
  for (int i = 0; i < 3; ++i) q.take(spinner, std::chrono::hours(1)).value()();
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2}));
  EXPECT_FALSE(q.take(spinner, std::chrono::nanoseconds(1)).has_value());
}

bool rung(int bell) {
  uint64_t n = 0;
  return ::read(bell, &n, sizeof n) == sizeof n;
}

TEST(SlotHeader, TheFirstReasonStays) {
  const Fd wake = *make_eventfd();
  sluice_slot_header header{};
  SlotHeader slot(&header, wake.get());
  EXPECT_TRUE(slot.end(CUDA_ERROR_UNKNOWN, std::string(1000, 'x')));
  EXPECT_TRUE(rung(wake.get()));
  EXPECT_FALSE(slot.end(CUDA_ERROR_OUT_OF_MEMORY, "late"));
  EXPECT_FALSE(rung(wake.get()));
  EXPECT_EQ(header.state, uint32_t{SLUICE_SLOT_ENDED});
  EXPECT_EQ(header.error, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(std::strlen(header.reason), sizeof header.reason - 1);
}

TEST(SlotHeader, WakesAProgramThatMayGoOn) {
  const Fd wake = *make_eventfd();
  sluice_slot_header header{};
  SlotHeader slot(&header, wake.get());
  slot.hold(true);
  EXPECT_EQ(header.hold, 1u);
  EXPECT_FALSE(rung(wake.get()));
  slot.hold(false);
  EXPECT_EQ(header.hold, 0u);
  EXPECT_TRUE(rung(wake.get()));
}

TEST(SlotHeader, FunctionsTakeTurnsInOnePlace) {
  sluice_slot_header header{};
  SlotHeader slot(&header, -1);
  constexpr uint64_t kFirst = 3, kSecond = 3 + SLUICE_WANTED_CLONES;
  slot.want_clones(kFirst);
  slot.want_clones(kSecond);
  EXPECT_EQ(header.wanted_clones[3], kFirst);
  for (int i = 0; i < 7; ++i) slot.want_clones(kSecond);
  EXPECT_EQ(header.wanted_clones[3], kSecond);
}

TEST(QueueBounds, StopsTheDecoderOrHoldsTheProgram) {
  QueueBounds bounds(64, 256);
  QueueBounds::Queued q{.operations = 63};
  EXPECT_FALSE(bounds.full(q));
  q.operations = 64;
  EXPECT_TRUE(bounds.full(q));
  EXPECT_EQ(bounds.follow_hold(q), std::nullopt) << "nothing waits for the program";
  q.waits_for_program = true;
  EXPECT_EQ(bounds.follow_hold(q), true);
  EXPECT_EQ(bounds.follow_hold(q), std::nullopt);
  q.operations = 56;
  EXPECT_EQ(bounds.follow_hold(q), std::nullopt);
  q.operations = 55;
  EXPECT_EQ(bounds.follow_hold(q), false);
  EXPECT_FALSE(bounds.resume_decoder());
  bounds.stop_decoder();
  EXPECT_TRUE(bounds.resume_decoder());
  EXPECT_FALSE(bounds.resume_decoder());
}

TEST(QueueBounds, BytesCountAsOperationsDo) {
  QueueBounds bounds(64, 256);
  const std::vector<std::byte> body(1000);
  {
    const KeptBody kept(bounds, body);
    EXPECT_EQ(bounds.bytes, 1000u);
  }
  EXPECT_EQ(bounds.bytes, 0u);
  EXPECT_FALSE(bounds.full({}));
  bounds.bytes = kQueuedParameterBytes;
  EXPECT_TRUE(bounds.full({}));
  EXPECT_TRUE(bounds.breach({}).empty());
  bounds.bytes = kMostParameterBytes;
  EXPECT_FALSE(bounds.breach({}).empty());
}

TEST(QueueBounds, TheHardBoundAndRefusedMemoryEndTheSession) {
  QueueBounds bounds(1u << 16, 1u << 18);
  EXPECT_TRUE(bounds.breach({.operations = (1u << 18) - 1}).empty());
  EXPECT_FALSE(bounds.breach({.operations = 1u << 18}).empty());
  EXPECT_FALSE(bounds.full({.operations = kRefusedOperations}));
  EXPECT_TRUE(bounds.full({.operations = kRefusedOperations, .memory_refused = true}));
  EXPECT_FALSE(bounds.breach({.memory_refused = true}).empty());
}

// One wait of the program, from `from_ns` to `to_ns`; what is expected while it lasts.
uint64_t wait(Outlook& outlook, uint64_t from_ns, uint64_t to_ns) {
  constexpr uint64_t kEngineEnd = 7;
  const auto engine_end = [] { return kEngineEnd; };
  outlook.follow(
      {.in_flight = true, .waited_for = true}, [=] { return from_ns; }, engine_end);
  const uint64_t end_ns = outlook.end_ns();
  outlook.follow(
      {.in_flight = true}, [=] { return to_ns; }, engine_end);
  return end_ns;
}

TEST(Outlook, WaitsAreExpectedToLastAsLongAsThoseBefore) {
  constexpr uint64_t kMsNs = 1'000'000;
  Outlook outlook(true), few_processors(false);
  for (const uint64_t begin : {10 * kMsNs, 20 * kMsNs, 30 * kMsNs}) {
    const uint64_t end_ns = wait(outlook, begin, begin + 5 * kMsNs);
    EXPECT_EQ(end_ns, begin < 30 * kMsNs ? 7 : begin + 5 * kMsNs);
    EXPECT_EQ(wait(few_processors, begin, begin + 5 * kMsNs), 7u);
  }
}

TEST(Outlook, AnEndIsNearWhileSomebodyWaitsAndLittleIsQueued) {
  Outlook outlook(false);
  const auto follow = [&](Outlook::Poll poll) {
    outlook.follow(
        poll, [] { return uint64_t{1}; }, [] { return uint64_t{100}; });
    return outlook.end_is_near() && outlook.end_ns() == 100;
  };
  EXPECT_TRUE(follow({.in_flight = true, .waited_for = true, .operations = 8}));
  EXPECT_TRUE(outlook.in_flight());
  EXPECT_FALSE(follow({.in_flight = true, .waited_for = true, .operations = 9}));
  EXPECT_EQ(outlook.end_ns(), 0u);
  EXPECT_FALSE(follow({.in_flight = true}));
  EXPECT_FALSE(follow({.at_gate = true, .waited_for = true}));
  EXPECT_TRUE(outlook.at_gate());
  EXPECT_FALSE(outlook.in_flight());
}

TEST(Pollers, WakesOnceWhoeverPollsAndSleepsTooLong) {
  Pollers p;
  p.wake_from(1000);
  EXPECT_FALSE(rung(p.decoder.bell())) << "it is awake";
  p.decoder_sleeps(true, 500);
  p.wake_from(1000);
  EXPECT_FALSE(rung(p.decoder.bell())) << "it will be back before";
  p.decoder_sleeps(false, kForeverNs);
  p.engine_thread.about_to_sleep(5000);
  p.wake_from(1000);
  EXPECT_FALSE(rung(p.decoder.bell()));
  EXPECT_TRUE(rung(p.engine_thread.bell()));
  p.wake_from(1000);
  EXPECT_FALSE(rung(p.engine_thread.bell()));
}

TEST(Polling, LongWaitsAreSeldomPolledAndTheirEndsSeenSoon) {
  uint64_t sleep_ns = kPollFirstNs, waited_ns = 0, polls = 0;
  for (; waited_ns < 1'000'000'000; ++polls) {
    sleep_ns = longer_sleep_ns(sleep_ns, kPollUrgentNs);
    EXPECT_LE(sleep_ns, kPollUrgentNs + waited_ns / 256);
    waited_ns += sleep_ns;
    EXPECT_TRUE(sleep_ns < 66'000 || waited_ns >= 1'000'000);
  }
  EXPECT_LT(polls, 1500u) << "20,000 of 50 us";
  EXPECT_EQ(sleep_ns, kPollLongestNs);
}

TEST(EndWord, IsPolledSeldomUntilItIsThereAndThenNotAtOnce) {
  std::vector<uint64_t> staging(64);
  auto* region = reinterpret_cast<uint8_t*>(staging.data());
  EXPECT_EQ(EndWord(region, 0, 64).address(), 0u) << "too little memory for one";
  EndWord word(region, 0, 512);
  ASSERT_EQ(word.address(), reinterpret_cast<uint64_t>(region + 512 - SLUICE_END_WORD_BYTES));
  EXPECT_FALSE(word.tells(1)) << "nothing is expected";
  word.expect(9);
  EXPECT_TRUE(word.tells(1));
  EXPECT_FALSE(word.tells(EndWord::kPollsBefore));
  *reinterpret_cast<uint32_t*>(word.address()) = 9;
  for (uint32_t i = 1; i < EndWord::kPollsBehind; ++i) EXPECT_TRUE(word.tells(i));
  EXPECT_FALSE(word.tells(0));
  EXPECT_FALSE(word.tells(1));
}

}  // namespace
}  // namespace sluice::worker
