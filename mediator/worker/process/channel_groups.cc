// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/process/channel_groups.h"

#include <linux/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstring>

namespace sluice::worker {

namespace {

// Calls of the resource manager (NVIDIA's open kernel modules, nv_escape.h), and the structures
// that they take (nvos.h), as far as they are read here.
constexpr unsigned kMagic = 'F', kFree = 0x29, kControl = 0x2a, kAlloc = 0x2b;

struct ObjectRequest {
  uint32_t client, parent, handle, object_class;
  uint64_t parameters;  // their address
  // In one of two forms: {size, status}, or {rights (8 bytes), size, flags, status, padding}.
};
constexpr size_t kObjectRequestBytes = sizeof(ObjectRequest) + 8, kObjectRequestWithRights = 48;
static_assert(sizeof(ObjectRequest) == 24);

struct GroupParameters {
  uint32_t error, ecc_error, address_space, engine;
};
constexpr uint32_t kChannelGroup = 0xa06c, kComputeEngine = 1;

struct Freeing {
  uint32_t client, parent, handle, status;
};

struct Control {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t bytes, status;
};
static_assert(sizeof(Control) == 32);
constexpr uint32_t kSetTimeslice = 0xa06c0103;
struct Timeslice {
  uint64_t us;
};
constexpr uint64_t kLeastUs = 100, kMostUs = 10'000'000;

template <class T>
T read_as(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

int system_call(int fd, unsigned long request, void* argument) {
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

}  // namespace

ChannelGroups& ChannelGroups::of_process() {
  static auto* groups = new ChannelGroups(system_call);  // the driver calls until the very end
  return *groups;
}

void ChannelGroups::on_called(int fd, unsigned long request, const void* argument) {
  if (_IOC_TYPE(request) != kMagic || argument == nullptr) return;
  const unsigned bytes = _IOC_SIZE(request);
  if (_IOC_NR(request) == kFree && bytes >= sizeof(Freeing)) {
    const auto freed = read_as<Freeing>(argument);
    if (freed.status != 0) return;
    std::lock_guard lock(mutex_);
    // With a client all that it has goes.
    std::erase_if(groups_, [&](const Group& g) {
      return g.client == freed.client && (g.handle == freed.handle || freed.handle == freed.client);
    });
    return;
  }
  if (_IOC_NR(request) != kAlloc ||
      (bytes != kObjectRequestBytes && bytes != kObjectRequestWithRights))
    return;
  const auto made = read_as<ObjectRequest>(argument);
  const size_t status_at = bytes == kObjectRequestBytes ? 28 : 40;
  if (made.object_class != kChannelGroup || made.parameters == 0 ||
      read_as<uint32_t>(static_cast<const char*>(argument) + status_at) != 0)
    return;
  if (read_as<GroupParameters>(reinterpret_cast<const void*>(made.parameters)).engine !=
      kComputeEngine)
    return;
  const Group group{fd, made.client, made.handle};
  std::unique_lock lock(mutex_);
  groups_.push_back(group);
  // Another slice may be wanted while this one is being set.
  for (uint64_t us = 0; us != slice_us_;) {
    us = slice_us_;
    lock.unlock();
    (void)set(group, us);
    lock.lock();
  }
}

bool ChannelGroups::set(const Group& group, uint64_t us) const {
  Timeslice slice{us};
  Control c{};
  c.client = group.client;
  c.object = group.handle;
  c.command = kSetTimeslice;
  c.parameters = reinterpret_cast<uint64_t>(&slice);
  c.bytes = sizeof slice;
  return call_(group.fd, _IOWR(kMagic, kControl, Control), &c) == 0 && c.status == 0;
}

size_t ChannelGroups::set_slice(uint64_t ns) {
  const uint64_t us = std::clamp(ns / 1000, kLeastUs, kMostUs);
  std::vector<Group> groups;
  {
    std::lock_guard lock(mutex_);
    slice_us_ = us;
    groups = groups_;
  }
  return static_cast<size_t>(
      std::count_if(groups.begin(), groups.end(), [&](const Group& g) { return set(g, us); }));
}

size_t ChannelGroups::count() const {
  std::lock_guard lock(mutex_);
  return groups_.size();
}

}  // namespace sluice::worker
