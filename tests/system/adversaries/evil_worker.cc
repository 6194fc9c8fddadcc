// A worker that a guest has taken over: it is started by sluiced, enters the sandbox as a worker does,
// says Ready, and then tries what such a one would. One line an attempt on its standard error:
// "evil NAME: refused (why)" or "evil NAME: DONE (what)". Workers of vGPUs other than `a` become the
// real program, so that a victim has one.
//
//   SLUICE_EVIL_REAL    the real worker
//   SLUICE_EVIL_FILTER  soft or nvidia
//   SLUICE_EVIL_VICTIM  pid of a process of the host that is not ours
//   SLUICE_EVIL_ADMIN   the admin socket; SLUICE_EVIL_FOLDER a folder of root's; SLUICE_EVIL_PORT a TCP
//                       port of this host; SLUICE_EVIL_ABSTRACT an abstract socket's name
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

#include "mediator/base/unix_socket.h"
#include "mediator/core/worker_protocol.h"
#include "mediator/worker/process/sandbox.h"

using namespace sluice;
using namespace sluice::worker_protocol;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void say(const char* name, bool done, const std::string& what) {
  const std::string line = std::string("evil ") + name + ": " + (done ? "DONE" : "refused") + " (" + what + ")\n";
  [[maybe_unused]] auto n = ::write(2, line.data(), line.size());
}
void call(const char* name, long result) { say(name, result >= 0, result >= 0 ? std::to_string(result) : ::strerror(errno)); }

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
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + abstract + name.size() + !abstract);
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
  make_process("clone into namespaces", [] { return ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0); });
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
  call("write a file of root's", ::open((folder + "/evil").c_str(), O_WRONLY | O_CREAT, 0644));
  call("write /etc/cron.d", ::open("/etc/cron.d/.sluice-evil", O_WRONLY | O_CREAT | O_TMPFILE, 0644));
  call("write a library", ::open("/usr/lib/sluice-evil", O_WRONLY | O_CREAT, 0644));
  const std::string proc = "/proc/" + std::to_string(victim);
  call("another's memory", ::open((proc + "/mem").c_str(), O_RDWR));
  call("another's environment", ::open((proc + "/environ").c_str(), O_RDONLY));
  call("mount", ::mount("none", "/tmp", "tmpfs", 0, nullptr));
  long others = 0;
  if (DIR* d = ::opendir("/proc")) {
    while (const dirent* e = ::readdir(d))
      if (const long pid = std::atol(e->d_name); pid > 0 && pid != ::getpid()) ++others;
    ::closedir(d);
  }
  say("see other processes", others > 0, std::to_string(others) + " of them");
}

void sockets() {
  Fd admin, other;
  const long connected = connect_to(variable("SLUICE_EVIL_ADMIN"), false, admin);
  call("reach the admin socket", connected);
  if (connected == 0) {
    const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vgpu.set\",\"params\":{\"name\":\"a\",\"weight\":9999}}\n";
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
  if (nvidia) return;  // its driver compiles
  void* p = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  call("executable memory", p == MAP_FAILED ? -1 : 0);
  call("make sluiced's descriptors block", ::fcntl(kControlFd, F_SETFL, 0));
}

}  // namespace

int main() {
  struct {
    Message message;
    Start start;
  } packet{};
  if (::recv(kControlFd, &packet, sizeof packet, MSG_PEEK) != ssize_t{sizeof packet}) return 90;
  const std::string real = variable("SLUICE_EVIL_REAL");
  if (std::strcmp(packet.start.vgpu, "a") != 0) {
    ::execl(real.c_str(), "sluice-worker", nullptr);
    return 91;
  }
  auto start = receive_with_fds(kControlFd, &packet, sizeof packet);
  if (!start) return 92;
  const bool nvidia = variable("SLUICE_EVIL_FILTER") == "nvidia";
  if (auto r = worker::enter_sandbox(nvidia); !r) return 93;
  Message ready{};
  ready.type = Type::kReady;
  if (!send_with_fds(kControlFd, &ready, sizeof ready, {})) return 94;
  const pid_t victim = std::atoi(variable("SLUICE_EVIL_VICTIM").c_str());
  processes(victim);
  files(victim);
  sockets();
  kernel(nvidia);
  say("END", false, "of attempts");
  // Deadly where it is refused.
  if (variable("SLUICE_EVIL_TRACE") == "1") call("trace another", ::ptrace(PTRACE_ATTACH, victim, 0, 0));
  for (;;) ::pause();
}
