// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/walls/cgroups.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>

#include "mediator/base/log.h"
#include "mediator/spawner/limits.h"

namespace sluice::spawner {
namespace {

constexpr char kPrefix[] = "sluice-workers.";
constexpr const char* kControllerNames[] = {"memory", "pids", "cpu"};

// Where the cgroup2 file system is mounted, and from which of its folders.
bool find_cgroup2(std::string& mount, std::string& root) {
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos || line.compare(dash + 3, 8, "cgroup2 ") != 0) continue;
    std::istringstream words(line);
    std::string skip;
    if (words >> skip >> skip >> skip >> root >> mount) return true;
  }
  return false;
}

// This process's cgroup of version 2, as "/a/b".
std::string own_cgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, 3, "0::") == 0) return line.substr(3);
  return "/";
}

bool write_text(int folder, const std::string& file, const std::string& text) {
  Fd fd(::openat(folder, file.c_str(), O_WRONLY | O_CLOEXEC));
  return fd && ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

bool write_one(int folder, const std::string& file) { return write_text(folder, file, "1"); }

// Of the lists of controllers, which are short.
bool has_word(int folder, const std::string& file, const std::string& word) {
  Fd fd(::openat(folder, file.c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024] = {};
  if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0) return false;
  std::istringstream words(text);
  for (std::string w; words >> w;)
    if (w == word) return true;
  return false;
}

size_t count_processes(int folder, const std::string& name) {
  Fd fd(::openat(folder, (name + "/cgroup.procs").c_str(), O_RDONLY | O_CLOEXEC));
  size_t count = 0;
  char text[4096];
  for (ssize_t n; fd && (n = ::read(fd.get(), text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < n; ++i) count += text[i] == '\n';
  return count;
}

// The root may have them beside controllers that it hands on; it alone has no type.
bool has_processes_of_its_own(int folder) {
  return ::faccessat(folder, "cgroup.type", F_OK, 0) == 0 && count_processes(folder, ".") > 0;
}

// Hands one controller on to the folders in `folder`, which is at `path`. "" or why not. pids and
// cpu could be handed on in spite of processes: that makes the folder a threaded one, in whose
// folders no process can be started.
std::string hand_on(int folder, const std::string& path, const std::string& controller) {
  if (!has_word(folder, "cgroup.controllers", controller)) return "not delegated to " + path;
  if (has_word(folder, "cgroup.subtree_control", controller)) return "";
  if (has_processes_of_its_own(folder))
    return path + " has processes of its own (DelegateSubgroup)";
  if (write_text(folder, "cgroup.subtree_control", "+" + controller)) return "";
  if (errno == EBUSY) return path + " has processes of its own (DelegateSubgroup)";
  return Error::from_errno("write " + path + "/cgroup.subtree_control").message;
}

std::vector<std::string> folders_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (copy < 0) return names;
  std::unique_ptr<DIR, int (*)(DIR*)> d(::fdopendir(copy), &::closedir);
  if (!d) return names;
  while (const dirent* e = ::readdir(d.get()))
    if (e->d_type == DT_DIR && e->d_name[0] != '.') names.emplace_back(e->d_name);
  return names;
}

bool remove_folder(int folder, const std::string& name) {
  return ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
}

Fd open_folder(int parent, const std::string& name) {
  return Fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

// Whether the name still means this folder.
bool is_there(int parent, const std::string& name, int folder) {
  struct stat named {
  }, open{};
  return ::fstatat(parent, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(folder, &open) == 0 && named.st_ino == open.st_ino;
}

// "v1" of "v1/w0"; "" of "w0".
std::string vgpu_of(const std::string& name) {
  const size_t slash = name.find('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

// Of all workers, and then of all vGPUs.
std::vector<std::string> all_in(int folder) {
  std::vector<std::string> workers, vgpus = folders_in(folder);
  for (const std::string& vgpu : vgpus)
    if (const Fd inner = open_folder(folder, vgpu))
      for (const std::string& worker : folders_in(inner.get()))
        workers.push_back(vgpu + "/" + worker);
  workers.insert(workers.end(), vgpus.begin(), vgpus.end());
  return workers;
}

size_t end_all_in(int folder) {
  size_t ended = 0;
  for (const std::string& name : all_in(folder)) {
    ended += count_processes(folder, name);
    write_one(folder, name + "/cgroup.kill");
    for (int ms = 0; !remove_folder(folder, name) && ms < limits::kEndMs; ms += 5)
      ::poll(nullptr, 0, 5);
  }
  return ended;
}

}  // namespace

Result<Cgroups> Cgroups::open(const std::string& tag) {
  std::string mount, root, own = own_cgroup();
  if (!find_cgroup2(mount, root)) return Error{ENOENT, "no cgroup2 file system is mounted"};
  // In a container the mount may show a part of the tree only.
  if (root != "/" && own.compare(0, root.size(), root) == 0) own.erase(0, root.size());
  if (own.empty() || own[0] != '/' || own.find("/..") != std::string::npos) own = "/";
  // sluiced stands in a folder beside its workers'.
  const std::string host = std::string("/") + kHostFolder;
  if (own.size() >= host.size() && own.compare(own.size() - host.size(), host.size(), host) == 0)
    own.erase(own.size() - host.size());
  return open_in(mount + (own == "/" ? "" : own), tag);
}

Result<Cgroups> Cgroups::open_in(const std::string& parent, const std::string& tag) {
  Cgroups c;
  c.name_ = kPrefix + tag;
  c.path_ = parent + "/" + c.name_;
  c.parent_.reset(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!c.parent_) return Error::from_errno("open " + parent);
  if (auto made = c.make_folder(); !made) return made.error();
  c.remove_dead();
  if (::faccessat(c.folder_.get(), "cgroup.kill", W_OK, AT_EACCESS) != 0)
    return Error::from_errno("write " + c.path_ + "/cgroup.kill");
  c.hand_on_controllers(parent);
  return c;
}

// Another one may take it for a dead one's until it is locked. One of our user could hold the lock
// for ever: then it goes on without.
Result<void> Cgroups::make_folder() {
  for (int tries = 0; tries < 10; ++tries) {
    if (::mkdirat(parent_.get(), name_.c_str(), 0755) != 0 && errno != EEXIST)
      return Error::from_errno("mkdir " + path_);
    folder_ = open_folder(parent_.get(), name_);
    if (!folder_ && errno != ENOENT) return Error::from_errno("open " + path_);
    if (!folder_) continue;
    const bool locked = ::flock(folder_.get(), LOCK_SH | LOCK_NB) == 0;
    if (!locked) ::poll(nullptr, 0, 1);
    if (is_there(parent_.get(), name_, folder_.get()) && (locked || tries == 9)) return {};
  }
  return Error{ENOENT, path_ + " is removed again and again"};
}

// Of those that ended without having the time to.
void Cgroups::remove_dead() const {
  for (const std::string& name : folders_in(parent_.get())) {
    if (name.rfind(kPrefix, 0) != 0 || name == name_) continue;
    const Fd folder = open_folder(parent_.get(), name);
    if (!folder || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    for (const std::string& inner : all_in(folder.get())) remove_folder(folder.get(), inner);
    remove_folder(parent_.get(), name);
  }
}

void Cgroups::end() {
  end_all();
  remove_folder(parent_.get(), name_);
}

void Cgroups::hand_on_controllers(const std::string& parent) {
  for (int i = 0; i < kControllers; ++i) {
    std::string why = hand_on(parent_.get(), parent, kControllerNames[i]);
    if (why.empty()) why = hand_on(folder_.get(), path_, kControllerNames[i]);
    has_[i] = why.empty();
    if (has_[i] && i == kCpu) weigh_host(parent);
    if (!has_[i]) missing_limits_.push_back(std::string(kControllerNames[i]) + ": " + why);
  }
}

// sluiced beside all its workers: each of those groups would have as much as it.
void Cgroups::weigh_host(const std::string& parent) {
  Fd host(::open((parent + "/" + kHostFolder).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (host) write_text(host.get(), "cpu.weight", std::to_string(limits::kHostCpuWeight));
}

Result<void> Cgroups::set_limits(int folder, const CgroupLimits& l) const {
  const auto set = [&](const char* file, uint64_t value) -> Result<void> {
    if (write_text(folder, file, std::to_string(value))) return {};
    return Error::from_errno(std::string("write ") + file);
  };
  if (has_[kMemory] && l.memory_bytes) {
    if (auto r = set("memory.max", l.memory_bytes); !r) return r;
    // Not there without swap accounting. With it, what is above the limit would go to swap.
    write_text(folder, "memory.swap.max", "0");
    write_one(folder, "memory.oom.group");
  }
  if (has_[kPids] && l.threads)
    if (auto r = set("pids.max", l.threads); !r) return r;
  if (has_[kCpu]) return set("cpu.weight", limits::kCpuWeight);
  return {};
}

// It can be removed while no worker has a folder in it. Its workers had limits before, and have
// them again, or none is started.
Result<void> Cgroups::make_folder_again() {
  auto made = make_folder();
  for (int i = 0; i < kControllers && made; ++i) {
    const std::string why = has_[i] ? hand_on(folder_.get(), path_, kControllerNames[i]) : "";
    if (!why.empty()) made = Error{EACCES, why};
  }
  if (made) {
    log::warning("spawner: {} was removed, and is made again", path_);
    return {};
  }
  remove_folder(parent_.get(), name_);
  return Error{made.error().code,
               "the workers' cgroups were removed, and cannot be made again; "
               "'systemctl restart sluiced': " +
                   made.error().message};
}

Result<void> Cgroups::make_vgpu(const std::string& name) {
  const std::string path = path_ + "/" + name;
  if (::mkdirat(folder_.get(), name.c_str(), 0755) != 0 && errno != EEXIST)
    return Error::from_errno("mkdir " + path);
  const Fd folder = open_folder(folder_.get(), name);
  if (!folder) return Error::from_errno("open " + path);
  for (int i = 0; i < kControllers; ++i) {
    const std::string why = has_[i] ? hand_on(folder.get(), path, kControllerNames[i]) : "";
    if (!why.empty()) return Error{EACCES, std::string(kControllerNames[i]) + ": " + why};
  }
  if (has_[kCpu] && !write_text(folder.get(), "cpu.weight", std::to_string(limits::kCpuWeight)))
    return Error::from_errno("write " + path + "/cpu.weight");
  return {};
}

Result<Fd> Cgroups::make(const std::string& name, const CgroupLimits& limits) {
  if (!is_there(parent_.get(), name_, folder_.get()))
    if (auto again = make_folder_again(); !again) return again.error();
  const std::string vgpu = vgpu_of(name);
  if (auto made = vgpu.empty() ? Result<void>() : make_vgpu(vgpu); !made) {
    remove_folder(folder_.get(), vgpu);
    return made.error();
  }
  if (::mkdirat(folder_.get(), name.c_str(), 0755) != 0 && errno != EEXIST)
    return Error::from_errno("mkdir " + path_ + "/" + name);
  Fd fd(::openat(folder_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error::from_errno("open " + path_ + "/" + name);
  if (auto set = set_limits(fd.get(), limits); !set) {
    fd.reset();
    remove(name);
    return set.error();
  }
  return fd;
}

void Cgroups::kill(const std::string& name) { write_one(folder_.get(), name + "/cgroup.kill"); }

std::optional<uint64_t> Cgroups::starved_ns(const std::string& name) const {
  const std::string vgpu = vgpu_of(name), file = (vgpu.empty() ? name : vgpu) + "/cpu.pressure";
  Fd fd(::openat(folder_.get(), file.c_str(), O_RDONLY | O_CLOEXEC));
  char text[512] = {};
  if (!fd || ::read(fd.get(), text, sizeof text - 1) <= 0) return std::nullopt;
  const char* full = std::strstr(text, "full ");
  const char* total = full ? std::strstr(full, "total=") : nullptr;
  if (!total) return std::nullopt;
  return std::strtoull(total + std::strlen("total="), nullptr, 10) * 1000;
}

bool Cgroups::remove(const std::string& name) {
  if (!remove_folder(folder_.get(), name)) return false;
  // The kernel keeps it while it has another's.
  if (const std::string vgpu = vgpu_of(name); !vgpu.empty()) remove_folder(folder_.get(), vgpu);
  return true;
}

size_t Cgroups::end_all() { return end_all_in(folder_.get()); }

size_t end_cgroups_at(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || path.compare(slash + 1, sizeof kPrefix - 1, kPrefix) != 0)
    return 0;
  Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!folder || ::faccessat(folder.get(), "cgroup.kill", W_OK, AT_EACCESS) != 0) return 0;
  const size_t ended = end_all_in(folder.get());
  folder.reset();
  ::rmdir(path.c_str());
  return ended;
}

}  // namespace sluice::spawner
