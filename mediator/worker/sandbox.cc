#include "mediator/worker/sandbox.h"

#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

namespace sluice::worker {

namespace {

// By name: what an older kernel header or another architecture lacks is skipped.
constexpr const char* kAllowed[] = {
    // memory (mmap and mprotect: below, without PROT_EXEC)
    "munmap", "mremap", "madvise", "mincore", "brk", "membarrier",
    // threads and their ends; clone with any flags but new namespaces, which need privileges anyway
    "clone", "clone3", "set_robust_list", "rseq", "exit", "exit_group", "futex", "sched_yield",
    "sched_getaffinity", "gettid", "getpid", "tgkill", "set_tid_address",
    // signals: aborting and returning from handlers
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "pause",
    // time and waiting
    "clock_gettime", "clock_nanosleep", "nanosleep", "ppoll", "poll", "gettimeofday",
    // descriptors that we have
    "read", "write", "writev", "close", "fstat", "newfstatat", "lseek", "fcntl", "fallocate",
    "sendmsg", "recvmsg", "sendto", "recvfrom", "getrandom",
    // names of threads, timer slack
    "prctl"};

constexpr const char* kDeadly[] = {"execve", "execveat", "ptrace", "process_vm_readv",
                                   "process_vm_writev"};

constexpr const char* kRefusedBesideNvidia[] = {
    "mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "bpf",
    "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key", "acct", "quotactl",
    "settimeofday", "clock_settime", "sethostname", "setdomainname", "iopl", "ioperm",
    "open_by_handle_at", "pidfd_getfd"};

int rule(scmp_filter_ctx filter, uint32_t action, const char* name) {
  const int number = seccomp_syscall_resolve_name(name);
  return number == __NR_SCMP_ERROR ? 0 : seccomp_rule_add(filter, action, number, 0);
}

}  // namespace

void close_others(int last_kept) {
  ::close_range(static_cast<unsigned>(last_kept) + 1, ~0u, 0);
}

Result<void> enter_sandbox(bool nvidia) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::from_errno("no_new_privs");
  const uint32_t refuse = SCMP_ACT_ERRNO(EPERM);
  std::unique_ptr<void, void (*)(void*)> filter(seccomp_init(nvidia ? SCMP_ACT_ALLOW : refuse),
                                                seccomp_release);
  if (!filter) return Error{ENOMEM, "seccomp filter"};
  int r = seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1);  // the driver's threads, too
  for (const char* name : kDeadly) {
    if (r == 0) r = rule(filter.get(), SCMP_ACT_KILL_PROCESS, name);
  }
  if (nvidia) {
    for (const char* name : kRefusedBesideNvidia) {
      if (r == 0) r = rule(filter.get(), refuse, name);
    }
    if (r == 0) {  // MPS and the driver's daemons speak over Unix sockets; nobody over others
      const scmp_arg_cmp family{0, SCMP_CMP_NE, AF_UNIX, 0};
      r = seccomp_rule_add_array(filter.get(), refuse, SCMP_SYS(socket), 1, &family);
    }
  } else {
    for (const char* name : kAllowed) {
      if (r == 0) r = rule(filter.get(), SCMP_ACT_ALLOW, name);
    }
    const scmp_arg_cmp not_executable{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0};
    for (int number : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
      if (r == 0)
        r = seccomp_rule_add_array(filter.get(), SCMP_ACT_ALLOW, number, 1, &not_executable);
    }
  }
  if (r == 0) r = seccomp_load(filter.get());
  if (r != 0) return Error::from_errno("seccomp filter", -r);
  return {};
}

}  // namespace sluice::worker
