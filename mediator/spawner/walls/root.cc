// SPDX-License-Identifier: Apache-2.0
#include "mediator/spawner/walls/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "mediator/base/fd.h"
#include "mediator/spawner/code_caches.h"

// Where the C library's headers are older than the call.
#ifndef MOUNT_ATTR_RDONLY
#define MOUNT_ATTR_RDONLY 0x1
#define MOUNT_ATTR_NOSUID 0x2
#define MOUNT_ATTR_NODEV 0x4
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

namespace sluice::spawner {
namespace {

// In folders that are shown. Who may read a file may lock it: a worker that holds the lock of RPM's
// packages keeps the host from installing any.
constexpr const char* kHidden[] = {"/usr/lib/sysimage"};

struct MountAttributes {
  uint64_t set = 0, clear = 0, propagation = 0, userns_fd = 0;
};

bool exists(const std::string& path) {
  struct stat st;
  return ::lstat(path.c_str(), &st) == 0;
}

// Makes the folders above the last part of `path`, below `root`.
Result<void> make_parents(const std::string& root, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = root + path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST)
      return Error::from_errno("mkdir " + folder);
  }
  return {};
}

Result<void> make_read_only(const std::string& at) {
  MountAttributes a;
  a.set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
  if (::syscall(SYS_mount_setattr, AT_FDCWD, at.c_str(), AT_RECURSIVE, &a, sizeof a) == 0)
    return {};
  if (::mount(nullptr, at.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID,
              nullptr) != 0)
    return Error::from_errno("make read-only: " + at);
  return {};
}

// Shows a file or folder of the host at the same place below `root`. What is not there is passed
// over; a symbolic link becomes one.
Result<void> show(const std::string& root, const std::string& path, bool read_only) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) return {};
  if (auto made = make_parents(root, path); !made) return made;
  const std::string at = root + path;
  if (S_ISLNK(st.st_mode)) {
    char target[PATH_MAX];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target - 1);
    if (n < 0) return Error::from_errno("readlink " + path);
    target[n] = 0;
    if (::symlink(target, at.c_str()) != 0 && errno != EEXIST)
      return Error::from_errno("link " + at);
    return {};
  }
  if (S_ISDIR(st.st_mode)) {
    if (::mkdir(at.c_str(), 0755) != 0 && errno != EEXIST) return Error::from_errno("mkdir " + at);
  } else {
    Fd fd(::open(at.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!fd) return Error::from_errno("make " + at);
  }
  if (::mount(path.c_str(), at.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return Error::from_errno("bind " + path);
  return read_only ? make_read_only(at) : Result<void>{};
}

bool below(const std::string& path, const std::string& folder) {
  return path == folder ||
         (path.size() > folder.size() && path.compare(0, folder.size(), folder) == 0 &&
          path[folder.size()] == '/');
}

}  // namespace

std::vector<std::string> system_paths(bool nvidia) {
  std::vector<std::string> paths = {
      "/lib",           "/lib32",           "/lib64",        "/libx32",
      "/usr/lib",       "/usr/lib32",       "/usr/lib64",    "/usr/libx32",
      "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime"};
  if (nvidia) {
    for (const char* p :
         {"/usr/local/nvidia", "/usr/local/cuda", "/usr/share/nvidia", "/etc/nvidia", "/etc/OpenCL",
          "/sys/bus", "/sys/class", "/sys/devices", "/sys/module"})
      paths.emplace_back(p);
    // /usr/local/cuda is a chain of symbolic links; show where it ends, too.
    for (const char* p : {"/usr/local/cuda", "/usr/local/cuda/compat"})
      if (std::unique_ptr<char, void (*)(void*)> real(::realpath(p, nullptr), &std::free); real)
        paths.emplace_back(real.get());
  }
  return paths;
}

// Of NVIDIA's device files those that compute: not the display's, the fabric's and the host's own.
bool computes(std::string_view name) {
  if (name == "nvidiactl" || name == "nvidia-uvm" || name == "nvidia-caps") return true;
  constexpr std::string_view kGpu = "nvidia";
  return name.size() > kGpu.size() && name.substr(0, kGpu.size()) == kGpu &&
         name.find_first_not_of("0123456789", kGpu.size()) == name.npos;
}

std::vector<std::string> device_paths(bool nvidia) {
  std::vector<std::string> paths;
  for (const char* name : {"null", "zero", "full", "random", "urandom"})
    paths.push_back(std::string("/dev/") + name);
  if (!nvidia) return paths;
  std::unique_ptr<DIR, int (*)(DIR*)> d(::opendir("/dev"), &::closedir);
  while (const dirent* e = d ? ::readdir(d.get()) : nullptr)
    if (computes(e->d_name)) paths.push_back(std::string("/dev/") + e->d_name);
  std::sort(paths.begin(), paths.end());
  return paths;
}

Result<void> enter_root(const RootSpec& spec) {
  // Nothing that is mounted here shows on the host, nor the other way round.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return Error::from_errno("private mounts");
  // The runtime folder is ours and sure to be there; below it nothing may be visible.
  const std::string& root = spec.runtime_dir;
  if (::mount("sluice-root", root.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m") != 0)
    return Error::from_errno("mount a root folder on " + root);
  for (const char* folder :
       {"/proc", "/tmp", "/dev", "/dev/shm", "/run", kOwnFolder, kCodeCache, kCodeCaches})
    if (::mkdir((root + folder).c_str(), 0755) != 0)
      return Error::from_errno(std::string("mkdir ") + folder);

  std::vector<std::string> shown;
  std::vector<std::string> read = spec.read;
  std::sort(read.begin(), read.end(), [](auto& a, auto& b) { return a.size() < b.size(); });
  for (const std::string& path : read) {
    if (path.empty() || path[0] != '/' || path == "/" || !exists(path)) continue;
    // What lies in a folder that is shown is there already.
    if (std::any_of(shown.begin(), shown.end(), [&](auto& s) { return below(path, s); })) continue;
    if (auto r = show(root, path, true); !r) return r;
    struct stat st;
    if (::lstat(path.c_str(), &st) == 0 && !S_ISLNK(st.st_mode)) shown.push_back(path);
  }
  for (const std::string& path : device_paths(spec.nvidia))
    if (auto r = show(root, path, false); !r) return r;
  for (const std::string& path : spec.write)
    if (auto r = show(root, path, false); !r) return r;
  if (!spec.own_proc)
    if (auto r = show(root, "/proc", true); !r) return r;
  for (const char* path : kHidden)
    if (exists(root + path) && ::mount("none", (root + path).c_str(), "tmpfs",
                                       MS_RDONLY | MS_NOSUID | MS_NODEV, "mode=0,size=4k") != 0)
      return Error::from_errno(std::string("hide ") + path);

  if (::chdir(root.c_str()) != 0) return Error::from_errno("chdir " + root);
  // The old root comes to lie over the new one, and is taken away from there.
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return Error::from_errno("pivot_root");
  if (::umount2(".", MNT_DETACH) != 0) return Error::from_errno("detach the host's root");
  if (::chdir("/") != 0) return Error::from_errno("chdir /");
  if (::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV,
              nullptr) != 0)
    return Error::from_errno("make the root folder read-only");
  return {};
}

}  // namespace sluice::spawner
