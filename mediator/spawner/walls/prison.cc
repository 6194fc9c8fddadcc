// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/walls/prison.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <link.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "mediator/base/capabilities.h"
#include "mediator/base/log.h"
#include "mediator/spawner/limits.h"
#include "mediator/spawner/walls/root.h"

namespace sluice::spawner {
namespace {

using spawner_protocol::kControlFd;
constexpr uint64_t kIntoCgroup = 0x200000000ull;  // CLONE_INTO_CGROUP; older headers lack it

void drop_all_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  ::syscall(SYS_capset, &header, data);
}

std::string folder_of(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

Result<void> write_file(const std::string& path, const std::string& text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Error::from_errno("write " + path);
  return {};
}

// Runs `work` in a child and returns the errno that it returns; 255: it died.
template <class F>
int in_child(F work) {
  const pid_t pid = ::fork();
  if (pid < 0) return errno;
  if (pid == 0) ::_exit(work());
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// This process into a user namespace in which it is root over itself and, if we may map them, over
// `uids`. A child that stays outside writes the maps. An errno, 0: done.
int unshare_user(const spawner_protocol::UidRange& uids, bool wide) {
  int ready[2];
  if (::pipe2(ready, O_CLOEXEC) != 0) return errno;
  const pid_t us = ::getpid();
  const unsigned uid = ::geteuid(), gid = ::getegid();
  const pid_t helper = ::fork();
  if (helper < 0) return errno;
  if (helper == 0) {
    ::close(ready[1]);
    char c;
    if (::read(ready[0], &c, 1) != 1) ::_exit(0);  // it could not
    const std::string proc = "/proc/" + std::to_string(us);
    auto map = [&](unsigned own) {
      std::string text = "0 " + std::to_string(own) + " 1\n";
      if (wide)
        text += std::to_string(uids.first) + " " + std::to_string(uids.first) + " " +
                std::to_string(uids.count()) + "\n";
      return text;
    };
    if (!wide)
      if (auto r = write_file(proc + "/setgroups", "deny"); !r) ::_exit(r.error().code);
    if (auto r = write_file(proc + "/uid_map", map(uid)); !r) ::_exit(r.error().code);
    if (auto r = write_file(proc + "/gid_map", map(gid)); !r) ::_exit(r.error().code);
    ::_exit(0);
  }
  ::close(ready[0]);
  const int failed = ::unshare(CLONE_NEWUSER) != 0 ? errno : 0;
  if (failed == 0) [[maybe_unused]]
    auto n = ::write(ready[1], "", 1);
  ::close(ready[1]);
  int status = 0;
  while (::waitpid(helper, &status, 0) < 0 && errno == EINTR) {
  }
  if (failed != 0) return failed;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// Whether a process of a new pid namespace may mount /proc: in a container the host's may be
// covered in part, and then the kernel refuses.
int try_proc() {
  return in_child([]() -> int {
    if (::unshare(CLONE_NEWNS | CLONE_NEWPID) != 0) return errno;
    return in_child([]() -> int {
      if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return errno;
      return ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0
                 ? errno
                 : 0;
    });
  });
}

// Where the loader finds a library by its name; empty: it does not. In a child: the library runs
// code of its own when it is loaded.
std::string where_is(const std::string& library) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "";
  Fd read(ends[0]), write(ends[1]);
  in_child([&]() -> int {
    void* handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
    link_map* map = nullptr;
    if (!handle || ::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) return 1;
    return ::write(write.get(), map->l_name, std::strlen(map->l_name)) < 0;
  });
  write.reset();
  char path[PATH_MAX];
  const ssize_t n = ::read(read.get(), path, sizeof path);
  return n > 0 && path[0] == '/' ? std::string(path, static_cast<size_t>(n)) : "";
}

std::string reason(int code) { return code == 255 ? "it could not be tried" : ::strerror(code); }

void set_limit(int which, rlim_t most) {
  rlimit limit;
  if (::getrlimit(static_cast<__rlimit_resource>(which), &limit) != 0) return;
  limit.rlim_max = std::min(limit.rlim_max, most);
  limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource>(which), &limit);
}

}  // namespace

std::vector<std::string> worker_environment(const std::vector<std::string>& given, bool own_root,
                                            const CodeCaches::Place* code) {
  std::vector<std::string> own = {own_root ? std::string("HOME=") + kOwnFolder : "",
                                  own_root ? std::string("TMPDIR=") + kOwnFolder : "",
                                  std::string("CUDA_CACHE_PATH=") + (code ? kCodeCache : ""),
                                  own_root ? "" : "CUDA_CACHE_DISABLE=1"};
  // The driver makes room by itself, before the folder is full.
  if (code) own.push_back("CUDA_CACHE_MAXSIZE=" + std::to_string(code->bytes / 8 * 7));
  auto name_of = [](const std::string& v) { return v.substr(0, v.find('=')); };
  std::vector<std::string> all;
  for (const std::string& v : given)
    if (std::none_of(own.begin(), own.end(),
                     [&](const std::string& o) { return !o.empty() && name_of(o) == name_of(v); }))
      all.push_back(v);
  for (const std::string& o : own)
    if (!o.empty() && o.back() != '=') all.push_back(o);
  return all;
}

Prison Prison::prepare(PrisonSpec spec, const std::string& no_cgroups) {
  Prison p(std::move(spec));
  p.proc_.reset(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  p.program_.reset(::open(p.spec_.worker.c_str(), O_PATH | O_CLOEXEC));
  if (const int code = in_child([&]() -> int { return p.be_ended_first() ? 0 : errno; }); code != 0)
    log::warning("spawner: when memory is short, workers are not ended first: {}", reason(code));
  if (!no_cgroups.empty()) p.lacks(Wall::kCgroup, no_cgroups);
  if (p.beside_mps()) p.lacks(Wall::kIpc, "clients of MPS share its IPC namespace");
  // No set-user-ID program can give back what is taken here, to us or to any worker.
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  p.find_missing_walls();
  RootSpec root = p.plan_root();
  if (p.has(Wall::kRoot)) p.move_into(std::move(root));
  if (p.has(Wall::kRoot)) p.landlock_.write.push_back(kOwnFolder);
  for (int capability = 0; capability < 64; ++capability)
    if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) break;
  return p;
}

void Prison::find_missing_walls() {
  // May we make namespaces, ourselves or as root of a user namespace?
  int refused = in_child([]() -> int { return ::unshare(CLONE_NEWNS) != 0 ? errno : 0; });
  if (refused != 0) {
    auto entered = enter_user_namespace();
    if (entered) refused = 0;
  }
  if (refused != 0)
    for (Wall w :
         {Wall::kPids, Wall::kRoot, Wall::kProc, Wall::kNetwork, Wall::kIpc, Wall::kHostName})
      lacks(w, "no namespaces: " + reason(refused) +
                   "; it takes root with CAP_SYS_ADMIN, or user namespaces");
  if (!has_capability(CAP_SETUID) || !has_capability(CAP_SETGID))
    lacks(Wall::kUser, "no CAP_SETUID and CAP_SETGID");
  if (const int version = landlock_version(); version == 0)
    lacks(Wall::kLandlock, "the kernel has no Landlock");
}

RootSpec Prison::plan_root() {
  RootSpec root;
  root.runtime_dir = spec_.runtime_dir;
  root.nvidia = spec_.nvidia;
  root.read = system_paths(spec_.nvidia);
  root.read.push_back(folder_of(spec_.worker));
  const std::string library = spec_.library[0] == '/' ? spec_.library : where_is(spec_.library);
  if (!library.empty()) root.read.push_back(folder_of(library));
  if (!library.empty() && library != spec_.library)
    log::info("spawner: {} is {}", spec_.library, library);
  root.read.insert(root.read.end(), spec_.see.begin(), spec_.see.end());
  if (beside_mps()) root.write = {spec_.mps, "/dev/shm"};
  landlock_.read = root.read;
  landlock_.read.push_back("/proc");
  landlock_.write = device_paths(spec_.nvidia);
  landlock_.write.insert(landlock_.write.end(), root.write.begin(), root.write.end());
  // NVIDIA's driver names its threads there; of others' files the kernel's own rules keep it.
  if (spec_.nvidia) landlock_.write.push_back("/proc");
  return root;
}

void Prison::move_into(RootSpec root) {
  if (const int code = try_proc(); code != 0) lacks(Wall::kProc, "mount /proc: " + reason(code));
  // In a user namespace the kernel lets one mount /proc only where one can be seen already.
  root.own_proc = has(Wall::kProc) && !in_user_namespace_;
  // First in a child: a root that is half built could not be left again.
  const int code = in_child([&]() -> int {
    if (::unshare(CLONE_NEWNS) != 0) return errno;
    auto built = enter_root(root);
    return built ? 0 : built.error().code;
  });
  if (code != 0) {
    lacks(Wall::kRoot, "a root folder of its own: " + reason(code));
    lacks(Wall::kProc, "it would cover the host's");
  } else if (::unshare(CLONE_NEWNS) == 0) {
    if (auto built = enter_root(root); !built) lacks(Wall::kRoot, built.error().message);
  }
}

Result<void> Prison::open_code_caches(uint64_t bytes, spawner_protocol::UidRange ids) {
  if (bytes == 0) return Error{ENOENT, "not asked for"};
  if (!has(Wall::kRoot)) return Error{EPERM, "workers have no root folder of their own"};
  if (!has(Wall::kPids)) return Error{EPERM, "workers of one user id could signal each other"};
  auto codes = CodeCaches::open(bytes, ids, has(Wall::kUser));
  if (!codes) return codes.error();
  codes_ = std::move(*codes);
  landlock_.write.push_back(kCodeCache);
  return {};
}

void Prison::rehearse(int cgroup) {
  for (size_t tries = 0; tries < static_cast<size_t>(Wall::kCount); ++tries) {
    const Failure f = rehearse_once(has(Wall::kCgroup) ? cgroup : -1);
    if (f.code == 0 || !has(f.wall)) return;
    lacks(f.wall, std::string(f.what) + ": " + reason(f.code));
  }
}

Result<void> Prison::enter_user_namespace() {
  for (bool wide : {true, false}) {
    if (wide && !has_capability(CAP_SETUID)) continue;
    if (in_child([&] { return unshare_user(spec_.uids, wide); }) != 0) continue;
    if (const int code = unshare_user(spec_.uids, wide); code != 0)
      return Error{code, "user namespace"};
    in_user_namespace_ = true;
    if (!wide) lacks(Wall::kUser, "a user namespace with one user id");
    return {};
  }
  return Error{EPERM, "user namespace"};
}

uint64_t Prison::namespaces() const {
  uint64_t flags = 0;
  if (has(Wall::kPids)) flags |= CLONE_NEWPID;
  if (has(Wall::kRoot)) flags |= CLONE_NEWNS;
  if (has(Wall::kNetwork)) flags |= CLONE_NEWNET;
  if (has(Wall::kIpc)) flags |= CLONE_NEWIPC;
  if (has(Wall::kHostName)) flags |= CLONE_NEWUTS;
  return flags;
}

Prison::Failure Prison::rehearse_once(int cgroup) {
  // One namespace after the other: which of them is refused?
  struct Namespace {
    Wall wall;
    int flag;
  };
  for (const Namespace& n : {Namespace{Wall::kPids, CLONE_NEWPID},
                             {Wall::kNetwork, CLONE_NEWNET},
                             {Wall::kIpc, CLONE_NEWIPC},
                             {Wall::kHostName, CLONE_NEWUTS}}) {
    if (!has(n.wall)) continue;
    if (const int code = in_child([&]() -> int { return ::unshare(n.flag) != 0 ? errno : 0; });
        code != 0) {
      Failure f{n.wall, code, "namespace"};
      return f;
    }
  }
  Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto started = start(UINT32_MAX, null.get(), null.get(), cgroup);
  // The namespaces have been tried, so it is the cgroup's fault.
  if (!started) return {cgroup >= 0 ? Wall::kCgroup : Wall::kPids, started.error().code, "clone3"};
  [[maybe_unused]] auto n = ::write(started->go.get(), "", 1);
  Failure f;
  if (::read(started->failed.get(), &f, sizeof f) != ssize_t{sizeof f}) f = {};
  while (::waitpid(started->pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return f;
}

Result<Prison::Started> Prison::start(uint32_t n, int control, int output, int cgroup,
                                      const CodeCaches::Place* code) {
  int go[2], failed[2];
  if (::pipe2(go, O_CLOEXEC) != 0) return Error::from_errno("pipe");
  Fd go_read(go[0]), go_write(go[1]);
  if (::pipe2(failed, O_CLOEXEC) != 0) return Error::from_errno("pipe");
  Fd failed_read(failed[0]), failed_write(failed[1]);
  if (!self_) self_.reset(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self_) return Error::from_errno("pidfd_open of the spawner");

  int pidfd = -1;
  clone_args args{};
  args.flags = CLONE_PIDFD | namespaces();
  args.pidfd = reinterpret_cast<uint64_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  if (cgroup >= 0) {
    args.flags |= kIntoCgroup;
    args.cgroup = static_cast<uint64_t>(cgroup);
  }
  const bool rehearsal = n == UINT32_MAX;
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid < 0) return Error::from_errno("clone3");
  if (pid == 0) {
    go_write.reset();  // or it would never see that we are gone
    become_worker(rehearsal ? 0 : n, control, output, go_read.get(), failed_write.get(), rehearsal,
                  code);
  }
  return Started{static_cast<pid_t>(pid), Fd(pidfd), std::move(go_write), std::move(failed_read)};
}

struct Prison::Fail {
  int fd;
  [[noreturn]] void operator()(Wall wall, const char* what) const {
    Failure f{wall, errno ? errno : EIO, ""};
    std::strncpy(f.what, what, sizeof f.what - 1);
    [[maybe_unused]] auto w = ::write(fd, &f, sizeof f);
    ::_exit(127);
  }
};

void Prison::become_worker(uint32_t n, int control, int output, int go, int failed, bool rehearsal,
                           const CodeCaches::Place* code) {
  Fail fail{failed};
  ::setsid();
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  const uid_t id = code ? code->id : spec_.uids.first + n;
  if (has(Wall::kRoot)) mount_own_folders(id, code, fail);
  if (has(Wall::kHostName)) [[maybe_unused]]
    int r = ::sethostname("worker", 6);
  limit_resources();
  if (has(Wall::kUser)) become_user(id, code ? limits::kThreadsOfVgpu : limits::kThreads, fail);
  drop_all_capabilities();
  check_files(rehearsal, fail);
  if (has(Wall::kLandlock))
    if (auto r = landlock_restrict(landlock_); !r) {
      errno = r.error().code;
      fail(Wall::kLandlock, "landlock");
    }
  wait_for_go(go, fail);
  if (rehearsal) ::_exit(0);
  place_descriptors(control, output, fail);
  run_program(code, fail);
}

void Prison::mount_own_folders(uid_t id, const CodeCaches::Place* code, const Fail& fail) const {
  if (has(Wall::kProc) &&
      ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    fail(Wall::kProc, "mount /proc");
  const std::string owner =
      has(Wall::kUser) ? ",uid=" + std::to_string(id) + ",gid=" + std::to_string(id) : "";
  const std::string options =
      std::string("mode=0700,size=") + limits::kTmpSize + ",nr_inodes=" + limits::kTmpFiles + owner;
  if (::mount("tmp", kOwnFolder, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, options.c_str()) != 0)
    fail(Wall::kRoot, "mount its own folder");
  if (code && ::mount(code->path.c_str(), kCodeCache, nullptr, MS_BIND, nullptr) != 0)
    fail(Wall::kRoot, "show its cache of machine code");
  // Others' are out of its reach by their modes; it does not see them either.
  if (codes_ && ::mount("none", kCodeCaches, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
                        "mode=0,size=4k,nr_inodes=2") != 0)
    fail(Wall::kRoot, "hide others' caches of machine code");
}

// Before capabilities go: then it cannot take that back. It would have inherited the place of
// sluiced's service, which is the last.
bool Prison::be_ended_first() const {
  Fd score(::openat(proc_.get(), "self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  const std::string_view most = limits::kOomScore;
  return score &&
         ::write(score.get(), most.data(), most.size()) == static_cast<ssize_t>(most.size());
}

void Prison::limit_resources() const {
  if (!be_ended_first()) errno = 0;  // prepare() has logged it
  if (::setpriority(PRIO_PROCESS, 0, 0) != 0) errno = 0;
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_RTPRIO, 0);  // sluiced has it
  set_limit(RLIMIT_NOFILE, limits::kDescriptors);
  set_limit(RLIMIT_MSGQUEUE, 0);
}

void Prison::become_user(uid_t id, uint64_t threads, const Fail& fail) const {
  set_limit(RLIMIT_NPROC, threads);  // of its uid, so only where that is no other's
  if (::setgroups(0, nullptr) != 0) fail(Wall::kUser, "setgroups");
  if (::setresgid(id, id, id) != 0) fail(Wall::kUser, "setresgid");
  if (::setresuid(id, id, id) != 0) fail(Wall::kUser, "setresuid");
}

// Its own uid must reach the program and the library. A rehearsal only asks whether the user is in
// the way, and a file that does not exist is not the user's fault.
void Prison::check_files(bool rehearsal, const Fail& fail) const {
  if (::access(spec_.worker.c_str(), X_OK) != 0 && (rehearsal ? errno != ENOENT : true))
    fail(rehearsal ? Wall::kUser : Wall::kCount, "the program");
  if (spec_.library[0] == '/' && ::access(spec_.library.c_str(), R_OK) != 0 && rehearsal &&
      errno != ENOENT)
    fail(Wall::kUser, "the library");
}

// The signal comes after the change of user, which would take it back. A spawner that died before
// sends none, and its byte may still be in the pipe: so its pidfd is polled as well.
void Prison::wait_for_go(int go, const Fail& fail) const {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(Wall::kCount, "PR_SET_PDEATHSIG");
  char c;
  if (::read(go, &c, 1) != 1) ::_exit(126);
  pollfd spawner{self_.get(), POLLIN, 0};
  if (::poll(&spawner, 1, 0) != 0) ::_exit(126);
}

// From here on descriptors 0 to 3 are the worker's. None of ours may be where one of those goes.
void Prison::place_descriptors(int control, int output, Fail& fail) const {
  int from[] = {::fcntl(control, F_DUPFD_CLOEXEC, 10), ::fcntl(output, F_DUPFD_CLOEXEC, 10),
                ::open("/dev/null", O_RDWR | O_CLOEXEC)};
  const int error = ::fcntl(fail.fd, F_DUPFD_CLOEXEC, 10);
  if (from[0] < 0 || from[1] < 0 || from[2] < 0 || error < 0) fail(Wall::kCount, "descriptors");
  const int null = ::fcntl(from[2], F_DUPFD_CLOEXEC, 10);
  fail.fd = error;
  if (::dup2(null, 0) < 0 || ::dup2(null, 1) < 0 || ::dup2(from[1], 2) < 0 ||
      ::dup2(from[0], kControlFd) < 0)
    fail(Wall::kCount, "descriptors");
  ::syscall(SYS_close_range, kControlFd + 1, ~0u, CLOSE_RANGE_CLOEXEC);
}

void Prison::run_program(const CodeCaches::Place* code, const Fail& fail) const {
  std::vector<std::string> environment =
      worker_environment(spec_.environment, has(Wall::kRoot), code);
  std::vector<char*> variables;
  for (std::string& v : environment) variables.push_back(v.data());
  variables.push_back(nullptr);
  char name[] = "sluice-worker";
  char* arguments[] = {name, nullptr};
  if (program_) ::execveat(program_.get(), "", arguments, variables.data(), AT_EMPTY_PATH);
  if (!program_) ::execve(spec_.worker.c_str(), arguments, variables.data());
  fail(Wall::kCount, "execve");
}

}  // namespace sluice::spawner
