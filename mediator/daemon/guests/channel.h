// SPDX-License-Identifier: Apache-2.0
// Channel: one life of a shared region (abi/channel.h): the memfd, its event descriptors, who has
// which slot and which extents. A vGPU has one with its virtual machine, and one of a single slot
// with each local program. Owned jointly by the vGPU and the sessions that use it, in sluiced's one
// thread. A virtual machine that goes away takes its life with it: the vGPU makes a new Channel,
// and the old memory is freed when its last worker has gone, so nothing is ever left over for the
// next guest.
//
// It writes what the guest may see and never reads any of it back; the agent's rings are read by
// AgentLink, the slots' rings by workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/channel.h"
#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/extents.h"
#include "mediator/io/mapping.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice {

struct ChannelGeometry {
  uint64_t region_bytes;  // checked by the configuration
  uint32_t slots;
  bool has_agent = true;  // vector 0 and the control rings are used
  uint64_t bulk_offset() const;
};

// What all regions of a vGPU have together, so that many local programs pin no more host memory
// than one virtual machine may. Owned jointly by the vGPU and its channels.
struct RegionPool {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;  // extents in use or being scrubbed, of every channel
  uint32_t scrubbing = 0;   // pieces of memory whose scrubbing has not ended
  // Runs `work` where it may take long, then `then` in sluiced's thread.
  std::function<void(std::function<void()> work, std::function<void()> then)> post;
  std::function<void()> on_freed;  // some scrubbing has ended
};

// A slot, and with it the extents of its session, is taken until both its worker and its program
// have gone: a program may still read the memory of a session whose worker died.
//
//   from      take_slot   open_slot   end_slot (the worker   program_gone   scrubbed
//                                     has gone)
//   free      starting
//   starting              open        scrubbing (the         closed
//                                     program knows nothing)
//   open                              ended                  closed
//   closed                            scrubbing
//   ended                                                    scrubbing
//   scrubbing                                                               free
enum class SlotState {
  kFree,
  kStarting,   // a worker starts
  kOpen,       // program and worker use it
  kClosed,     // the program has gone, its worker has not
  kEnded,      // the worker has gone, the program may still read its memory
  kScrubbing,  // both have gone; its memory is being punched out
};

class Channel : public std::enable_shared_from_this<Channel> {
 public:
  static Result<std::shared_ptr<Channel>> make(const std::string& vgpu,
                                               const ChannelGeometry& geometry, uint64_t host_epoch,
                                               std::shared_ptr<RegionPool> pool,
                                               io::PeerThread& peers);
  // The descriptors of a channel with a virtual machine, as another process of ours had them.
  struct Descriptors {
    Fd region;
    std::vector<Fd> host_bells, guest_bells;  // as many as slots, and one
  };
  // A new life in the memory of an old one, whose virtual machine goes on. The sessions of the old
  // life are over, which is written into their slots. Their memory is kept until the agent has
  // started anew (all_programs_gone()), and until then no slot is free.
  static Result<std::shared_ptr<Channel>> adopt(const std::string& vgpu,
                                                const ChannelGeometry& geometry,
                                                uint64_t host_epoch,
                                                std::shared_ptr<RegionPool> pool,
                                                io::PeerThread& peers, Descriptors descriptors);
  ~Channel();

  // A free slot; nullopt: all are taken.
  std::optional<uint32_t> take_slot();
  // Writes the header of a slot that was taken, not yet open for the guest. Returns its new epoch.
  Result<uint64_t> prepare_slot(uint32_t slot, const ExtentRange& staging);
  void open_slot(uint32_t slot);
  // The worker is gone, so nobody of ours writes there any more. Says why for the program to read.
  void end_slot(uint32_t slot, int cuda_error, const std::string& reason);
  // The program that had the slot with this epoch reads nothing any more. Values of the guest's;
  // what fits no slot is ignored.
  void program_gone(uint32_t guest_slot, uint64_t guest_epoch);
  // All programs have gone, and (`region_too`) nobody of this region is left but workers: its
  // memory is punched out as a whole with the channel, because somebody may still have it mapped.
  void all_programs_gone(bool region_too = false);
  uint32_t slots_in(SlotState state) const;
  uint32_t slots_in_use() const { return geometry_.slots - slots_in(SlotState::kFree); }

  // Extents. Those given back are punched out before anybody gets them again; one that cannot be is
  // not handed out again. ENOMEM with scrubbing() true may be different after RegionPool::on_freed.
  Result<ExtentRange> allocate(uint32_t slot, uint64_t bytes);
  Result<void> give_back(uint32_t slot, uint64_t offset, uint64_t bytes);
  bool scrubbing() const { return pool_->scrubbing != 0; }
  uint64_t extent_bytes(uint32_t slot) const { return extents_.used_bytes(owner(slot)); }
  const ExtentMap& extents() const { return extents_; }

  // The virtual machine has gone, and another process has the region's descriptor, too: its memory
  // is punched out in the end, which otherwise would stay.
  void free_at_end() { memory_->free_at_end = true; }
  void set_state(sluice_channel_state state, const std::string& reason);
  void beat(uint64_t count);
  // Whether a program uses more of the region's memory than its slots and extents are: then it
  // writes where nothing was given to it.
  bool holds_too_much() const;

  const ChannelGeometry& geometry() const { return geometry_; }
  void* region() const { return memory_->map.data(); }
  int region_fd() const { return memory_->fd.get(); }
  // Vector 0 is the agent's, slot i has vector i + 1.
  int host_bell(uint32_t vector) const { return host_bells_[vector]->fd(); }
  int guest_bell(uint32_t vector) const { return guest_bells_[vector]->fd(); }
  BellRinger& guest_ringer(uint32_t vector) const { return *guest_bells_[vector]; }
  std::vector<int> host_bells() const;
  std::vector<int> guest_bells() const;

 private:
  struct Memory {
    Fd fd;
    io::Mapping map;
    bool punch_out_at_end = false;  // instead of slot by slot
    bool free_at_end = false;
    ~Memory();
  };
  struct Slot {
    SlotState state = SlotState::kFree;
    uint64_t epoch = 0;  // 0: not prepared since it was taken
  };
  Channel(const std::string& vgpu, const ChannelGeometry& geometry,
          std::shared_ptr<RegionPool> pool);
  Result<void> map(Fd region);
  void write_header(uint64_t host_epoch);
  sluice_channel_header& header() const { return *memory_->map.as<sluice_channel_header>(); }
  sluice_slot_header& slot_header(uint32_t slot) const;
  static ExtentMap::Owner owner(uint32_t slot) { return slot + 1; }
  // Punches the extents of `had`, and the slot if one is named, out of the memory, then frees them.
  void scrub(ExtentMap::Owner had, std::vector<ExtentRange> extents, std::optional<uint32_t> slot);
  void scrubbed(const std::vector<ExtentRange>& extents, std::optional<uint32_t> slot);
  void scrub_slot(uint32_t slot);

  ChannelGeometry geometry_;
  std::shared_ptr<RegionPool> pool_;
  std::string vgpu_;
  std::shared_ptr<Memory> memory_;
  // Null: vector 0 where there is no agent.
  std::vector<std::unique_ptr<io::PeerBell>> host_bells_, guest_bells_;
  ExtentMap extents_;
  std::vector<Slot> slots_;
  uint64_t next_epoch_;
};

}  // namespace sluice
