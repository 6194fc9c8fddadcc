// SPDX-License-Identifier: Apache-2.0
// The loop's real time and its budget.
#include "mediator/io/loop_priority.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/io/polls_aside.h"
#include "mediator/ring/wait.h"

namespace sluice::io {
namespace {

using State = LoopPriority::State;
constexpr uint64_t kSecond = 1'000'000'000;

TEST(LoopPriority, TheBudgetIsAShareOfEachSecond) {
  for (State s : {State::kRealTime, State::kSpent}) {
    EXPECT_EQ(LoopPriority::after(s, kSecond / 4, kSecond), State::kRealTime);
    EXPECT_EQ(LoopPriority::after(s, kSecond * 3 / 4, kSecond), State::kSpent);
  }
  for (State s : {State::kOrdinary, State::kNice})
    EXPECT_EQ(LoopPriority::after(s, 0, kSecond), s) << "what was not given is not won";
}

int policy() { return ::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK; }

// In a process of its own, which is in real time afterwards. 0: all is well; 77: not allowed here.
int who_runs_without_end() {
  if (!LoopPriority::raise(-10, true)) return 77;
  if (policy() != SCHED_RR || LoopPriority::state() != State::kRealTime) return 1;
  if (int theirs = -1; std::thread([&] { theirs = policy(); }).join(), theirs != SCHED_OTHER)
    return 2;
  // Runs until its real time is taken from it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (policy() == SCHED_RR)
    if (std::chrono::steady_clock::now() > end) return 3;
  if (LoopPriority::state() != State::kSpent || LoopPriority::times_spent() != 1) return 4;
  if (::getpriority(PRIO_PROCESS, 0) != -10) return 5;
  // It comes back after a second with less work; without a privilege, where its limit allows that.
  rlimit most;
  if (::getrlimit(RLIMIT_RTPRIO, &most) == 0 && most.rlim_cur > 0 && ::setuid(65534) != 0) return 6;
  LoopPriority::on_beat();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  LoopPriority::on_beat();
  return policy() == SCHED_RR && LoopPriority::state() == State::kRealTime ? 0 : 7;
}

// What a child's status says: 0: all is well; 77: not allowed here.
void expect_of_a_child(int (*what)(), const char* why_skipped) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(what());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << why_skipped;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(LoopPriority, WhoRunsWithoutEndGoesBackToNice) {
  expect_of_a_child(who_runs_without_end, "no real-time scheduling here");
}

// Polls for what never comes, for longer than real time may run without sleeping.
int who_polls_without_end() {
  if (!LoopPriority::raise(-10, true)) return 77;
  int policies = 0;
  for (int i = 0; i < 100; ++i) {
    PollsAside polls;  // each may, also where others take the processor
    polls.run([&] {
      policies |= 1 << policy();
      return Spinner::spin_until(monotonic_ns() + 10'000'000, [] { return false; });
    });
    if (policy() != SCHED_RR) return 1;
    if (i % 30 == 29) LoopPriority::on_beat();
  }
  if (policies != 1 << SCHED_OTHER) return 2;
  return LoopPriority::times_spent() == 0 && LoopPriority::state() == State::kRealTime ? 0 : 3;
}

TEST(LoopPriority, WhoPollsDoesNotSpendIt) {
  expect_of_a_child(who_polls_without_end, "no real-time scheduling here");
}

TEST(PollsAside, EndWhereOthersWantTheProcessor) {
  PollsAside polls;
  uint64_t now = kSecond;
  for (int i = 0; i < 100; ++i) polls.polled(now += kSecond / 50, kSecond / 50, kSecond / 50);
  EXPECT_TRUE(polls.may_poll(now));
  polls.polled(now += kSecond / 50, kSecond / 50, kSecond / 50 - PollsAside::kMostLostNs + 1);
  EXPECT_TRUE(polls.may_poll(now));
  polls.polled(now += 1000, 1000, 999);
  EXPECT_FALSE(polls.may_poll(now + kSecond - 1));
  EXPECT_TRUE(polls.may_poll(now += kSecond));
  // The same again at once; and after a second in which it lost nothing.
  polls.polled(now += kSecond / 50, kSecond / 50, 0);
  EXPECT_FALSE(polls.may_poll(now + 2 * kSecond - 1));
  EXPECT_TRUE(polls.may_poll(now += 2 * kSecond));
  for (int i = 0; i < 100; ++i) polls.polled(now += kSecond / 50, kSecond / 50, kSecond / 50);
  polls.polled(now += kSecond / 50, kSecond / 50, 0);
  EXPECT_FALSE(polls.may_poll(now + kSecond - 1));
  EXPECT_TRUE(polls.may_poll(now + kSecond));
}

// Without the limit that lets it have real time again. 0: it goes by nice, and says so.
int who_may_not_have_it_again() {
  if (!LoopPriority::raise(-10, true)) return 77;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (policy() == SCHED_RR)
    if (std::chrono::steady_clock::now() > end) return 1;
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_RTPRIO, &none) != 0 || ::setuid(65534) != 0) return 77;
  int said = 0;
  log::init("test", log::Level::kWarning);
  log::set_observer([&](log::Level level, std::string_view line) {
    said += level == log::Level::kWarning && line.find("refused now") != line.npos;
  });
  for (int i = 0; i < 3; ++i) {
    LoopPriority::on_beat();
    std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 400 : 10));
  }
  return LoopPriority::state() == State::kNice && said == 1 && !LoopPriority::refusal().empty() ? 0
                                                                                                : 2;
}

TEST(LoopPriority, WhoMayNotHaveItAgainSaysSo) {
  expect_of_a_child(who_may_not_have_it_again, "no real-time scheduling here");
}

// systemd's RestrictRealtime=: of sched_setscheduler() it passes SCHED_OTHER, SCHED_BATCH and
// SCHED_IDLE, and nothing that has SCHED_RESET_ON_FORK.
bool restrict_real_time() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setscheduler, 0, 4),  // others: allowed
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SCHED_OTHER, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SCHED_BATCH, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SCHED_IDLE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  const sock_fprog program{std::size(code), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int who_may_not_have_real_time() {
  if (::setpriority(PRIO_PROCESS, 0, -1) != 0 || !restrict_real_time()) return 77;
  const auto raised = LoopPriority::raise(-10, true);
  if (raised || raised.error().code != EPERM) return 1;
  if (LoopPriority::refusal() != raised.error().message) return 2;
  if (LoopPriority::state() != State::kNice || ::getpriority(PRIO_PROCESS, 0) != -10) return 3;
  int theirs = -1;  // its threads are ordinary
  std::thread([&] { theirs = ::getpriority(PRIO_PROCESS, 0); }).join();
  return theirs == 0 ? 0 : 4;
}

TEST(LoopPriority, NiceRemainsWhereAUnitForbidsRealTime) {
  expect_of_a_child(who_may_not_have_real_time, "no priorities or filters here");
}

// 0: its session is as nice as it; 77: the kernel has no groups, or it is not allowed here.
int whose_session_is_nice() {
  if (::setsid() < 0 || ::access("/proc/self/autogroup", W_OK) != 0) return 77;
  if (!LoopPriority::raise(-10, false)) return 77;
  std::string name, word, nice;
  std::ifstream("/proc/self/autogroup") >> name >> word >> nice;
  return nice == "-10" ? 0 : 1;
}

TEST(LoopPriority, ItsSessionIsAsNiceAsIt) {
  expect_of_a_child(whose_session_is_nice, "no groups of sessions here");
}

}  // namespace
}  // namespace sluice::io
