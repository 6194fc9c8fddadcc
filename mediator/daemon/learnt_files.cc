// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/learnt_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "mediator/base/fd.h"
#include "mediator/base/log.h"

namespace sluice {

namespace {

// kMaxKernelsLearnt lines of some 700 bytes, and room.
constexpr size_t kMaxFileBytes = 4u << 20;

Result<std::string> read_file(int fd) {
  std::string text;
  char block[65536];
  for (;;) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno("read");
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
    if (text.size() > kMaxFileBytes)
      return Error{EFBIG, "it is larger than " + std::to_string(kMaxFileBytes) + " bytes"};
  }
}

Result<void> write_file(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno("write");
    done += static_cast<size_t>(n);
  }
  return {};
}

Result<void> sync(int fd, const char* what) {
  while (::fsync(fd) != 0)
    if (errno != EINTR) return Error::from_errno(std::string("fsync of ") + what);
  return {};
}

}  // namespace

void LearntFiles::load(const std::string& vgpu, core::Progress* progress) const {
  if (dir_.empty()) return;
  const std::string file = path(vgpu);
  // O_NONBLOCK: a pipe that somebody put there must not stop sluiced.
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return;
  Result<void> taken = fd ? Result<void>{} : Error::from_errno("open");
  if (taken) {
    auto text = read_file(fd.get());
    taken = text ? progress->restore(*text) : Result<void>(text.error());
  }
  if (!taken)
    log::warning("vgpu {}: {} is left aside, durations of kernels are learnt anew: {}", vgpu, file,
                 taken.error().message);
}

void LearntFiles::save(const std::string& vgpu, const core::Progress& progress) const {
  if (dir_.empty() || (progress.learnt() == 0 && progress.evicted() == 0)) return;
  const std::string file = path(vgpu), fresh = file + ".new";
  if (::mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST)
    return log::warning("{}", Error::from_errno("state_dir " + dir_).message);
  ::unlink(fresh.c_str());  // left by a sluiced that was killed
  Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  Result<void> written = fd ? write_file(fd.get(), progress.save()) : Error::from_errno("open");
  // The new name must not come to the disk before what it names.
  if (written) written = sync(fd.get(), "the new file");
  if (written && ::rename(fresh.c_str(), file.c_str()) != 0) written = Error::from_errno("rename");
  if (written) {
    const Fd dir(::open(dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const Result<void> kept = dir ? sync(dir.get(), "the folder") : Error::from_errno("open");
    // It is in place; only a stop of the machine could still bring the old one back.
    if (!kept) log::warning("state_dir {}: {}", dir_, kept.error().message);
    return;
  }
  log::warning("{}: {}; the durations of kernels learnt for vgpu {} are not kept", file,
               written.error().message, vgpu);
  ::unlink(fresh.c_str());
}

}  // namespace sluice
