// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/setup/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "mediator/base/fd.h"

namespace sluice {
namespace {

Result<std::string> read_all(int fd, size_t max_bytes) {
  std::string text;
  char block[65536];
  for (;;) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno("read");
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
    if (text.size() > max_bytes)
      return Error{EFBIG, "it is larger than " + std::to_string(max_bytes) + " bytes"};
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

Result<std::string> read_state_file(const std::string& file, size_t max_bytes) {
  // O_NONBLOCK: a pipe that somebody put there must not keep the reader.
  Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return Error::from_errno("open");
  return read_all(fd.get(), max_bytes);
}

// The new name must not come to the disk before what it names.
Result<void> replace_state_file(const std::string& dir, const std::string& file,
                                const std::string& text) {
  const std::string fresh = file + ".new";
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST)
    return Error::from_errno("state_dir cannot be made: mkdir " + dir);
  ::unlink(fresh.c_str());  // left by a sluiced that was killed
  Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  Result<void> written = fd ? write_file(fd.get(), text) : Error::from_errno("open");
  if (written) written = sync(fd.get(), "the new file");
  if (written && ::rename(fresh.c_str(), file.c_str()) != 0) written = Error::from_errno("rename");
  if (!written) {
    ::unlink(fresh.c_str());
    return written;
  }
  // It is in place; only a stop of the machine could still bring the old one back.
  const Fd folder(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return folder ? sync(folder.get(), "the folder") : Error::from_errno("open " + dir);
}

}  // namespace sluice
