// SPDX-License-Identifier: Apache-2.0
// A worker that a guest has taken over: it is started by sluiced, enters the sandbox as a worker
// does, says Ready, and then tries what such a one would. On its standard error a line for each
// attempt that works, "evil NAME: DONE (what)", and "evil END: refused (N attempts)". Workers of
// vGPUs other than `a` and `c` become the real program, so that a victim has one.
//
//   SLUICE_EVIL_REAL    the real worker
//   SLUICE_EVIL_FILTER  soft or nvidia
//   SLUICE_EVIL_VICTIM  pid of a process of the host that is not ours
//   SLUICE_EVIL_CACHE   the bytes of a vGPU's cache of machine code; unset: it has none
//   SLUICE_EVIL_ADMIN   the admin socket; SLUICE_EVIL_FOLDER a folder of root's; SLUICE_EVIL_PORT a
//                       TCP port of this host; SLUICE_EVIL_ABSTRACT an abstract socket's name
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/system/adversaries/programs/taken_worker.h"

using namespace sluice;
using namespace sluice::adversary;
using namespace sluice::worker_protocol;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

long attempts = 0;

// Only what worked is written at once: sluiced takes so many lines of a worker. The last line has
// the number of all.
void say(const char* name, bool done, const std::string& what) {
  ++attempts;
  if (!done && std::strcmp(name, "END") != 0) return;
  static const int out = 10;  // main has put standard error there
  const std::string line =
      std::string("evil ") + name + ": " + (done ? "DONE" : "refused") + " (" + what + ")\n";
  [[maybe_unused]] auto n = ::write(out, line.data(), line.size());
}
void call(const char* name, long result) {
  say(name, result >= 0, result >= 0 ? std::to_string(result) : ::strerror(errno));
}

// What a child does that outlives its session.
template <class F>
void make_process(const char* name, F make) {
  const long pid = make();
  if (pid == 0)
    for (;;) ::pause();
  call(name, pid);
}

long connect_to(const std::string& name, bool abstract, Fd& socket) {
  socket.reset(::socket(AF_UNIX, SOCK_STREAM, 0));
  if (!socket) return -1;
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::memcpy(a.sun_path + abstract, name.data(), std::min(name.size(), sizeof a.sun_path - 2));
  const auto bytes =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + abstract + name.size() + !abstract);
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&a), bytes);
}

void processes(pid_t victim) {
  const pid_t parent = ::getppid();
  // 0: no signal, but whether there could be one. The host's other processes are not ours to stop.
  if (parent > 0) {
    call("kill sluiced", ::kill(parent, 0));
    call("tgkill sluiced", ::syscall(SYS_tgkill, parent, parent, 0));
  }
  call("kill another", ::kill(victim, SIGSTOP));
  call("tgkill another", ::syscall(SYS_tgkill, victim, victim, SIGSTOP));
  call("tkill another", ::syscall(SYS_tkill, victim, SIGSTOP));
  call("queue a signal", ::syscall(SYS_rt_sigqueueinfo, victim, 0, nullptr));
  call("kill all", ::kill(-1, 0));
  call("pidfd of another", ::syscall(SYS_pidfd_open, victim, 0));
  int ends[2];
  if (::pipe(ends) == 0) {
    call("own a descriptor's signals", ::fcntl(ends[0], F_SETOWN, victim));
    call("own them by ioctl", ::syscall(SYS_ioctl, ends[0], 0x8901, &victim));
  }
  make_process("fork", [] { return ::syscall(SYS_fork); });
  make_process("clone a process", [] { return ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
  make_process("clone into namespaces",
               [] { return ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); });
  make_process("clone3", [] {
    clone_args args{};
    args.exit_signal = SIGCHLD;
    return ::syscall(SYS_clone3, &args, sizeof args);
  });
  call("outlive the spawner", ::prctl(PR_SET_PDEATHSIG, 0));
  call("become dumpable", ::prctl(PR_SET_DUMPABLE, 1));
  call("limit another", ::syscall(SYS_prlimit64, victim, 7, nullptr, &ends));
  call("unshare", ::unshare(CLONE_NEWUSER));
}

void files(pid_t victim) {
  const std::string folder = variable("SLUICE_EVIL_FOLDER");
  call("read /etc/shadow", ::open("/etc/shadow", O_RDONLY));
  call("read /etc/passwd", ::open("/etc/passwd", O_RDONLY));
  call("look into /root", ::open("/root", O_RDONLY | O_DIRECTORY));
  call("look into /home", ::open("/home", O_RDONLY | O_DIRECTORY));
  // Of its own root folder, but nothing that it needs: only Landlock refuses that.
  call("list its root folder", ::open("/", O_RDONLY | O_DIRECTORY));
  call("write a file of root's", ::open((folder + "/evil").c_str(), O_WRONLY | O_CREAT, 0644));
  call("write /etc/cron.d",
       ::open("/etc/cron.d/.sluice-evil", O_WRONLY | O_CREAT | O_TMPFILE, 0644));
  call("write a library", ::open("/usr/lib/sluice-evil", O_WRONLY | O_CREAT, 0644));
  const std::string proc = "/proc/" + std::to_string(victim);
  call("another's memory", ::open((proc + "/mem").c_str(), O_RDWR));
  call("another's environment", ::open((proc + "/environ").c_str(), O_RDONLY));
  // Its compile cache would be there: nothing of another worker is, and what it leaves nobody
  // finds.
  const std::string left = variable("HOME") + "/.sluice-evil-cache";
  if (variable("SLUICE_EVIL_FILTER") == "nvidia") {
    say("find what another left", ::access(left.c_str(), F_OK) == 0, left);
    const int kept = ::open(left.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
    say("have no folder of its own", kept < 0, left);
  }
  if (!std::getenv("SLUICE_EVIL_CACHE"))
    say("share a compile cache", !variable("CUDA_CACHE_PATH").empty(), "");
  call("mount", ::mount("none", "/tmp", "tmpfs", 0, nullptr));
  long others = 0;
  if (DIR* d = ::opendir("/proc")) {
    while (const dirent* e = ::readdir(d))
      if (const long pid = std::atol(e->d_name); pid > 0 && pid != ::getpid()) ++others;
    ::closedir(d);
  }
  say("see other processes", others > 0, std::to_string(others) + " of them");
}

// Of the folder that its vGPU's workers share: no more than it may have, and nothing outside it.
void code_cache(const std::string& vgpu) {
  const char* bytes = std::getenv("SLUICE_EVIL_CACHE");
  const std::string folder = variable("CUDA_CACHE_PATH");
  if (!bytes || folder.empty()) return;
  for (const char* other : {"a", "b", "c"})
    if (vgpu != other)
      say("find another vGPU's code", ::access((folder + "/of-" + other).c_str(), F_OK) == 0,
          other);
  const int own = ::open((folder + "/of-" + vgpu).c_str(), O_RDWR | O_CREAT, 0666);
  say("have no cache", own < 0, ::strerror(errno));
  call("list others' caches", ::open("/run/codes", O_RDONLY | O_DIRECTORY));
  call("have one of others", ::open("/run/codes/0", O_RDONLY | O_DIRECTORY));
  call("climb out of it", ::open((folder + "/../evil").c_str(), O_WRONLY | O_CREAT, 0666));
  const char* const targets[] = {"/run/codes/0", "/etc/shadow", "/proc/1/root/etc/shadow",
                                 "/run/codes/../../etc/passwd"};
  for (const char* target : targets) {
    const std::string link = folder + "/link-" + std::to_string(&target - targets);
    [[maybe_unused]] int r = ::symlink(target, link.c_str());
    call("follow a link out of it", ::open(link.c_str(), O_RDONLY));
  }
  call("a hard link of a library",
       ::syscall(SYS_linkat, AT_FDCWD, "/proc/self/exe", AT_FDCWD, (folder + "/exe").c_str(), 0));
  call("a pipe in it", ::syscall(SYS_mknodat, AT_FDCWD, (folder + "/p").c_str(), 0010666, 0));
  call("a device in it", ::syscall(SYS_mknodat, AT_FDCWD, (folder + "/d").c_str(), 0020666, 0x101));
  call("code of it",
       ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, own, 0) == MAP_FAILED ? -1 : 0);
  // A file may be of any length, as long as nothing is in it; what is in it counts.
  [[maybe_unused]] int grown = ::ftruncate(own, 1l << 40);
  call("all memory at once", ::syscall(SYS_fallocate, own, 0, 0, 1l << 40));
  const std::string block(64 << 10, 'x');
  long written = 0;
  for (ssize_t n; written < (1l << 30) && (n = ::write(own, block.data(), block.size())) > 0;)
    written += n;
  say("more than it may have", written > std::atol(bytes), std::to_string(written));
  int made = 0;
  while (made < 20'000) {
    const int file = ::open((folder + "/f" + std::to_string(made)).c_str(), O_WRONLY | O_CREAT, 0);
    if (file < 0) break;
    ::close(file);
    ++made;
  }
  say("more files than it may have", made == 20'000, std::to_string(made));
}

// What it was given with Start, and what sluiced or others have as well.
void given(const std::vector<Fd>& fds) {
  const int host = fds[kHostFd].get(), region = fds[kRegionFd].get();
  call("write the host page", ::syscall(SYS_pwrite64, host, "x", 1, 0));
  call("a hole in the host page", ::fallocate(host, 3, 0, 4096));
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, host, 0);
  call("make the host page writable", ::mprotect(page, 4096, PROT_READ | PROT_WRITE));
  page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, host, 0);
  call("map the host page to write", page == MAP_FAILED ? -1 : 0);
  call("open the host page again",
       ::open(("/proc/self/fd/" + std::to_string(host)).c_str(), O_RDWR | O_TRUNC));
  for (int fd : {host, region, fds[kReportFd].get(), fds[kRecordsFd].get()}) {
    call("cut it short", ::syscall(SYS_ftruncate, fd, 0));
    call("let it grow", ::syscall(SYS_fallocate, fd, 0, 1l << 40, 4096));
    call("seal it", ::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
  }
  // To sluiced, and to itself: sockets on their way in sockets cost others time.
  const PassedDescriptor message(region);
  for (int to : {kControlFd, fds[kRingFd].get()})
    call("send a descriptor", ::sendmsg(to, &message.header(), MSG_DONTWAIT | MSG_NOSIGNAL));
  mmsghdr several{message.header(), 0};
  call("send several", ::syscall(SYS_sendmmsg, kControlFd, &several, 1, MSG_DONTWAIT));
}

void sockets() {
  Fd admin, other;
  const long connected = connect_to(variable("SLUICE_EVIL_ADMIN"), false, admin);
  call("reach the admin socket", connected);
  if (connected == 0) {
    const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vgpu.set\",\"params\":{\"name\":\"a\","
        "\"weight\":9999}}\n";
    char answer[4096] = "";
    [[maybe_unused]] auto n = ::send(admin.get(), request, sizeof request - 1, MSG_NOSIGNAL);
    const ssize_t got = ::recv(admin.get(), answer, sizeof answer - 1, 0);
    say("set its own weight", got > 0 && std::strstr(answer, "\"result\""), answer);
  }
  call("an abstract socket of the host", connect_to(variable("SLUICE_EVIL_ABSTRACT"), true, other));
  Fd tcp(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(std::atoi(variable("SLUICE_EVIL_PORT").c_str())));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  call("the network", ::connect(tcp.get(), reinterpret_cast<sockaddr*>(&a), sizeof a));
  call("a netlink socket", ::socket(AF_NETLINK, SOCK_RAW, 0));
}

// Whether the filter refused it, and not the kernel because this host has none of it.
void only_the_filter(const char* name, long result) {
  say(name, result >= 0 || errno != EPERM, result < 0 ? ::strerror(errno) : "it worked");
}

// The host's memory beyond what is counted as its own.
void memory(bool nvidia) {
  constexpr size_t kHuge = 2u << 20;
  only_the_filter("huge pages", ::syscall(SYS_mmap, nullptr, kHuge, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0));
  only_the_filter("a file of huge pages", ::syscall(SYS_memfd_create, "x", MFD_HUGETLB));
  void* own = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  only_the_filter("pages merged with others'", ::syscall(SYS_madvise, own, 4096, MADV_MERGEABLE));
  // The kernel reads the lower half of the register only.
  only_the_filter("the same, hidden",
                  ::syscall(SYS_madvise, own, 4096, (1ul << 32) | MADV_MERGEABLE));
  call("be ended last", ::open("/proc/self/oom_score_adj", O_WRONLY));
  for (const char* file : {"cgroup.procs", "memory.max", "cgroup.kill"})
    call("a file of cgroups", ::open((std::string("/sys/fs/cgroup/") + file).c_str(), O_WRONLY));
  call("who else is here", ::open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY));
  call("RPM's lock", ::open("/usr/lib/sysimage", O_RDONLY | O_DIRECTORY));
  if (!nvidia) return;
  int made = 0;
  for (; made < 20'000; ++made) {
    const std::string path = variable("HOME") + "/.sluice-evil-" + std::to_string(made);
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (file < 0) break;
    ::close(file);
  }
  say("files without end", made == 20'000, std::to_string(made));
}

// What only a list of what is allowed is sure to refuse: each call of the kernel that no part of a
// worker makes. Arguments with which most would succeed, or fail otherwise, without the filter.
void rarely_called(char* buffer) {
  struct {
    const char* name;
    long number;
    long arguments[5];
  } const tries[] = {
      {"open_by_handle_at", SYS_open_by_handle_at, {AT_FDCWD, long(buffer), 0}},
      {"name_to_handle_at",
       SYS_name_to_handle_at,
       {AT_FDCWD, long("/"), long(buffer), long(buffer), 0}},
      {"pidfd_getfd", SYS_pidfd_getfd, {0, 0, 0}},
      {"pidfd_send_signal", SYS_pidfd_send_signal, {0, 0, 0, 0}},
      {"process_madvise", SYS_process_madvise, {0, long(buffer), 1, 4, 0}},
      {"landlock", SYS_landlock_create_ruleset, {0, 0, 1}},
      {"seccomp", SYS_seccomp, {2, 0, long(buffer)}},
      {"setns", SYS_setns, {0, 0}},
      {"chroot", SYS_chroot, {long("/")}},
      {"pivot_root", SYS_pivot_root, {long("."), long(".")}},
      {"umount", SYS_umount2, {long("/proc"), 2}},
      {"open_tree", SYS_open_tree, {AT_FDCWD, long("/"), 0}},
      {"move_mount", SYS_move_mount, {0, long(""), AT_FDCWD, long("/"), 0}},
      {"mount_setattr", SYS_mount_setattr, {AT_FDCWD, long("/"), 0, long(buffer), 32}},
      {"fsmount", SYS_fsmount, {0, 0, 0}},
      {"fspick", SYS_fspick, {AT_FDCWD, long("/"), 0}},
      {"fanotify", SYS_fanotify_init, {0, 0}},
      {"inotify", SYS_inotify_init1, {0}},
      {"quotactl", SYS_quotactl, {0, 0, 0, long(buffer)}},
      {"vmsplice", SYS_vmsplice, {1, long(buffer), 0, 0}},
      {"splice", SYS_splice, {0, 0, 1, 0, 0}},
      {"tee", SYS_tee, {0, 1, 1, 0}},
      {"aio", SYS_io_setup, {1, long(buffer)}},
      {"io_uring_enter", SYS_io_uring_enter, {0, 0, 0, 0, 0}},
      {"add_key", SYS_add_key, {long("user"), long("x"), long("y"), 1, -3}},
      {"request_key", SYS_request_key, {long("user"), long("x"), 0, -3}},
      {"memfd_secret", 447, {0}},
      {"timer", SYS_timer_create, {0, 0, long(buffer)}},
      {"timerfd", SYS_timerfd_create, {1, 0}},
      {"signalfd", SYS_signalfd4, {-1, long(buffer), 8, 0}},
      {"setitimer", SYS_setitimer, {0, long(buffer), 0}},
      {"alarm", SYS_alarm, {0}},
      {"setuid", SYS_setuid, {long(::getuid())}},
      {"setgroups", SYS_setgroups, {0, 0}},
      {"setsid", SYS_setsid, {}},
      {"setpriority", SYS_setpriority, {0, 0, 19}},
      {"ioprio", SYS_ioprio_set, {1, 0, 0x6000}},
      {"sched_setscheduler", SYS_sched_setscheduler, {0, 0, long(buffer)}},
      {"sched_setattr", SYS_sched_setattr, {0, long(buffer), 0}},
      {"capset", SYS_capset, {long(buffer), 0}},
      {"semaphores", SYS_semget, {77, 1, 01666}},
      {"shared memory", SYS_shmget, {77, 4096, 01666}},
      {"mq_open", SYS_mq_open, {long("x"), O_RDONLY}},
      {"mknod", SYS_mknod, {long("/tmp/sluice-evil"), 0100644, 0}},
      {"a hard link", SYS_link, {long("/proc/self/exe"), long("/tmp/sluice-evil")}},
      {"chown", SYS_fchown, {0, 0, 0}},
      {"an attribute", SYS_fsetxattr, {0, long("user.x"), long("y"), 1, 0}},
      {"syslog", SYS_syslog, {10, 0, 0}},
      {"a module", SYS_finit_module, {0, long(""), 0}},
      {"kexec", SYS_kexec_load, {0, 0, 0, 0}},
      {"reboot", SYS_reboot, {0, 0, 0}},
      {"swapoff", SYS_swapoff, {long("/")}},
      {"the clock", SYS_clock_settime, {0, long(buffer)}},
      {"adjtimex", SYS_adjtimex, {long(buffer)}},
      {"a host name", SYS_sethostname, {long("x"), 1}},
      {"ports", SYS_iopl, {3}},
      {"accounting", SYS_acct, {0}},
      {"migrate_pages", SYS_migrate_pages, {0, 0, long(buffer), long(buffer)}},
      {"move_pages", SYS_move_pages, {0, 0, 0, 0, 0}},
      {"remap_file_pages", SYS_remap_file_pages, {0, 0, 0, 0, 0}},
      {"sendfile", SYS_sendfile, {1, 0, 0, 0}},
      {"a call that is none", 511, {}},
  };
  for (const auto& t : tries) {
    const long* a = t.arguments;
    const long result = ::syscall(static_cast<long>(t.number), a[0], a[1], a[2], a[3], a[4]);
    // Whether the filter refused it, or the kernel by its own rules, shows here only.
    const bool by_filter = result < 0 && (errno == ENOSYS || errno == EPERM);
    say(t.name, !by_filter, result < 0 ? ::strerror(errno) : std::to_string(result));
  }
}

void kernel(bool nvidia) {
  char buffer[256] = {};
  call("io_uring", ::syscall(SYS_io_uring_setup, 4, buffer));
  call("userfaultfd", ::syscall(323, 0));
  call("bpf", ::syscall(SYS_bpf, 5, buffer, sizeof buffer));
  call("perf", ::syscall(SYS_perf_event_open, buffer, 0, -1, -1, 0));
  call("keyctl", ::syscall(SYS_keyctl, 0, -3, 1, 0, 0));
  call("personality", ::syscall(SYS_personality, 0x0400000));
  call("modify_ldt", ::syscall(SYS_modify_ldt, 0, buffer, sizeof buffer));
  call("kcmp", ::syscall(SYS_kcmp, ::getpid(), ::getpid(), 0, 2, 3));
  call("the new mount calls", ::syscall(SYS_fsopen, "tmpfs", 0));
  call("a message queue", ::syscall(SYS_msgget, 77, 01666));
  // The sandbox's own lines have been seen by now, and would keep ours out.
  if (nvidia) ::dup2(0, STDERR_FILENO);
  rarely_called(buffer);
  for (int family : {AF_ALG, AF_VSOCK, AF_PACKET, AF_INET6, AF_KEY, AF_BLUETOOTH, AF_XDP}) {
    const std::string name = "a socket of family " + std::to_string(family);
    call(name.c_str(), ::socket(family, SOCK_DGRAM, 0));
  }
  int ends[2] = {-1, -1};
  if (::pipe(ends) == 0) {
    call("characters for a terminal", ::syscall(SYS_ioctl, ends[0], 0x5412, buffer));
    call("signals of a file", ::syscall(SYS_ioctl, ends[0], 0x5452, buffer));
    call("a file's flags", ::syscall(SYS_ioctl, ends[0], 0x80086601, buffer));
    call("interfaces by ioctl", ::syscall(SYS_ioctl, ends[0], 0x8910, buffer));
  }
  if (nvidia) return;  // its driver compiles
  void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  call("executable memory", p == MAP_FAILED ? -1 : 0);
  call("make sluiced's descriptors block", ::fcntl(kControlFd, F_SETFL, 0));
}

}  // namespace

int main() {
  const FirstPacket packet = peek_first_packet();
  const std::string vgpu = packet.start.vgpu;
  if (vgpu != "a" && vgpu != "c") become_the_real_worker();
  const std::vector<Fd> start_fds = receive_start();
  if (::dup2(STDERR_FILENO, 10) != 10) return kNotMapped;
  const bool nvidia = variable("SLUICE_EVIL_FILTER") == "nvidia";
  enter_sandbox_and_report(nvidia);
  const pid_t victim = std::atoi(variable("SLUICE_EVIL_VICTIM").c_str());
  processes(victim);
  given(start_fds);
  files(victim);
  code_cache(vgpu);
  sockets();
  memory(nvidia);
  kernel(nvidia);
  say("END", false, std::to_string(attempts) + " attempts");
  // Deadly where it is refused.
  if (variable("SLUICE_EVIL_TRACE") == "1")
    call("trace another", ::ptrace(PTRACE_ATTACH, victim, 0, 0));
  for (;;) ::pause();
}
