// SPDX-License-Identifier: Apache-2.0
// Listening Unix sockets at a path. A path is taken only where that hurts nobody: a file that
// is no socket, a socket of another user and one that somebody listens on are left as they are, and
// the error names them. No state; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice {

// Which file a path named at some moment: tells whether it still names the same one.
struct FileId {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t changed_ns = 0;  // ctime: a file system may give an inode's number to another file
  bool operator==(const FileId&) const = default;
  // Enough while the file is in use, which keeps its number from others.
  bool same_inode(const FileId& o) const { return device == o.device && inode == o.inode; }
};
// The file at `path` itself, not what a link points to; nullopt: there is none.
std::optional<FileId> file_id(const std::string& path);

struct ListenOptions {
  int type = 0;  // SOCK_STREAM or SOCK_SEQPACKET
  unsigned mode = 0600;
  std::optional<gid_t> group;  // unset: that of the process
  int backlog = 16;
  // Asked about a socket file of our own user that nobody listens on: may it be replaced? Empty:
  // yes.
  std::function<bool(const FileId&)> may_replace;
};

struct ListeningSocket {
  Fd socket;
  FileId file;  // what to compare before the file is removed
};

// The socket has its final owner, group and mode before anybody can connect.
Result<ListeningSocket> listen_at(const std::string& path, const ListenOptions& options);

// Removes the socket file if the path still names it. To be called while its socket is open.
void remove_socket_file(const std::string& path, const FileId& file);

}  // namespace sluice
