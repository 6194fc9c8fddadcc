// SPDX-License-Identifier: Apache-2.0
// One message from sluiced, checked for its form: what Keeper and Spawner both take. No state.
#pragma once

#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/spawner_protocol.h"

namespace sluice::spawner {

struct Incoming {
  spawner_protocol::Packet packet;
  std::vector<Fd> fds;
  bool lost_fds = false;  // some did not fit into this process
};

// Blocks. EPIPE: the other end has closed. EPROTO: what came is no packet.
inline Result<Incoming> receive(int socket) {
  std::string bytes(spawner_protocol::kMaxBytes + 1, '\0');  // a longer packet shows
  auto got = receive_with_fds(socket, bytes.data(), bytes.size());
  // Reset: it has closed and not read all.
  if (!got && got.error().code != ECONNRESET) return got.error();
  if (!got || got->bytes == 0) return Error{EPIPE, "sluiced has closed the connection"};
  auto packet = spawner_protocol::decode(std::string_view(bytes.data(), got->bytes));
  if (!packet) return Error{EPROTO, "sluiced sent a malformed message"};
  return Incoming{std::move(*packet), std::move(got->fds), got->truncated};
}

}  // namespace sluice::spawner
