// SPDX-License-Identifier: Apache-2.0
// ChannelGroups: the time slices of this process's own contexts on an NVIDIA GPU.
//
// The GPU goes round among the channel groups that have work, each for its slice. NVIDIA's kernel
// driver lets a process set the slice of its own groups, without privileges, by a control call on
// the group's handle (SET_TIMESLICE, NVIDIA's open kernel modules, ctrla06c.h). The handles are the
// CUDA driver's own. They are learnt by watching its calls: this program defines `ioctl`, which the
// driver's library then calls, passes every call on as it is, and reads those that make and free a
// channel group of the compute engine.
//
//   the driver's library ── ioctl ──▶ here ── system call ──▶ /dev/nvidiactl
//   set_slice() ───── SET_TIMESLICE on each group ─────▲
//
// One for the process; any thread. A driver whose calls look otherwise has no groups here: then
// set_slice() sets none, and says so.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace sluice::worker {

class ChannelGroups {
 public:
  // As the system call.
  using Ioctl = int (*)(int fd, unsigned long request, void* argument);
  explicit ChannelGroups(Ioctl call) : call_(call) {}
  static ChannelGroups& of_process();

  // A call of the driver's that has succeeded.
  void on_called(int fd, unsigned long request, const void* argument);

  // Of all groups, and of those that are made from now on. How many have it; what the hardware
  // takes is 100 us to 10 s here. Waits for the kernel module, as SliceSetter says; keeps nobody
  // else waiting meanwhile.
  size_t set_slice(uint64_t ns);
  size_t count() const;

 private:
  struct Group {
    int fd;  // by which it was made
    uint32_t client, handle;
  };
  bool set(const Group& group, uint64_t us) const;

  const Ioctl call_;
  mutable std::mutex mutex_;
  std::vector<Group> groups_;
  uint64_t slice_us_ = 0;  // 0: the driver's own
};

}  // namespace sluice::worker
