// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/loop_priority.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "mediator/base/capabilities.h"
#include "mediator/base/clock.h"
#include "mediator/base/fd.h"
#include "mediator/base/log.h"
#include "mediator/base/process/processor_time.h"

namespace sluice::io {
namespace {

using State = LoopPriority::State;

// The signal's handler writes these, on any thread.
std::atomic<State> state_now{State::kOrdinary};
std::atomic<uint64_t> spent_times{0};
std::atomic<pid_t> loop_thread{0};
uint64_t beat_ns, beat_busy_ns;  // of the last beat
bool stands_back;                // stand_back(), and since when: its busy time
uint64_t stood_back_ns;
std::string refusal;  // of real time

// The kernel's sched_attr, of its first size. Its header and Debian 12's libc both have other types
// of sched.h.
struct Scheduling {
  uint32_t size = sizeof(Scheduling);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0, deadline = 0, period = 0;
};
static_assert(sizeof(Scheduling) == 48);

// Not by sched_setscheduler(): systemd's RestrictRealtime= takes SCHED_RESET_ON_FORK for a policy
// and refuses it with SCHED_OTHER, too.
bool set_nice(int nice) {
  Scheduling a;
  a.flags = SCHED_FLAG_RESET_ON_FORK;
  a.nice = nice;
  return ::syscall(SYS_sched_setattr, 0, &a, 0) == 0;
}

bool set_real_time(bool on) {
  sched_param p{};
  p.sched_priority = on ? 1 : 0;
  return ::sched_setscheduler(loop_thread, (on ? SCHED_RR : SCHED_OTHER) | SCHED_RESET_ON_FORK,
                              &p) == 0;
}

void spend() {
  if (!set_real_time(false)) return;
  state_now = State::kSpent;
  ++spent_times;
}

void on_limit(int) {
  const int error = errno;
  if (state_now == State::kRealTime) spend();
  errno = error;
}

// Real time ends by a signal. The first limit is for having it again without privileges: where a
// host refuses it, what is spent once does not come back.
bool limit_real_time() {
  const rlimit priority{1, 1};
  ::setrlimit(RLIMIT_RTPRIO, &priority);
  const rlimit run{LoopPriority::kRunMs * 1000, RLIM_INFINITY};
  struct sigaction action {};
  action.sa_handler = on_limit;
  action.sa_flags = SA_RESTART;
  return ::setrlimit(RLIMIT_RTTIME, &run) == 0 && ::sigaction(SIGXCPU, &action, nullptr) == 0;
}

Error refuse(Error e) {
  refusal = e.message;
  return e;
}

// Once it has left that. Asked when privileges have been given up.
bool may_return() {
  rlimit priority{};
  static const bool may = (::getrlimit(RLIMIT_RTPRIO, &priority) == 0 && priority.rlim_cur > 0) ||
                          has_capability(CAP_SYS_NICE);
  return may;
}

void return_to_real_time() {
  if (set_real_time(true)) return;
  state_now = State::kNice;
  const Error e = refuse(Error::from_errno("real-time scheduling, which was left"));
  log::warning(
      "{}; refused now: sluiced goes by `nice` until it is started anew; CAP_SYS_RESOURCE, or "
      "LimitRTPRIO=1 of its service, would have let it come back",
      e.message);
}

// Where the kernel schedules sessions as groups, niceness counts within a group only. Of a session
// that is another's nothing is changed; where there are no groups there is no such file.
void raise_session(int nice) {
  if (::getsid(0) != ::getpid()) return;
  const Fd file(::open("/proc/self/autogroup", O_WRONLY | O_CLOEXEC));
  const std::string text = std::to_string(nice);
  if (file) [[maybe_unused]]
    auto n = ::write(file.get(), text.data(), text.size());
}

}  // namespace

Result<void> LoopPriority::raise(int nice, bool real_time) {
  if (nice >= 0 && !real_time) return {};
  loop_thread = ::gettid();
  if (!set_nice(nice)) {
    Error e = Error::from_errno("raise the scheduling priority");
    return real_time ? refuse(std::move(e)) : e;
  }
  raise_session(nice);
  state_now = State::kNice;
  if (!real_time) return {};
  if (!limit_real_time() || !set_real_time(true))
    return refuse(Error::from_errno("real-time scheduling"));
  state_now = State::kRealTime;
  beat_ns = monotonic_ns();
  beat_busy_ns = thread_cpu_ns();
  return {};
}

bool LoopPriority::stand_back() {
  if (state_now == State::kRealTime && (!may_return() || !set_real_time(false))) return false;
  stands_back = true;
  stood_back_ns = thread_cpu_ns();
  return true;
}

void LoopPriority::step_forward() {
  if (!std::exchange(stands_back, false)) return;
  beat_busy_ns += thread_cpu_ns() - stood_back_ns;
  if (state_now == State::kRealTime) return_to_real_time();
}

State LoopPriority::after(State now, uint64_t busy, uint64_t elapsed) {
  if (now != State::kRealTime && now != State::kSpent) return now;
  const bool over = static_cast<double>(busy) > kShare * static_cast<double>(elapsed);
  return over ? State::kSpent : State::kRealTime;
}

void LoopPriority::on_beat() {
  if (loop_thread != ::gettid()) return;
  const uint64_t now = monotonic_ns(), busy = thread_cpu_ns();
  if (stands_back) beat_busy_ns += busy - std::exchange(stood_back_ns, busy);
  const State next = after(state_now, busy - beat_busy_ns, now - beat_ns);
  beat_ns = now;
  beat_busy_ns = busy;
  if (next == State::kSpent && state_now == State::kRealTime) spend();
  if (next != State::kRealTime || state_now != State::kSpent) return;
  state_now = State::kRealTime;
  if (!stands_back) return_to_real_time();
}

State LoopPriority::state() { return state_now; }
uint64_t LoopPriority::times_spent() { return spent_times; }
const std::string& LoopPriority::refusal() { return io::refusal; }

}  // namespace sluice::io
