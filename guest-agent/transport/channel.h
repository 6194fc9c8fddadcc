// SPDX-License-Identifier: Apache-2.0
// The program's end of its slot: how a guest process, or a local one, reaches its worker.
//
// Owned by the link to the worker (guest-agent/shim/session/worker_link.h). One kind of user, two
// kinds of peer that it cannot tell apart: sluice-agent in a VM (the region is BAR2 of the ivshmem
// device and ringing is a store to BAR0), or sluiced itself for local processes and containers (a
// memfd and an eventfd). Which one it is, the peer says in sluice_joined. It does not know
// records.
//
// Threads: everything const is for any thread; wait() is for one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "abi/channel.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/ring/ring.h"

namespace sluice::guest {

// SLUICE_SOCKET in the environment, else the agent's socket.
inline constexpr const char* kDefaultSocket = "/run/sluice/agent.sock";
std::string socket_path();

// Why the session is over.
struct SessionEnd {
  int error = 0;       // a CUresult, never 0
  std::string reason;  // one line for people
};

class Channel {
 public:
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  // Joins at `path` as `program`; blocks until the peer has answered, and calls `silent` once when
  // that takes more than some seconds. Waits for a second for somebody to listen there, if the
  // folder is there: sluiced may be starting anew. The region is mapped at SLUICE_WINDOW_ADDRESS,
  // so one process can have one channel. Error: an errno with what to do.
  static Result<std::unique_ptr<Channel>> join(const std::string& path, const std::string& program,
                                               void (*silent)() = nullptr);

  std::byte* region() const { return region_; }
  uint64_t region_bytes() const { return region_bytes_; }
  uint32_t slot() const { return slot_; }
  uint64_t epoch() const { return epoch_; }
  const sluice_slot_header& header() const { return *header_; }
  Bell bell() const { return bell_; }
  // The host wants a kernel's clones when it is first launched, not with its module.
  bool lazy_clones() const { return lazy_clones_; }
  // ... and it wants those of this function now.
  bool wants_clones(uint64_t function) const {
    return !clones_on_request_ ||
           load_shared(header_->wanted_clones[function % SLUICE_WANTED_CLONES]) == function;
  }
  // ... and those of its other forms, where it has the first (forms_apart()).
  bool wants_other_forms(uint64_t function) const {
    return load_shared(header_->wanted_clones[function % SLUICE_WANTED_CLONES]) == function;
  }
  // A kernel's clones without its original.
  bool forms_apart() const { return forms_apart_; }
  bool clones_on_request() const { return clones_on_request_; }
  // ... but none for a launch whose blocks the GPU holds at once.
  bool originals_at_once() const { return originals_at_once_; }
  bool originals() const { return originals_; }

  // Cheap enough for every call: two loads from one cache line. True: no worker serves it any more.
  bool ended() const;
  // What ended it, once ended() or wait() said so: what the peer has said on the socket (another
  // sluice_joined with a status and a reason), else what the slot shows.
  SessionEnd end_reason() const;

  // Sleeps until the worker rings, the peer hangs up (hung_up() from then on), or `timeout_ns` have
  // passed. Takes the wake descriptor's count. Where nothing can ring, it naps for a short time.
  void wait(uint64_t timeout_ns);
  bool hung_up() const { return hung_up_; }
  // Looks for the hang-up now, without sleeping.
  bool poll_hang_up();

  // A session's end alone changes nothing here: the slot and its memory stay the program's until it
  // closes its connection or ends, so that nobody reads zeros where data was. When sluice-agent has
  // gone as well, the next one can open the device only if no program holds it: then this puts
  // private memory in the place of the region and closes the device. The ranges (region offset and
  // bytes) in `keep` keep their contents: what the program, or a call under way, may still read.
  // Once; other threads may be in any call but join. What they write to those ranges meanwhile may
  // be lost. Nothing to do for local programs, whose region is nobody else's.
  bool can_detach() const { return doorbell_page_ != nullptr; }

  // Maps `bytes` of the region from `offset` once more, in the place of what the program has at
  // `at`; whole pages. False: it cannot be, and nothing has changed. Until map_private(at, bytes),
  // which puts private memory with the same contents there. detach() does so, too.
  bool map_again(void* at, uint64_t offset, uint64_t bytes);
  bool map_private(void* at, uint64_t bytes);
  void detach(const std::vector<std::pair<uint64_t, uint64_t>>& keep);

  // Around a fork. The child closes the descriptors, so that the connection ends with the parent,
  // and puts private memory in the place of what map_again() has mapped; the parent waits for that,
  // so that the child has what was there. Only async-signal-safe work in the child, where the
  // region's own mapping does not exist. `prepared`: there was a before_fork().
  void before_fork();
  void after_fork_in_parent();
  void abandon_in_child(bool prepared);

 private:
  Result<void> map(const sluice_joined& joined, std::vector<Fd>& fds);
  Result<void> map_region(const sluice_joined& joined);
  Result<void> map_doorbell(const sluice_joined& joined, int fd);
  static bool put_private(void* at, uint64_t bytes);
  // Drops from `again_` what the program has unmapped or mapped over. With its lock.
  void forget_what_went();

  Fd socket_;
  Fd device_;  // memfd, VFIO device, or BAR2 in sysfs
  Fd bell_fd_;
  Fd wake_;
  std::byte* region_ = nullptr;
  uint64_t region_bytes_ = 0, region_offset_ = 0;  // the offset: in `device_`
  std::mutex again_mutex_;
  std::map<void*, uint64_t> again_;  // what map_again() has mapped, with its bytes
  Fd copied_, copying_;              // while a fork waits for the child: the ends of a pipe
  void* doorbell_page_ = nullptr;
  Bell bell_;
  uint32_t slot_ = 0;
  uint64_t epoch_ = 0;
  const sluice_slot_header* header_ = nullptr;
  bool can_wait_ = false;
  bool lazy_clones_ = false, clones_on_request_ = false, forms_apart_ = false,
       originals_at_once_ = false, originals_ = false;
  std::atomic<bool> hung_up_{false};
};

}  // namespace sluice::guest
