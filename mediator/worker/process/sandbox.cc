// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/process/sandbox.h"

#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>

#include "mediator/worker/process/refused_calls.h"

namespace sluice::worker {

namespace {

// Calls by name: what an older kernel header or another architecture lacks is skipped. Those with
// conditions on their arguments are in `allow_in_part`.
constexpr const char* kAllowed[] = {
    // memory
    "munmap", "mremap", "mincore", "brk", "membarrier",
    // threads and their ends
    "set_robust_list", "rseq", "exit", "exit_group", "futex", "sched_yield", "sched_getaffinity",
    "gettid", "getpid", "set_tid_address",
    // signals: aborting and returning from handlers
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "pause",
    // time and waiting
    "clock_gettime", "clock_nanosleep", "nanosleep", "ppoll", "poll", "gettimeofday",
    // descriptors that we have
    "read", "write", "writev", "close", "fstat", "newfstatat", "lseek", "fallocate", "recvmsg",
    "sendto", "recvfrom", "getrandom"};

constexpr const char* kDeadly[] = {"execve", "execveat", "ptrace", "process_vm_readv",
                                   "process_vm_writev"};

// What NVIDIA's driver (CUDA 13, traced) and the C library under it need besides.
constexpr const char* kAllowedBesideNvidia[] = {
    // memory: code that it compiles, its libraries, places on NUMA nodes
    "mprotect", "mlock", "mlock2", "munlock", "mbind", "get_mempolicy", "set_mempolicy", "msync",
    // files: device nodes, libraries, /proc and /sys, its cache of compiled kernels
    "open", "openat", "creat", "stat", "lstat", "statx", "statfs", "fstatfs", "access", "faccessat",
    "faccessat2", "readlink", "readlinkat", "getcwd", "getdents", "getdents64", "mkdir", "mkdirat",
    "rmdir", "unlink", "unlinkat", "symlink", "symlinkat", "rename", "renameat", "renameat2",
    "ftruncate", "fsync", "fdatasync", "flock", "chmod", "fchmod", "fchmodat", "umask", "fadvise64",
    "pread64", "pwrite64", "readv", "preadv", "pwritev",
    // descriptors, and waiting for several
    "dup", "dup2", "dup3", "pipe", "pipe2", "eventfd", "eventfd2", "select", "pselect6",
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    // Unix sockets: MPS, and the driver's daemons
    "bind", "connect", "listen", "accept", "accept4", "getsockname", "getpeername", "getsockopt",
    "setsockopt", "shutdown", "recvmmsg",
    // who and where we are
    "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "getppid",
    "getpgrp", "uname", "sysinfo", "getrlimit", "getrusage", "times", "getcpu", "clock_getres",
    "time", "sched_getparam", "sched_getscheduler", "sched_get_priority_max",
    "sched_get_priority_min", "get_robust_list",
    // Of the tasks of its pid namespace and user id, as it names them by number: itself.
    "sched_setaffinity",
    // signals
    "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend"};

// A thread of this process, and nothing that is shared less or watched from outside.
constexpr uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                    CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;
constexpr uint64_t kThreadMask =
    CLONE_THREAD | CLONE_PARENT | CLONE_PTRACE | CLONE_UNTRACED | kNewNamespaces;

// Commands of NVIDIA's own devices: of type 'F', and those of its unified memory, plain numbers. No
// file's, socket's or terminal's.
struct IoctlRange {
  uint32_t mask, value;
};
constexpr IoctlRange kIoctlsOfNvidia[] = {
    {0x0000'ff00, 'F' << 8}, {0xffff'ff00, 0}, {0xffff'fff0, 0x3000'0000}};

// Advice on memory that may be given: what there is today, up to MADV_COLLAPSE, but nothing of
// merged pages. By the time that a store to one takes, a worker would learn what is in the memory
// of a virtual machine.
constexpr int kLastAdvice = 25;
constexpr bool may_advise(int advice) {
  return advice != MADV_MERGEABLE && advice != MADV_UNMERGEABLE;
}

// glibc names its maps by it.
constexpr uint64_t kSetVma = 0x53564d41;

class Filter {
 public:
  explicit Filter(uint32_t otherwise) : filter_(seccomp_init(otherwise), seccomp_release) {
    if (!filter_) return;
    error_ =
        seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_TSYNC, 1);  // the driver's threads, too
  }
  void add(uint32_t action, const char* name, std::initializer_list<scmp_arg_cmp> conditions = {}) {
    const int number = seccomp_syscall_resolve_name(name);
    if (error_ != 0 || number == __NR_SCMP_ERROR) return;
    error_ = seccomp_rule_add_array(filter_.get(), action, number,
                                    static_cast<unsigned>(conditions.size()), conditions.begin());
  }
  Result<void> load() {
    if (!filter_) return Error{ENOMEM, "seccomp filter"};
    if (error_ == 0) error_ = seccomp_load(filter_.get());
    if (error_ != 0) return Error::from_errno("seccomp filter", -error_);
    return {};
  }

 private:
  std::unique_ptr<void, void (*)(void*)> filter_;
  int error_ = 0;
};

// Of a parameter of 32 bits the kernel ignores the register's upper half.
scmp_arg_cmp equal32(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, 0xffff'ffff, value & 0xffff'ffff};
}

// Calls that are harmless with some arguments only.
void allow_in_part(Filter& f, bool nvidia) {
  const auto self = static_cast<uint64_t>(::getpid());
  auto allow = [&](const char* name, std::initializer_list<scmp_arg_cmp> conditions) {
    f.add(SCMP_ACT_ALLOW, name, conditions);
    allowed_in_part(name);
  };
  // Nothing of the host's pool of huge pages, which are set aside for virtual machines.
  constexpr scmp_arg_cmp kOrdinaryPages{3, SCMP_CMP_MASKED_EQ, MAP_HUGETLB, 0};
  constexpr scmp_arg_cmp kNoCode{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0};
  if (nvidia) {
    allow("mmap", {kOrdinaryPages});
    allow("memfd_create", {{1, SCMP_CMP_MASKED_EQ, MFD_HUGETLB, 0}});
  } else {
    allow("mmap", {kNoCode, kOrdinaryPages});
    allow("mprotect", {kNoCode});
  }
  for (int advice = 0; advice <= kLastAdvice; ++advice)
    if (may_advise(advice)) allow("madvise", {equal32(2, static_cast<uint64_t>(advice))});
  allow("clone", {{0, SCMP_CMP_MASKED_EQ, kThreadMask, CLONE_THREAD}});
  allow("tgkill", {equal32(0, self)});
  for (uint64_t option : {PR_SET_NAME, PR_SET_TIMERSLACK}) allow("prctl", {equal32(0, option)});
  // F_SETFL only beside NVIDIA's driver, which needs it for its own: O_NONBLOCK belongs to open
  // files that sluiced and the guest share (io/peers/peer_thread.h stands against that, too).
  for (int command :
       {F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK})
    allow("fcntl", {equal32(1, static_cast<uint64_t>(command))});
  if (!nvidia) return;
  allow("kill", {equal32(0, self)});
  for (uint64_t option : {uint64_t{PR_GET_NAME}, uint64_t{PR_GET_DUMPABLE}, kSetVma})
    allow("prctl", {equal32(0, option)});
  for (int command : {F_DUPFD, F_SETFL, F_GETLK, F_SETLK, F_SETLKW, F_ADD_SEALS, F_GET_SEALS})
    allow("fcntl", {equal32(1, static_cast<uint64_t>(command))});
  for (const IoctlRange& range : kIoctlsOfNvidia)
    allow("ioctl", {{1, SCMP_CMP_MASKED_EQ, range.mask, range.value}});
  allow("prlimit64", {equal32(0, 0)});
  for (const char* name : {"socket", "socketpair"}) allow(name, {equal32(0, AF_UNIX)});
}

}  // namespace

void close_others(int last_kept) { ::close_range(static_cast<unsigned>(last_kept) + 1, ~0u, 0); }

Result<void> enter_sandbox(bool nvidia, bool mps) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::from_errno("no_new_privs");
  // Starting the program has made it dumpable again; nobody of its user may trace it or read its
  // memory.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Error::from_errno("not dumpable");
  if (nvidia && !log_refused_calls()) return Error::from_errno("SIGSYS");
  Filter filter(nvidia ? SCMP_ACT_TRAP : SCMP_ACT_ERRNO(EPERM));
  for (const char* name : kDeadly) filter.add(SCMP_ACT_KILL_PROCESS, name);
  // Its flags are in memory, where a filter does not see them. The C library then uses clone. Not
  // by a trap: signals are blocked there.
  filter.add(SCMP_ACT_ERRNO(ENOSYS), "clone3");
  for (const char* name : kAllowed) filter.add(SCMP_ACT_ALLOW, name);
  if (nvidia)
    for (const char* name : kAllowedBesideNvidia) filter.add(SCMP_ACT_ALLOW, name);
  if (mps) filter.add(SCMP_ACT_ALLOW, "sendmsg");
  allow_in_part(filter, nvidia);
  return filter.load();
}

}  // namespace sluice::worker
