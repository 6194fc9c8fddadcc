// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/process/refused_calls.h"

#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice::worker {
namespace {

// The kernel's numbers end below 500; what lies beyond is logged as a number.
constexpr int kCalls = 512;

struct KernelCall {
  char name[32];
  bool in_part;
  std::atomic<bool> logged;
};
KernelCall calls[kCalls];

// A handler may use neither memory nor the C library's streams.
class RefusedLine {
 public:
  RefusedLine& text(const char* s) {
    while (*s && used_ < sizeof line_) line_[used_++] = *s++;
    return *this;
  }
  RefusedLine& number(uint64_t n, unsigned base) {
    char digits[24];
    size_t count = 0;
    do digits[count++] = "0123456789abcdef"[n % base];
    while ((n /= base) != 0);
    while (count && used_ < sizeof line_) line_[used_++] = digits[--count];
    return *this;
  }
  void write() { [[maybe_unused]] auto n = ::write(STDERR_FILENO, line_, used_); }

 private:
  char line_[200];
  size_t used_ = 0;
};

void on_refused_call(int, siginfo_t* info, void* context) {
  const int error = errno;
  auto* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int n = info->si_syscall;
  KernelCall* call = n >= 0 && n < kCalls ? &calls[n] : nullptr;
  if (!call || !call->logged.exchange(true)) {
    RefusedLine line;
    line.text("sandbox: system call ").text(call && call->name[0] ? call->name : "?").text(" (");
    line.number(static_cast<uint64_t>(n), 10).text(") is refused; arguments 0x");
    line.number(static_cast<uint64_t>(registers[REG_RDI]), 16).text(" 0x");
    line.number(static_cast<uint64_t>(registers[REG_RSI]), 16).text(" 0x");
    line.number(static_cast<uint64_t>(registers[REG_RDX]), 16).text("\n");
    line.write();
  }
  registers[REG_RAX] = call && call->in_part ? -EPERM : -ENOSYS;
  errno = error;
}

// The signal must get through: blocked, it ends the process.
sigset_t without_ours(const sigset_t* set) {
  sigset_t copy = *set;
  ::sigdelset(&copy, SIGSYS);
  return copy;
}
long change_mask(int how, const sigset_t* set, sigset_t* old) {
  sigset_t copy;
  if (set && how != SIG_UNBLOCK) copy = without_ours(set), set = &copy;
  return ::syscall(SYS_rt_sigprocmask, how, set, old, 8);
}

}  // namespace

void allowed_in_part(std::string_view name) {
  const int n = seccomp_syscall_resolve_name(std::string(name).c_str());
  if (n >= 0 && n < kCalls) calls[n].in_part = true;
}

bool log_refused_calls() {
  for (int n = 0; n < kCalls; ++n) {
    char* name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, n);
    if (name) std::strncpy(calls[n].name, name, sizeof calls[n].name - 1);
    std::free(name);
  }
  struct sigaction action {};
  action.sa_sigaction = on_refused_call;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigset_t ours;
  ::sigemptyset(&ours);
  ::sigaddset(&ours, SIGSYS);
  return ::sigaction(SIGSYS, &action, nullptr) == 0 &&
         change_mask(SIG_UNBLOCK, &ours, nullptr) == 0;
}

}  // namespace sluice::worker

// Before the C library's: the driver's threads block all signals.
extern "C" {
__attribute__((visibility("default"))) int pthread_sigmask(int how, const sigset_t* set,
                                                           sigset_t* old) noexcept {
  const int error = errno;
  const int result = sluice::worker::change_mask(how, set, old) == 0 ? 0 : errno;
  errno = error;
  return result;
}
__attribute__((visibility("default"))) int sigprocmask(int how, const sigset_t* set,
                                                       sigset_t* old) noexcept {
  return static_cast<int>(sluice::worker::change_mask(how, set, old));
}
}
