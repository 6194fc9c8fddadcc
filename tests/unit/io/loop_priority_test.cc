// SPDX-License-Identifier: Apache-2.0
// The loop's real time and its budget.
#include "mediator/io/loop_priority.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "mediator/base/log.h"

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

TEST(LoopPriority, WhoRunsWithoutEndGoesBackToNice) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(who_runs_without_end());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no real-time scheduling here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
  return LoopPriority::state() == State::kNice && said == 1 ? 0 : 2;
}

TEST(LoopPriority, WhoMayNotHaveItAgainSaysSo) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(who_may_not_have_it_again());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no real-time scheduling here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
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
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(whose_session_is_nice());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no groups of sessions here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace sluice::io
