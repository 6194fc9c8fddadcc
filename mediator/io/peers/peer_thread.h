// SPDX-License-Identifier: Apache-2.0
// PeerThread: does for the loop what a peer could make block. sluiced has one thread, and whoever
// shares a descriptor with it (QEMU, a local program, a worker) decides how long some system calls
// on that descriptor take:
//
//   write to an eventfd   O_NONBLOCK belongs to the open file description, which the peer shares
//   close                 the last reference to a socket with SO_LINGER, or to a file of a FUSE
//                         file system, waits for as long as its owner likes
//   fallocate, munmap     take as long as the memory is large
//
// Such calls are posted here and run on a thread of the object's own, in order. There is one
// PeerThread for each vGPU, so that a peer that blocks it keeps only its own vGPU waiting.
//
//   thread   idle -- post --> busy -- done --> idle
//                              busy -- late, and others wait --> stuck -- done --> gone
//
// A ring or a close that is late is interrupted by a signal, which ends a write to an eventfd and a
// lingering close. What cannot be interrupted (the flush of a file of a FUSE file system) leaves
// its thread stuck: it is left alone, and another one goes on with the queue. A thread that could
// run is at work, or has no processor: it is not stuck. After limits::kMaxStuckPeerThreads nothing
// goes on until one comes back.
//
// With a Share the thread rests after work that has taken more processor time than that: the memory
// that programs make it free costs nobody else more.
//
// The object belongs to its vGPU and is used from the io_context's thread only. A job must hold
// what it uses, and must neither log nor touch what belongs to the loop. The destructor never
// waits: what is queued is still carried out, on the thread, which then ends; a `then` is not
// called any more. Units: milliseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "mediator/base/fd.h"
#include "mediator/base/limits.h"
#include "mediator/io/fd_watch.h"
#include "mediator/ring/ring.h"

namespace sluice::io {

// An eventfd that a peer holds, too, as sluiced rings it. Shared, because a ring may be under way
// on the PeerThread when everybody else has let go.
class PeerBell;

class PeerThread {
 public:
  using Work = std::function<void()>;
  // After which time a ring or a close, and other work, is late.
  struct Late {
    uint64_t call_ms = limits::kPeerLateMs;
    uint64_t work_ms = limits::kPeerWorkLateMs;
  };

  // Of a processor, for work, beyond this much at once.
  struct Share {
    double part;
    uint64_t burst_ns;
  };

  // The thread starts with the first call that needs it.
  explicit PeerThread(boost::asio::io_context& io);
  PeerThread(boost::asio::io_context& io, const Late& late,
             const std::optional<Share>& share = std::nullopt);
  ~PeerThread();
  PeerThread(const PeerThread&) = delete;
  PeerThread& operator=(const PeerThread&) = delete;

  // Runs `work` on the thread, then `then` in the io_context. False, and nothing is kept, if
  // limits::kMaxPeerWork are queued.
  bool post(Work work, Work then = nullptr);
  // Closes `fd` on the thread. Always taken: what cannot be queued would have to be closed here.
  void close(Fd fd);

  // How many calls wait, how many threads are stuck, and for how long the call that has been under
  // way longest has.
  size_t queued() const;
  size_t stuck() const;
  uint64_t blocked_for_ms() const;
  // For those who accept connections: a vGPU whose peers block its threads takes no new ones.
  bool saturated() const;

  // Threads of all PeerThreads that were still blocked when their object went.
  static size_t abandoned();

 private:
  friend class PeerBell;
  struct State;
  std::shared_ptr<State> state_;
};

class PeerBell final : public BellRinger {
 public:
  // A bell that outlives `thread` rings nothing.
  PeerBell(PeerThread& thread, Fd eventfd);
  ~PeerBell() override;

  // Adds one to the counter, on the thread. A bell that waits there already is not queued again.
  void ring() override;
  // Takes the count off; never blocks. True if there was one.
  bool drain();
  int fd() const;

 private:
  struct State;
  std::shared_ptr<PeerThread::State> thread_;
  std::shared_ptr<State> state_;
};

}  // namespace sluice::io
