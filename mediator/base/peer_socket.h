// SPDX-License-Identifier: Apache-2.0
// Unix sockets whose other end somebody hostile holds, as sluiced uses them: nothing here waits,
// and no descriptor that the peer sends is ever let go of in the caller's thread. (The last close
// of a socket with SO_LINGER takes as long as its owner likes, and the kernel closes what a
// receiver does not want in the receiver's own thread.) No state; any thread.
//
// Linux 6.16 has SO_PASSRIGHTS: with 0 the sender gets EPERM. Before, each message is peeked at
// first, and one with descriptors stays in the socket: whoever owns the socket closes it on a
// PeerThread.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice {

// No descriptors are wanted on this socket: to be called before the peer can send on it; on a
// listening socket it holds for its connections, too. Call it for these again, for older kernels.
void refuse_descriptors(int socket);

// Whether the kernel takes none on this socket, after refuse_descriptors().
bool kernel_refuses_descriptors(int socket);

// The error code of receive_plain() for a message with descriptors.
inline constexpr int kPassedDescriptors = EBADMSG;

struct PlainMessage {
  size_t bytes = 0;  // 0: the peer closed (or an empty message)
  bool truncated = false;
};
// One message (SOCK_SEQPACKET, SOCK_DGRAM) or what is there of a stream, without descriptors.
// EAGAIN if there is nothing.
Result<PlainMessage> receive_plain(int socket, void* data, size_t bytes);

// Whether the peer has closed its end, whatever it sent before that is still unread. What only
// waits for the end of such a connection need not read on.
bool has_hung_up(int socket);

// A pair of sockets by which each end wakes the other, in place of an eventfd, whose O_NONBLOCK
// both would share. `ours` refuses descriptors.
struct WakePair {
  Fd ours, theirs;
};
Result<WakePair> make_wake_pair();
// Wakes the other end. Full is awake already.
void ring_wake(int socket);
// Takes off what has come, or some of it: then the socket stays readable.
enum class Drained { kNothing, kRung, kDescriptors };  // the last: see kPassedDescriptors
Drained drain_wake(int socket);
// The same for the end whose peer is trusted.
void drain_trusted_wake(int socket);

// For tests: as on a kernel without SO_PASSRIGHTS from here on.
void forget_passrights_for_test(bool forget);

}  // namespace sluice
