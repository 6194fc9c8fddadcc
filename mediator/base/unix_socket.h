// SPDX-License-Identifier: Apache-2.0
// Unix sockets that carry file descriptors: the few calls that sluiced, the worker, the agent and
// the shim share. No state; any thread. Errors are Results with what and why.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice {

// A connected SOCK_SEQPACKET or SOCK_STREAM (type) socket at `path`, close-on-exec. `timeout_s`:
// how long connecting, and then each call that sends or receives, may wait before its error is
// EAGAIN; 0: as long as the peer takes.
Result<Fd> connect_unix(const std::string& path, int type, int timeout_s = 0);

// A listening socket at `path`; a dead socket file of our own user's there is replaced
// (base/listen_socket.h says what is not). Mode bits as given.
Result<Fd> listen_unix(const std::string& path, int type, unsigned mode, int backlog = 16);

// One message with `fds` attached (the caller keeps them). Retries on EINTR; EAGAIN is an error.
Result<void> send_with_fds(int socket, const void* data, size_t bytes, std::span<const int> fds,
                           int flags = 0);

struct Received {
  size_t bytes = 0;     // 0: the peer closed
  std::vector<Fd> fds;  // close-on-exec
  bool truncated = false;
};
// One message of at most `bytes`, with at most 64 descriptors. EAGAIN comes back as error code
// EAGAIN.
Result<Received> receive_with_fds(int socket, void* data, size_t bytes, int flags = 0);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
Result<PeerCredentials> peer_credentials(int socket);
// The supplementary groups that the peer had when it connected.
Result<std::vector<gid_t>> peer_groups(int socket);

// A sealed (shrink, grow) memfd of exactly `bytes`, zero-filled and sparse.
Result<Fd> make_memfd(const std::string& name, size_t bytes);
Result<Fd> make_eventfd();  // non-blocking, close-on-exec, counter 0

}  // namespace sluice
