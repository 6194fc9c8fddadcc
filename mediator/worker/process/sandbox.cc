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

namespace sluice::worker {

namespace {

// Calls by name: what an older kernel header or another architecture lacks is skipped. Those with
// conditions on their arguments are in `allow_in_part` and `refuse_in_part`.
constexpr const char* kAllowed[] = {
    // memory
    "munmap", "mremap", "madvise", "mincore", "brk", "membarrier",
    // threads and their ends
    "set_robust_list", "rseq", "exit", "exit_group", "futex", "sched_yield", "sched_getaffinity",
    "gettid", "getpid", "set_tid_address",
    // signals: aborting and returning from handlers
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "pause",
    // time and waiting
    "clock_gettime", "clock_nanosleep", "nanosleep", "ppoll", "poll", "gettimeofday",
    // descriptors that we have
    "read", "write", "writev", "close", "fstat", "newfstatat", "lseek", "fallocate", "sendmsg",
    "recvmsg", "sendto", "recvfrom", "getrandom"};

constexpr const char* kDeadly[] = {"execve", "execveat", "ptrace", "process_vm_readv",
                                   "process_vm_writev"};

constexpr const char* kRefusedBesideNvidia[] = {
    // other processes, and new ones
    "fork", "vfork", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_getfd",
    "pidfd_send_signal", "process_madvise", "process_mrelease", "kcmp", "setpriority", "ioprio_set",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "migrate_pages",
    "set_mempolicy_home_node", "setns", "unshare", "setsid", "setpgid",
    // mounts and other roots, old and new calls
    "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig", "fsmount", "fspick",
    "move_mount", "open_tree", "mount_setattr", "statmount", "listmount", "quotactl", "quotactl_fd",
    "swapon", "swapoff", "open_by_handle_at", "name_to_handle_at", "fanotify_init", "fanotify_mark",
    "acct", "lookup_dcookie",
    // parts of the kernel that have often been its weakness, and that no driver library needs
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "io_setup", "io_submit", "io_cancel", "io_getevents", "io_pgetevents",
    "io_destroy", "keyctl", "add_key", "request_key", "modify_ldt", "personality", "uselib",
    "vmsplice", "remap_file_pages", "memfd_secret", "map_shadow_stack", "seccomp",
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "lsm_set_self_attr",
    "init_module", "finit_module", "delete_module", "create_module", "kexec_load",
    "kexec_file_load", "reboot", "syslog", "vhangup", "nfsservctl",
    // the host's names, clocks and ports
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
    "iopl", "ioperm",
    // System V and POSIX message passing between processes
    "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semtimedop", "semctl", "shmget",
    "shmat", "shmctl", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedreceive", "mq_notify",
    "mq_getsetattr",
    // users: whatever it is, it stays
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid",
    "setgroups", "chown", "fchown", "lchown", "fchownat", "mknod", "mknodat"};

// A thread of this process, and nothing that is shared less or watched from outside.
constexpr uint64_t kNewNamespaces = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
                                    CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP;
constexpr uint64_t kThreadMask =
    CLONE_THREAD | CLONE_PARENT | CLONE_PTRACE | CLONE_UNTRACED | kNewNamespaces;

// Signals and their owners: who is told by a descriptor may be any process.
constexpr int kFcntlOfSignals[] = {F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY};
// The same by ioctl, and what puts characters into a terminal's input.
constexpr unsigned kIoctlOfSignals[] = {0x8901 /* FIOSETOWN */, 0x8902 /* SIOCSPGRP */,
                                        0x5452 /* FIOASYNC */,  0x5412 /* TIOCSTI */,
                                        0x541c /* TIOCLINUX */, 0x540e /* TIOCSCTTY */};

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

scmp_arg_cmp not_equal(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_NE, value, 0};
}
// Of a parameter of 32 bits the kernel does not look at the register's upper half.
scmp_arg_cmp equal32(unsigned argument, uint64_t value) {
  return {argument, SCMP_CMP_MASKED_EQ, 0xffff'ffff, value & 0xffff'ffff};
}

// Of an allow list: calls that are harmless with some arguments only.
void allow_in_part(Filter& f) {
  const auto self = static_cast<uint64_t>(::getpid());
  for (const char* name : {"mmap", "mprotect"})
    f.add(SCMP_ACT_ALLOW, name, {{2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}});
  f.add(SCMP_ACT_ALLOW, "clone", {{0, SCMP_CMP_MASKED_EQ, kThreadMask, CLONE_THREAD}});
  f.add(SCMP_ACT_ALLOW, "tgkill", {equal32(0, self)});
  for (uint64_t option : {PR_SET_NAME, PR_SET_TIMERSLACK})
    f.add(SCMP_ACT_ALLOW, "prctl", {equal32(0, option)});
  // F_SETFL is not among them: O_NONBLOCK belongs to open files that sluiced and the guest share.
  for (uint64_t command :
       {F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK})
    f.add(SCMP_ACT_ALLOW, "fcntl", {equal32(1, command)});
}

// Of a deny list: calls that are refused with some arguments only.
void refuse_in_part(Filter& f, uint32_t refuse) {
  const auto self = static_cast<uint64_t>(::getpid());
  for (uint64_t bit : {CLONE_PARENT, CLONE_PTRACE, CLONE_UNTRACED, CLONE_NEWNS, CLONE_NEWUTS,
                       CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP})
    f.add(refuse, "clone", {{0, SCMP_CMP_MASKED_EQ, bit, bit}});
  f.add(refuse, "clone", {{0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0}});
  for (const char* name : {"kill", "tgkill"}) f.add(refuse, name, {not_equal(0, self)});
  for (uint64_t option :
       {PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_PTRACER, PR_SET_MM, PR_SET_CHILD_SUBREAPER,
        PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_SET_SECCOMP, PR_TASK_PERF_EVENTS_ENABLE})
    f.add(refuse, "prctl", {equal32(0, option)});
  for (int command : kFcntlOfSignals)
    f.add(refuse, "fcntl", {equal32(1, static_cast<uint32_t>(command))});
  for (unsigned command : kIoctlOfSignals) f.add(refuse, "ioctl", {equal32(1, command)});
  for (const char* name : {"prlimit64", "move_pages"}) f.add(refuse, name, {not_equal(0, 0)});
  // MPS and the driver's daemons speak over Unix sockets; nobody over others.
  f.add(refuse, "socket", {not_equal(0, AF_UNIX)});
  f.add(refuse, "socketpair", {not_equal(0, AF_UNIX)});
}

}  // namespace

void close_others(int last_kept) { ::close_range(static_cast<unsigned>(last_kept) + 1, ~0u, 0); }

Result<void> enter_sandbox(bool nvidia) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Error::from_errno("no_new_privs");
  // Starting the program has made it dumpable again; nobody of its user may trace it or read its
  // memory.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Error::from_errno("not dumpable");
  const uint32_t refuse = SCMP_ACT_ERRNO(EPERM);
  Filter filter(nvidia ? SCMP_ACT_ALLOW : refuse);
  for (const char* name : kDeadly) filter.add(SCMP_ACT_KILL_PROCESS, name);
  // Its flags are in memory, where a filter does not see them. The C library then uses clone.
  filter.add(SCMP_ACT_ERRNO(ENOSYS), "clone3");
  if (nvidia) {
    for (const char* name : kRefusedBesideNvidia) filter.add(refuse, name);
    refuse_in_part(filter, refuse);
  } else {
    for (const char* name : kAllowed) filter.add(SCMP_ACT_ALLOW, name);
    allow_in_part(filter);
  }
  return filter.load();
}

}  // namespace sluice::worker
