// SPDX-License-Identifier: Apache-2.0
// What a worker that was taken over may say to sluiced over its control socket: any message, in any
// order, of any length, with descriptors, and answers that it does not read. Nothing of it is left,
// and the session of another vGPU goes on.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stdexcept>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/io/loop_budget.h"
#include "tests/support/rounds.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

size_t descriptors() {
  const std::filesystem::directory_iterator fds("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

class WorkerMessages : public DaemonTest {
 protected:
  WorkerMessages() {
    config_.back_off = false;
    config_.session_end_ms = 600'000;  // longer than a test's patience
    start();
    create("a", 64 * kMiB);
    create("b", 64 * kMiB);
  }
  std::unique_ptr<LocalProgram> joined(const std::string& vgpu) {
    auto p = std::make_unique<LocalProgram>(daemon_->find(vgpu)->spec().local_socket);
    p->send_join();
    EXPECT_TRUE(run_until([&] { return p->joined(); }));
    if (!p->has_answer() || p->answer().status != 0)
      throw std::runtime_error(p->has_answer() ? p->answer().reason : "no answer to the join");
    return p;
  }
  // Nothing: its session is over.
  std::optional<fake::Reply> ask(LocalProgram& p, fake::What what, uint64_t a = 0, uint64_t b = 0) {
    p.command(what, a, b);
    std::optional<fake::Reply> r;
    EXPECT_TRUE(run_until(
        [&] { return (r = p.reply()).has_value() || p.slot_state() == SLUICE_SLOT_ENDED; }));
    return r;
  }
  void expect_all_free(const std::string& vgpu) {
    VgpuServer& v = *daemon_->find(vgpu);
    EXPECT_TRUE(run_until([&] { return v.sessions().empty(); }));
    EXPECT_EQ(v.memory_used_bytes(), 0u);
    EXPECT_TRUE(run_until([&] { return v.shared_memory().used_bytes == 0; }));
  }
};

// Nobody can tell it to leave the GPU any more, so it is not given the time of an orderly end.
TEST_F(WorkerMessages, WhoHangsUpOrSaysThatItEndsAndStaysIsKilled) {
  auto hangs_up = joined("a"), says_so = joined("a");
  hangs_up->command(fake::kHangUp);
  says_so->command(fake::kHangUp, 700);
  EXPECT_TRUE(run_until([&] { return daemon_->find("a")->sessions().empty(); }));
  EXPECT_EQ(daemon_->find("a")->penalty().forced_ends(), 1u) << "who has hung up did so unasked";
}

// Each is a descriptor of sluiced's on its way, of which the kernel lets a user have no more than
// it may open: workers that read none would keep all others from starting.
TEST_F(WorkerMessages, UnreadAnswersHoldFewDescriptors) {
  constexpr uint64_t kOften = 150;
  auto exporter = joined("a"), importer = joined("a");
  ASSERT_EQ(ask(*exporter, fake::kLease, kMiB)->a, 0u);
  const auto shared = ask(*exporter, fake::kShare, 4096);
  ASSERT_TRUE(shared && shared->c == 1);
  importer->command(fake::kToken, shared->a, shared->b);
  const auto got = ask(*importer, fake::kOpenUnread, kOften);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->a, kOften);
  EXPECT_EQ(got->b, got->c);
  EXPECT_GE(got->b, limits::kMaxUnreadFiles);
  // The last of them may have been answered while it read.
  EXPECT_LE(got->b, limits::kMaxUnreadFiles + limits::kWorkerBurst);
  const auto once = ask(*importer, fake::kOpenUnread, 1);
  EXPECT_EQ(once->c, 1u) << "who has read its answers is served";
}

// What records cost that are new at each beat is part of what their vGPU may take.
TEST_F(WorkerMessages, OfAVgpuThatOwesNothingIsLearntAndOfOthersAllIs) {
  auto& executor = daemon_->executor();
  const auto a = daemon_->find("a")->id(), b = daemon_->find("b")->id();
  auto debtor = joined("a"), neighbour = joined("b");
  ASSERT_TRUE(ask(*debtor, fake::kRecord, 0));
  ASSERT_TRUE(run_until([&] { return executor.learnt(a).learnt() == 1; }));
  (void)executor.loop_time(a)->take(monotonic_ns(), 3'600'000'000'000);
  debtor->command(fake::kRecord, 1);  // heard of only once it is paid
  run_for_a_moment();
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(ask(*neighbour, fake::kRecord, i));
    ASSERT_TRUE(run_until([&] { return executor.learnt(b).learnt() == i; }));
  }
  EXPECT_EQ(executor.learnt(a).learnt(), 1u);
}

TEST_F(WorkerMessages, AnyOfThemHarmNobodyElse) {
  auto victim = joined("b");
  const size_t before = descriptors();
  size_t survived = 0;
  const char* given = std::getenv("SLUICE_FIRST_SEED");  // by hand
  const uint64_t first = given ? std::strtoull(given, nullptr, 10) : 1;
  const uint64_t seeds = rounds<uint64_t>(20);
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    std::unique_ptr<LocalProgram> two[] = {joined("a"), joined("a")};
    for (int round = 0; round < 2; ++round)
      for (int i = 0; i < 2; ++i) {
        const auto own = ask(*two[i], fake::kRandom, 4 * seed + 2 * round + i, 40);
        if (!own) continue;
        ++survived;
        if (own->a != 0 && two[1 - i]->slot_state() == SLUICE_SLOT_OPEN)
          two[1 - i]->command(fake::kToken, own->a, own->b);
      }
    EXPECT_EQ(ask(*victim, fake::kLease, 64 * kMiB)->a, 0u) << seed;
    victim->command(fake::kUnlease, 64 * kMiB);
    const auto extent = ask(*victim, fake::kExtent, 4 * kMiB);
    EXPECT_EQ(extent->a, 0u) << seed;
    victim->command(fake::kReturnExtent, extent->b, extent->c);
    for (auto& p : two) p->close();
    expect_all_free("a");
    if (HasFailure()) return;
  }
  EXPECT_GT(survived, seeds / 2) << "they get somewhere";
  EXPECT_TRUE(run_until([&] { return descriptors() <= before; })) << descriptors() << before;
}

}  // namespace
}  // namespace sluice::test
