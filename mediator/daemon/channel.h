// Channel: one life of a vGPU's shared region (abi/channel.h): the memfd, its event descriptors, who
// has which slot and which extents. Owned jointly by the vGPU and the sessions that use it, in
// sluiced's one thread. A guest that goes away takes its life with it: the vGPU makes a new Channel, and
// the old memory is freed when its last worker has gone, so nothing is ever left over for the next guest.
//
// It writes what the guest may see and never reads any of it back; the agent's rings are read by
// AgentLink, the slots' rings by workers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/channel.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/extents.h"
#include "mediator/io/mapping.h"

namespace sluice {

struct ChannelGeometry {
  uint64_t region_bytes;  // checked by the configuration
  uint32_t slots;
  uint64_t bulk_offset() const;
};

class Channel {
 public:
  static Result<std::unique_ptr<Channel>> make(const std::string& vgpu, const ChannelGeometry& geometry,
                                               uint64_t host_epoch);

  // Slots. The longest-unused free one, so that the words of an ended session stay readable longest;
  // nullopt: all are taken.
  std::optional<uint32_t> take_slot();
  // A zeroed slot with a new epoch, not yet open for the guest. Returns the epoch.
  Result<uint64_t> prepare_slot(uint32_t slot, const ExtentRange& staging);
  void open_slot(uint32_t slot);
  // The session is over and its worker gone: what the guest may read about it, then the slot is free.
  void end_slot(uint32_t slot, int cuda_error, const std::string& reason);

  // Extents, punched out when they are given back. One that cannot be is not handed out again.
  Result<ExtentRange> allocate(uint32_t slot, uint64_t bytes);
  Result<void> give_back(uint32_t slot, uint64_t offset, uint64_t bytes);
  void give_back_all(uint32_t slot);
  uint64_t extent_bytes(uint32_t slot) const { return extents_.used_bytes(owner(slot)); }
  const ExtentMap& extents() const { return extents_; }

  void set_state(sluice_channel_state state, const std::string& reason);
  void beat(uint64_t count);

  const ChannelGeometry& geometry() const { return geometry_; }
  void* region() const { return region_.data(); }
  int region_fd() const { return memory_.get(); }
  // Vector 0 is the agent's, slot i has vector i + 1.
  int host_bell(uint32_t vector) const { return host_bells_[vector].get(); }
  int guest_bell(uint32_t vector) const { return guest_bells_[vector].get(); }
  std::vector<int> host_bells() const;
  std::vector<int> guest_bells() const;

 private:
  Channel(const ChannelGeometry& geometry);
  sluice_channel_header& header() const { return *region_.as<sluice_channel_header>(); }
  sluice_slot_header& slot_header(uint32_t slot) const;
  static ExtentMap::Owner owner(uint32_t slot) { return slot + 1; }

  struct Slot {
    bool taken = false;
    uint64_t freed = 0;  // running number of its last end
  };
  ChannelGeometry geometry_;
  std::string vgpu_;
  Fd memory_;
  io::Mapping region_;
  std::vector<Fd> host_bells_, guest_bells_;
  ExtentMap extents_;
  std::vector<Slot> slots_;
  uint64_t ends_ = 0;
  uint64_t next_epoch_;
};

}  // namespace sluice
