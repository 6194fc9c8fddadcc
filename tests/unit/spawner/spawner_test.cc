// SPDX-License-Identifier: Apache-2.0
// sluice-spawner as sluiced sees it: what it takes and refuses, what becomes of processes that an
// earlier sluiced has left, and that a stranger's process is never ended.
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <map>

#include "mediator/core/spawner_protocol.h"
#include "mediator/spawner/kernel_log.h"
#include "mediator/spawner/running_file.h"
#include "mediator/spawner/walls/prison.h"
#include "mediator/spawner/walls/root.h"
#include "tests/support/test_daemon.h"

namespace sluice::test {
namespace {

using spawner::ProcessMark;
using spawner::RunningFile;
using spawner_protocol::Packet;
using spawner_protocol::Type;

TEST(SpawnerRoot, ShowsTheDevicesThatCompute) {
  for (const char* name : {"nvidiactl", "nvidia0", "nvidia15", "nvidia-uvm", "nvidia-caps"})
    EXPECT_TRUE(spawner::computes(name)) << name;
  for (const char* name : {"nvidia", "nvidia-modeset", "nvidia-nvswitchctl", "nvidia-nvswitch0",
                           "nvidia-fs0", "nvidia-uvm-tools", "nvidia-vgpuctl", "nvidia0x", "sda"})
    EXPECT_FALSE(spawner::computes(name)) << name;
}

TEST(SpawnerProtocol, WhatIsEncodedIsDecodedAndTheRestIsNot) {
  Packet p;
  p.header.type = Type::kSetup;
  p.header.id = 7;
  p.add("env", "A=b=c");
  p.add("env", "");
  p.add("worker", "/x");
  auto q = spawner_protocol::decode(spawner_protocol::encode(p));
  ASSERT_TRUE(q);
  EXPECT_EQ(q->header.id, 7u);
  EXPECT_EQ(q->all("env"), (std::vector<std::string>{"A=b=c", ""}));
  EXPECT_EQ(q->one("worker"), "/x");
  const std::string good = spawner_protocol::encode(p);
  for (size_t n = 0; n < sizeof p.header; ++n)
    EXPECT_FALSE(spawner_protocol::decode(good.substr(0, n)));
  EXPECT_FALSE(spawner_protocol::decode(good + "no end"));
  EXPECT_FALSE(spawner_protocol::decode(good + std::string(spawner_protocol::kMaxBytes, '\0')));
  p.header.version += 1;
  EXPECT_FALSE(spawner_protocol::decode(spawner_protocol::encode(p)));
}

TEST(WorkerEnvironment, HasNoCompileCacheThatOthersShare) {
  const std::vector<std::string> given = {"HOME=/root", "CUDA_CACHE_PATH=/dev/shm",
                                          "CUDA_CACHE_DISABLE=0", "CUDA_VISIBLE_DEVICES=1"};
  EXPECT_EQ(
      spawner::worker_environment(given, false),
      (std::vector<std::string>{"HOME=/root", "CUDA_VISIBLE_DEVICES=1", "CUDA_CACHE_DISABLE=1"}));
  const std::string own = spawner::kOwnFolder;
  EXPECT_EQ(spawner::worker_environment(given, true),
            (std::vector<std::string>{"CUDA_CACHE_DISABLE=0", "CUDA_VISIBLE_DEVICES=1",
                                      "HOME=" + own, "TMPDIR=" + own}));
}

TEST(SpawnerProtocol, UidRanges) {
  auto r = spawner_protocol::parse_uids("5-9");
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->contains(5) && r->contains(9) && !r->contains(4) && !r->contains(10));
  EXPECT_EQ(r->count(), 5u);
  for (const char* bad :
       {"", "5", "-5", "5-", "9-5", "0-5", "a-b", "5-9x", "5--9", "1-4294967294", "1-99999999999"})
    EXPECT_FALSE(spawner_protocol::parse_uids(bad)) << bad;
}

TEST(KernelLog, TakesTheKernelsXidsAndNothingElse) {
  using spawner::parse_xid;
  auto xid = parse_xid(
      "4,1201,88,-;NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python3, Ch 00000008, intr 1");
  ASSERT_TRUE(xid);
  EXPECT_EQ(xid->number, 31);
  EXPECT_EQ(xid->pid, 4711);
  xid = parse_xid("3,9,9,-;NVRM: Xid (PCI:0000:41:00): 13, pid='77', name=x, Graphics SM Warp");
  ASSERT_TRUE(xid);
  EXPECT_EQ(xid->pid, 77);
  for (const char* other :
       {// A program's own line: facility "user", or "daemon".
        "12,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=x",
        "30,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=x",
        // A name that reads like an Xid.
        "4,1,1,-;traps: NVRM: Xid (PCI:0000:01:00): 31, pid=4711[3] trap invalid opcode",
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus. pid=4711",
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 13, pid='<unknown>', name=a, pid=4711",
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=-1, name=x",
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=x",
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=99999999999999999999, name=x",
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31", "4,1,1,-;NVRM: Xid (PCI:", "4,1,1,-;", "4", "",
        " SUBSYSTEM=pci", ";NVRM: Xid (PCI:0000:01:00): 31, pid=4711"})
    EXPECT_FALSE(parse_xid(other)) << other;
}

TEST(KernelLog, RecordsInPiecesAndFloodsAndWhatIsNoLog) {
  using spawner::KernelLog;
  TempDir dir;
  EXPECT_FALSE(KernelLog::open(dir.path + "/none").ok());
  EXPECT_FALSE(KernelLog::open(dir.path).ok());
  std::ofstream(dir.path + "/file") << "x";
  EXPECT_FALSE(KernelLog::open(dir.path + "/file").ok()) << "it would be read again and again";
  const std::string pipe = dir.path + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto log = KernelLog::open(pipe);
  ASSERT_TRUE(log.ok()) << log.error().message;
  Fd writer(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK));
  std::vector<pid_t> seen;
  auto write = [&](const std::string& text) {
    ASSERT_EQ(::write(writer.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ASSERT_TRUE(log->read([&](const spawner::Xid& x) { seen.push_back(x.pid); }));
  };
  write("4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pi");
  EXPECT_TRUE(seen.empty());
  write("d=5, name=x\n SUBSYSTEM=pci\n4,2,1,-;NVRM: Xid (PCI:0000:01:00): 13, pid=6, name=x\n");
  EXPECT_EQ(seen, (std::vector<pid_t>{5, 6}));
  for (int i = 0; i < 20; ++i) write(std::string(4000, 'x'));  // no end: forgotten, not kept
  write("\n4,3,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=7, name=x\n");
  EXPECT_EQ(seen.back(), 7);
}

// A process that sleeps for ever.
pid_t sleeper() {
  const pid_t pid = ::fork();
  if (pid == 0)
    for (;;) ::pause();
  return pid;
}
bool runs(pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == 0; }

// What an earlier spawner has written down, without that spawner.
void write_down(const std::string& folder, int proc, const std::vector<ProcessMark>& marks) {
  auto f = RunningFile::take(folder, proc, ::getppid());
  ASSERT_TRUE(f.ok()) << f.error().message;
  for (size_t i = 0; i < marks.size(); ++i) f->set_worker(i * 7, marks[i]);
}

// The header of the file holds who wrote it; a test that plays both must not find itself there.
void forget_who_wrote(const std::string& folder, const ProcessMark& spawner) {
  const std::string name = folder + "/workers";
  std::ifstream in(name, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string us(reinterpret_cast<const char*>(&spawner), sizeof spawner);
  const size_t at = bytes.find(us);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, us.size(), us.size(), '\0');
  std::ofstream(name, std::ios::binary) << bytes;
}

TEST(RunningFile, EndsWhatAnEarlierOneLeftAndNothingElse) {
  TempDir dir;
  Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY));
  const pid_t worker = sleeper(), stopped = sleeper(), foreign = sleeper();
  ::kill(stopped, SIGSTOP);
  ProcessMark other = spawner::mark_of(proc.get(), foreign);
  ASSERT_EQ(other.pid, foreign);
  other.started += 1;  // that pid, but another process: it has been used again since
  write_down(dir.path, proc.get(),
             {spawner::mark_of(proc.get(), worker),
              spawner::mark_of(proc.get(), stopped),
              other,
              {1, 0},
              {-1, 5}});
  forget_who_wrote(dir.path, spawner::mark_of(proc.get(), ::getpid()));
  auto f = RunningFile::take(dir.path, proc.get(), ::getppid());
  ASSERT_TRUE(f.ok()) << f.error().message;
  EXPECT_EQ(f->ended(), 2u);
  EXPECT_EQ(f->stuck(), 0u);
  EXPECT_FALSE(runs(worker));
  EXPECT_FALSE(runs(stopped));
  EXPECT_TRUE(runs(foreign)) << "a process that only has the same number was ended";
  ::kill(foreign, SIGKILL);
  ::waitpid(foreign, nullptr, 0);
}

TEST(RunningFile, OfAnotherBootOrNoSenseIsEmpty) {
  TempDir dir;
  Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY));
  std::ofstream(dir.path + "/workers") << std::string(100'000, 'x');
  auto f = RunningFile::take(dir.path, proc.get(), ::getppid());
  ASSERT_TRUE(f.ok()) << f.error().message;
  EXPECT_EQ(f->ended(), 0u);
}

// Waits until the process runs the program of this name.
bool becomes(int64_t pid, const std::string& program) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (std::string name; name != program;) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::ifstream("/proc/" + std::to_string(pid) + "/comm") >> name;
  }
  return true;
}

// The program itself, with the test as sluiced.
class SpawnerProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    link_.reset(pair[0]);
    Fd theirs(pair[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(theirs.get(), spawner_protocol::kControlFd);
      become_host();
      ::execl(SLUICE_TEST_SPAWNER, "sluice-spawner", nullptr);
      ::_exit(127);
    }
  }
  // In the spawner's process, before it is the program.
  virtual void become_host() {}
  void TearDown() override {
    ours_.reset();
    link_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  void send(const Packet& p, std::vector<int> fds = {}) { send_on(ours_, p, fds); }
  void send_on(const Fd& socket, const Packet& p, std::vector<int> fds = {}) {
    const std::string bytes = spawner_protocol::encode(p);
    ASSERT_TRUE(send_with_fds(socket.get(), bytes.data(), bytes.size(), fds).ok());
  }
  // nullopt: it hung up.
  std::optional<Packet> answer() { return answer_on(ours_); }
  std::optional<Packet> answer_on(const Fd& socket) {
    pollfd wait{socket.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&wait, 1, 60'000), 1);
    std::string bytes(spawner_protocol::kMaxBytes, '\0');
    auto got = receive_with_fds(socket.get(), bytes.data(), bytes.size());
    if (!got || got->bytes == 0) return std::nullopt;
    fds_ = std::move(got->fds);
    return spawner_protocol::decode(std::string_view(bytes.data(), got->bytes));
  }
  void set_up(const std::string& program, const std::string& uids = "2000000000-2000000001",
              const std::string& kernel_log = "") {
    Packet p;
    if (!kernel_log.empty()) p.add("kernel-log", kernel_log);
    p.header.type = Type::kSetup;
    p.add("runtime", dir_.path);
    p.add("worker", program);
    p.add("library", "/none");
    p.add("uids", uids);
    p.add("env", "PATH=/usr/bin");
    send_on(link_, p);
    launch();
    expect_hello();
  }
  // Asks the keeper for a spawner.
  void launch() {
    Packet p;
    p.header.type = Type::kLaunch;
    send_on(link_, p);
    auto launched = answer_on(link_);
    ASSERT_TRUE(launched);
    ASSERT_EQ(launched->header.type, Type::kLaunched);
    ASSERT_EQ(fds_.size(), 1u);
    spawner_ = static_cast<pid_t>(launched->header.pid);
    ours_ = std::move(fds_[0]);
  }
  void expect_hello() {
    auto hello = answer();
    ASSERT_TRUE(hello);
    ASSERT_EQ(hello->header.type, Type::kHello);
    ASSERT_EQ(hello->header.code, 0) << hello->one("error");
  }
  void spawn(uint64_t id) {
    Packet p;
    p.header.type = Type::kSpawn;
    p.header.id = id;
    Fd null(::open("/dev/null", O_RDWR));
    send(p, {null.get(), null.get()});
  }
  int status() {
    int s = 0;
    ::waitpid(pid_, &s, 0);
    pid_ = -1;
    return s;
  }

  TempDir dir_;
  Fd link_, ours_;  // to the keeper, to the spawner
  std::vector<Fd> fds_;
  pid_t pid_ = -1, spawner_ = -1;
};

TEST_F(SpawnerProgram, StartsKillsAndReports) {
  set_up("/usr/bin/cat");  // which ends at once: its input is /dev/null
  spawn(1);
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  EXPECT_EQ(spawned->header.type, Type::kSpawned);
  EXPECT_EQ(fds_.size(), 1u);
  auto exited = answer();
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->header.type, Type::kExited);
  EXPECT_EQ(exited->header.id, 1u);
  EXPECT_EQ(exited->header.flag, 0u);
}

TEST_F(SpawnerProgram, AWorkerThatDoesNotReadItsKillIsKilled) {
  set_up("/usr/bin/yes");
  spawn(1);
  ASSERT_TRUE(answer());
  Packet kill;
  kill.header.type = Type::kKill;
  kill.header.id = 99;  // of none
  send(kill);
  kill.header.id = 1;
  send(kill);
  auto exited = answer();
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->header.id, 1u);
}

// A number for each question, whatever this host counts, also of a worker that there is not.
TEST_F(SpawnerProgram, SaysForHowLongAWorkerHadNoProcessor) {
  set_up("/usr/bin/yes");
  spawn(1);
  ASSERT_TRUE(answer());
  Packet ask;
  ask.header.type = Type::kAskStarved;
  for (const uint64_t id : {1, 99}) {
    ask.header.id = id;
    send(ask);
    auto starved = answer();
    ASSERT_TRUE(starved);
    EXPECT_EQ(starved->header.type, Type::kStarved);
    EXPECT_EQ(starved->header.id, id);
    EXPECT_TRUE(id == 1 || starved->header.ns == 0);
  }
}

TEST_F(SpawnerProgram, MoreThanThereAreUidsAreRefused) {
  set_up("/usr/bin/yes", "2000000000-2000000000");
  spawn(1);
  ASSERT_TRUE(answer());
  spawn(2);
  for (;;) {
    auto a = answer();
    ASSERT_TRUE(a);
    if (a->header.type == Type::kExited)
      break;  // it wrote into nothing, and ended: the uid is free
    EXPECT_EQ(a->header.type, Type::kFailed);
    EXPECT_EQ(a->header.id, 2u);
    EXPECT_EQ(a->header.code, EAGAIN);
    break;
  }
}

// Who takes all descriptors costs others no worker.
TEST_F(SpawnerProgram, WithoutDescriptorsOnlyTheNewWorkerIsRefused) {
  set_up("/usr/bin/yes");
  spawn(1);
  ASSERT_EQ(answer().value_or(Packet{}).header.type, Type::kSpawned);
  rlimit before;
  ASSERT_EQ(::prlimit(spawner_, RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{4, before.rlim_max};
  ASSERT_EQ(::prlimit(spawner_, RLIMIT_NOFILE, &none, nullptr), 0);
  spawn(2);
  const auto refused = answer();
  ASSERT_TRUE(refused) << "the spawner has ended";
  EXPECT_EQ(refused->header.type, Type::kFailed);
  EXPECT_EQ(refused->header.code, EMFILE);
  ASSERT_EQ(::prlimit(spawner_, RLIMIT_NOFILE, &before, nullptr), 0);
  spawn(3);
  const auto spawned = answer();
  ASSERT_TRUE(spawned);
  EXPECT_EQ(spawned->header.type, Type::kSpawned);
  EXPECT_EQ(spawned->header.id, 3u) << "and nothing of the first has ended";
}

TEST_F(SpawnerProgram, AMissingProgramIsReportedAsAnError) {
  set_up("/nonexistent/worker");
  spawn(5);
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  auto failed = answer();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->header.type, Type::kFailed);
  EXPECT_EQ(failed->header.code, ENOENT);
}

TEST_F(SpawnerProgram, WhatIsNoSetupEndsIt) {
  Packet p;
  p.header.type = Type::kLaunch;
  send_on(link_, p);
  EXPECT_FALSE(answer_on(link_));
  EXPECT_NE(status(), 0);
}

TEST_F(SpawnerProgram, ASetupThatMakesNoSenseIsReportedAsAnError) {
  Packet p;
  p.header.type = Type::kSetup;
  p.add("worker", "not/absolute");
  send_on(link_, p);
  launch();
  auto hello = answer();
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->header.type, Type::kHello);
  EXPECT_NE(hello->header.code, 0);
}

// What workers are is fixed once and for all: neither end takes a second Setup.
TEST_F(SpawnerProgram, ASecondSetupEndsTheSpawner) {
  set_up("/usr/bin/sleep");
  Packet p;
  p.header.type = Type::kSetup;
  p.add("worker", "/bin/sh");
  send(p);
  EXPECT_FALSE(answer());
}

TEST_F(SpawnerProgram, ASecondSetupEndsTheKeeper) {
  set_up("/usr/bin/sleep");
  Packet p;
  p.header.type = Type::kSetup;
  p.add("worker", "/bin/sh");
  send_on(link_, p);
  EXPECT_FALSE(answer_on(link_));
  EXPECT_NE(status(), 0);
  EXPECT_FALSE(answer()) << "its spawner ends with it";
}

// A Launch that names what to start is refused, too.
TEST_F(SpawnerProgram, ALaunchWithAProgramEndsTheKeeper) {
  set_up("/usr/bin/sleep");
  Packet p;
  p.header.type = Type::kLaunch;
  p.add("worker", "/bin/sh");
  send_on(link_, p);
  EXPECT_FALSE(answer_on(link_));
  EXPECT_NE(status(), 0);
}

TEST_F(SpawnerProgram, AFaultInTheKernelsLogIsReportedBeforeTheEnd) {
  const std::string pipe = dir_.path + "/kmsg";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  Fd writer(::open(pipe.c_str(), O_RDWR | O_NONBLOCK));
  set_up(SLUICE_FAKE_WORKER, "2000000000-2000000001", pipe);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  Fd mine(pair[0]), theirs(pair[1]);
  Packet p;
  p.header.type = Type::kSpawn;
  p.header.id = 9;
  send(p, {theirs.get(), theirs.get()});
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  auto line = [&](int64_t pid) {
    const std::string text =
        "4,1,1,-;NVRM: Xid (PCI:0000:01:00): 31, pid=" + std::to_string(pid) + ", name=x\n";
    ASSERT_GT(::write(writer.get(), text.data(), text.size()), 0);
  };
  line(::getpid());  // of nobody that it has started
  line(spawned->header.pid);
  auto said = answer();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->header.type, Type::kXid);
  EXPECT_EQ(said->header.id, 9u);
  EXPECT_EQ(said->header.code, 31);
}

TEST_F(SpawnerProgram, ADeadSpawnerIsReplacedWithTheSameSetup) {
  set_up("/usr/bin/cat");
  const pid_t first = spawner_;
  ::kill(first, SIGKILL);
  EXPECT_FALSE(answer());
  launch();
  EXPECT_NE(spawner_, first);
  expect_hello();
  spawn(1);
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  EXPECT_EQ(spawned->header.type, Type::kSpawned);
}

TEST_F(SpawnerProgram, AnIdUsedTwiceEndsIt) {
  // One that stays: it waits for its control socket.
  set_up(SLUICE_FAKE_WORKER);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  Fd mine(pair[0]), theirs(pair[1]);
  Packet p;
  p.header.type = Type::kSpawn;
  p.header.id = 3;
  send(p, {theirs.get(), theirs.get()});
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  ASSERT_EQ(fds_.size(), 1u);
  Fd pidfd = std::move(fds_[0]);
  send(p, {theirs.get(), theirs.get()});
  EXPECT_FALSE(answer());
  pollfd gone{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&gone, 1, 60'000), 1) << "its workers end with it";
}

// sluiced as a service without root, with the capabilities to change users as ambient ones, on a
// host without user namespaces. Ambient capabilities outlive a change of user and an exec.
class SpawnerWithAmbient : public SpawnerProgram {
 protected:
  static constexpr uid_t kService = 2000000100;
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "takes root";
    ASSERT_EQ(::chown(dir_.path.c_str(), kService, kService), 0);
    SpawnerProgram::SetUp();
  }
  static void refuse_unshare() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{4, filter};
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(126);
  }
  void become_host() override {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    refuse_unshare();
    ::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    if (::setgroups(0, nullptr) != 0 || ::setresgid(kService, kService, kService) != 0 ||
        ::setresuid(kService, kService, kService) != 0)
      ::_exit(126);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    const uint32_t users = 1u << CAP_SETUID | 1u << CAP_SETGID;
    data[0] = {users, users, users};
    if (::syscall(SYS_capset, &header, data) != 0) ::_exit(126);
    for (int capability : {CAP_SETUID, CAP_SETGID})
      if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0) ::_exit(126);
  }
};

// The lines of /proc/PID/status on capabilities: name and value.
std::map<std::string, uint64_t> capabilities_of(int64_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::map<std::string, uint64_t> all;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Cap")) all[line.substr(0, 6)] = std::stoull(line.substr(8), nullptr, 16);
  return all;
}

TEST_F(SpawnerWithAmbient, ItsWorkersHaveNone) {
  set_up("/usr/bin/yes");
  ASSERT_EQ(capabilities_of(spawner_)["CapAmb"], 1u << CAP_SETUID | 1u << CAP_SETGID);
  spawn(3);
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  ASSERT_EQ(spawned->header.type, Type::kSpawned);
  ASSERT_TRUE(becomes(spawned->header.pid, "yes"));
  for (const auto& [set, value] : capabilities_of(spawned->header.pid))
    if (set != "CapBnd") {  // what is not there any more is not gained again: no_new_privs
      EXPECT_EQ(value, 0u) << set;
    }
}

// Without CAP_KILL nobody there may signal a process of another uid, and the kernel's signal at a
// parent's end takes the same permission. `yes` reads nothing: it ends when it is killed only.
class SpawnerWithoutKill : public SpawnerWithAmbient {
 protected:
  void SetUp() override {
    SpawnerWithAmbient::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    set_up("/usr/bin/yes");
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    output_.reset(pair[0]);  // kept, and never read: `yes` blocks in a write
    Fd theirs(pair[1]);
    Packet p;
    p.header.type = Type::kSpawn;
    p.header.id = 3;
    send(p, {theirs.get(), theirs.get()});
    auto spawned = answer();
    ASSERT_TRUE(spawned);
    ASSERT_EQ(spawned->header.type, Type::kSpawned);
    ASSERT_EQ(fds_.size(), 1u);
    worker_ = std::move(fds_[0]);
    pid_of_worker_ = static_cast<pid_t>(spawned->header.pid);
    ASSERT_TRUE(becomes(pid_of_worker_, "yes"));
    struct stat st;
    ASSERT_EQ(::stat(("/proc/" + std::to_string(pid_of_worker_)).c_str(), &st), 0);
    ASSERT_NE(st.st_uid, kService) << "it has no uid of its own: nothing is tested";
  }
  void TearDown() override {
    // This test may: so that a failure leaves nothing behind.
    if (worker_) ::syscall(SYS_pidfd_send_signal, worker_.get(), SIGKILL, nullptr, 0);
    SpawnerWithAmbient::TearDown();
  }
  void expect_worker_ends() {
    pollfd gone{worker_.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&gone, 1, 60'000), 1) << "a worker of another uid was not ended";
  }

  Fd output_, worker_;
  pid_t pid_of_worker_ = -1;
};

TEST_F(SpawnerWithoutKill, AWorkerIsKilled) {
  Packet kill;
  kill.header.type = Type::kKill;
  kill.header.id = 3;
  send(kill);
  ASSERT_NO_FATAL_FAILURE(expect_worker_ends());
  auto exited = answer();
  ASSERT_TRUE(exited);
  EXPECT_EQ(exited->header.type, Type::kExited);
  EXPECT_EQ(exited->header.id, 3u);
  EXPECT_EQ(exited->header.code, SIGKILL);
}

TEST_F(SpawnerWithoutKill, WorkersEndWithSluiced) {
  ours_.reset();
  expect_worker_ends();
}

TEST_F(SpawnerWithoutKill, TheNextSpawnerEndsWhatIsLeft) {
  ::kill(spawner_, SIGKILL);
  EXPECT_FALSE(answer());
  launch();
  expect_hello();
  expect_worker_ends();
}

enum class Gone { kSpawner, kKeeper, kSluiced };
class SpawnerGone : public SpawnerProgram, public ::testing::WithParamInterface<Gone> {};

TEST_P(SpawnerGone, ItsWorkersEnd) {
  set_up(SLUICE_FAKE_WORKER);
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  Fd mine(pair[0]), theirs(pair[1]);
  Packet p;
  p.header.type = Type::kSpawn;
  p.header.id = 3;
  send(p, {theirs.get(), theirs.get()});
  ASSERT_TRUE(answer());
  Fd pidfd = std::move(fds_[0]);
  switch (GetParam()) {
    case Gone::kSpawner:
      ::kill(spawner_, SIGKILL);
      break;
    case Gone::kKeeper:
      ::kill(pid_, SIGKILL);
      break;
    case Gone::kSluiced:
      ours_.reset();
      link_.reset();
      break;
  }
  pollfd gone{pidfd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&gone, 1, 60'000), 1);
}
// A worker that reads nothing and does not look whether anybody is there: only the kernel ends it.
TEST_P(SpawnerGone, AWorkerThatDoesNotCareEnds) {
  set_up("/usr/bin/yes");
  spawn(3);
  auto spawned = answer();
  ASSERT_TRUE(spawned);
  ASSERT_EQ(fds_.size(), 1u);
  const Fd pidfd = std::move(fds_[0]);
  // Before it is the program, it waits for the spawner and would see its end.
  ASSERT_TRUE(becomes(spawned->header.pid, "yes"));
  switch (GetParam()) {
    case Gone::kSpawner:
      ::kill(spawner_, SIGKILL);
      break;
    case Gone::kKeeper:
      ::kill(pid_, SIGKILL);
      break;
    case Gone::kSluiced:
      ours_.reset();
      link_.reset();
      break;
  }
  pollfd gone{pidfd.get(), POLLIN, 0};
  const bool ended = ::poll(&gone, 1, 60'000) == 1;
  EXPECT_TRUE(ended);
  if (!ended) ::kill(static_cast<pid_t>(spawned->header.pid), SIGKILL);
}
INSTANTIATE_TEST_SUITE_P(OrKeeperOrSluiced, SpawnerGone,
                         ::testing::Values(Gone::kSpawner, Gone::kKeeper, Gone::kSluiced));

}  // namespace
}  // namespace sluice::test
