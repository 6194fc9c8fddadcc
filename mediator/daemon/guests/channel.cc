// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/channel.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"
#include "mediator/core/names.h"
#include "mediator/ring/fence.h"

namespace sluice {
namespace {

// Who has extents that are being punched out.
constexpr ExtentMap::Owner kScrubber = UINT32_MAX;

}  // namespace

uint64_t ChannelGeometry::bulk_offset() const {
  uint64_t end = SLUICE_SLOT_OFFSET + uint64_t{slots} * SLUICE_SLOT_STRIDE;
  return (end + SLUICE_EXTENT_BYTES - 1) / SLUICE_EXTENT_BYTES * SLUICE_EXTENT_BYTES;
}

Channel::Channel(const ChannelGeometry& geometry, std::shared_ptr<RegionPool> pool)
    : geometry_(geometry),
      pool_(std::move(pool)),
      extents_(geometry.bulk_offset(), geometry.region_bytes),
      slots_(geometry.slots),
      next_epoch_(monotonic_ns()) {}

Result<std::shared_ptr<Channel>> Channel::make(const std::string& vgpu,
                                               const ChannelGeometry& geometry, uint64_t host_epoch,
                                               std::shared_ptr<RegionPool> pool,
                                               io::PeerThread& peers) {
  std::shared_ptr<Channel> c(new Channel(geometry, std::move(pool)));
  c->vgpu_ = vgpu;
  auto memory = make_memfd("sluice-" + vgpu, geometry.region_bytes);
  if (!memory) return memory.error();
  // QEMU and the guest get this descriptor: they must not be able to add seals of their own.
  if (auto sealed = io::seal(memory->get(), 0); !sealed) return sealed.error();
  auto region = io::Mapping::map(memory->get(), geometry.region_bytes, true);
  if (!region) return region.error();
  c->memory_ = std::make_shared<Memory>();
  c->memory_->fd = std::move(*memory);
  c->memory_->map = std::move(*region);
  for (uint32_t v = 0; v <= geometry.slots; ++v)
    for (auto* bells : {&c->host_bells_, &c->guest_bells_}) {
      if (v == 0 && !geometry.has_agent) {
        bells->emplace_back();
        continue;
      }
      auto bell = make_eventfd();
      if (!bell) return bell.error();
      bells->push_back(std::make_unique<io::PeerBell>(peers, std::move(*bell)));
    }
  sluice_channel_header& h = c->header();
  h.magic = SLUICE_CHANNEL_MAGIC;
  h.version = SLUICE_CHANNEL_VERSION;
  h.region_bytes = geometry.region_bytes;
  h.slot_count = geometry.slots;
  h.slot_stride = SLUICE_SLOT_STRIDE;
  h.bulk_offset = geometry.bulk_offset();
  h.host_epoch = host_epoch;
  c->set_state(SLUICE_CHANNEL_READY, "");
  return c;
}

Channel::Memory::~Memory() {
  if (punch_out_at_end) (void)io::punch_out(fd.get(), 0, map.bytes());
}

Channel::~Channel() {
  if (!memory_) return;
  // Freeing a large region takes its time. Its extents count until that is done.
  ++pool_->scrubbing;
  // In a box, so that no copy of the function keeps it for sluiced's own thread to free.
  auto box = std::make_shared<std::shared_ptr<Memory>>(std::move(memory_));
  pool_->post([box] { box->reset(); },
              [pool = pool_, bytes = extents_.used_bytes()] {
                pool->used_bytes -= bytes;
                --pool->scrubbing;
                if (pool->on_freed) pool->on_freed();
              });
}

sluice_slot_header& Channel::slot_header(uint32_t slot) const {
  SLUICE_CHECK(slot < geometry_.slots);
  return *memory_->map.as<sluice_slot_header>(SLUICE_SLOT_OFFSET +
                                              uint64_t{slot} * SLUICE_SLOT_STRIDE);
}

// ---- slots ----

std::optional<uint32_t> Channel::take_slot() {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != SlotState::kFree) continue;
    slots_[i] = {SlotState::kStarting, 0};
    return i;
  }
  return std::nullopt;
}

uint32_t Channel::slots_in(SlotState state) const {
  uint32_t count = 0;
  for (const Slot& s : slots_) count += s.state == state;
  return count;
}

Result<uint64_t> Channel::prepare_slot(uint32_t slot, const ExtentRange& staging) {
  SLUICE_CHECK(slots_[slot].state == SlotState::kStarting);
  // Rings of the time before must not wake the new session.
  host_bells_[slot + 1]->drain();
  guest_bells_[slot + 1]->drain();
  sluice_slot_header& s = slot_header(slot);
  const uint64_t epoch = ++next_epoch_;
  slots_[slot].epoch = epoch;
  s.epoch = epoch;
  s.staging_offset = staging.offset;
  s.staging_bytes = staging.bytes;
  return epoch;
}

void Channel::open_slot(uint32_t slot) {
  SLUICE_CHECK(slots_[slot].state == SlotState::kStarting);
  slots_[slot].state = SlotState::kOpen;
  store_shared(slot_header(slot).state, uint32_t{SLUICE_SLOT_OPEN}, std::memory_order_release);
}

void Channel::end_slot(uint32_t slot, int cuda_error, const std::string& reason) {
  const SlotState before = slots_[slot].state;
  SLUICE_CHECK(before == SlotState::kStarting || before == SlotState::kOpen ||
               before == SlotState::kClosed);
  if (before == SlotState::kStarting && slots_[slot].epoch == 0) {
    slots_[slot].state = SlotState::kFree;  // nothing was ever written there
    return;
  }
  sluice_slot_header& s = slot_header(slot);
  s.error = cuda_error;
  copy_text(s.reason, sizeof s.reason, reason);
  store_shared(s.state, uint32_t{SLUICE_SLOT_ENDED}, std::memory_order_release);
  if (before == SlotState::kOpen)
    slots_[slot].state = SlotState::kEnded;
  else
    scrub_slot(slot);
}

void Channel::program_gone(uint32_t guest_slot, uint64_t guest_epoch) {
  if (guest_slot >= slots_.size() || slots_[guest_slot].epoch != guest_epoch || guest_epoch == 0)
    return;
  Slot& s = slots_[guest_slot];
  if (s.state == SlotState::kStarting || s.state == SlotState::kOpen)
    s.state = SlotState::kClosed;
  else if (s.state == SlotState::kEnded)
    scrub_slot(guest_slot);
}

void Channel::all_programs_gone(bool region_too) {
  memory_->punch_out_at_end |= region_too;
  for (uint32_t i = 0; i < slots_.size(); ++i) program_gone(i, slots_[i].epoch);
}

void Channel::scrub_slot(uint32_t slot) {
  slots_[slot].state = SlotState::kScrubbing;
  scrub(owner(slot), extents_.of(owner(slot)), slot);
}

// ---- extents ----

Result<ExtentRange> Channel::allocate(uint32_t slot, uint64_t bytes) {
  if (bytes > pool_->limit_bytes - pool_->used_bytes)
    return Error{ENOMEM, "the vGPU's shared memory is used up"};
  auto range = extents_.allocate(owner(slot), bytes);
  if (!range) return range;
  if (range->bytes > pool_->limit_bytes - pool_->used_bytes) {  // rounded up to whole extents
    extents_.release(owner(slot), *range);
    return Error{ENOMEM, "the vGPU's shared memory is used up"};
  }
  pool_->used_bytes += range->bytes;
  return range;
}

Result<void> Channel::give_back(uint32_t slot, uint64_t offset, uint64_t bytes) {
  if (!extents_.owns(owner(slot), offset, bytes))
    return Error{EINVAL, "gave back shared memory that it does not have"};
  scrub(owner(slot), {{offset, bytes}}, std::nullopt);
  return {};
}

void Channel::scrub(ExtentMap::Owner had, std::vector<ExtentRange> extents,
                    std::optional<uint32_t> slot) {
  if (memory_->punch_out_at_end) return;  // all of it goes at once
  for (const ExtentRange& r : extents) extents_.hand_over(had, kScrubber, r);
  ++pool_->scrubbing;
  auto failed = std::make_shared<std::string>();
  auto box = std::make_shared<std::shared_ptr<Memory>>(memory_);  // as in the destructor
  auto work = [box, extents, slot, failed] {
    auto punch = [&](uint64_t offset, uint64_t bytes) {
      auto done = io::punch_out((*box)->fd.get(), offset, bytes);
      if (!done && failed->empty()) *failed = done.error().message;
    };
    for (const ExtentRange& r : extents) punch(r.offset, r.bytes);
    if (slot) punch(SLUICE_SLOT_OFFSET + uint64_t{*slot} * SLUICE_SLOT_STRIDE, SLUICE_SLOT_STRIDE);
    box->reset();
  };
  auto then = [weak = weak_from_this(), pool = pool_, extents, slot, failed] {
    --pool->scrubbing;
    if (auto self = weak.lock()) {
      // What may still hold data is never handed out again in this life of the channel.
      if (!failed->empty())
        log::error("vgpu {}: shared memory is lost: {}", self->vgpu_, *failed);
      else
        self->scrubbed(extents, slot);
    }
    if (pool->on_freed) pool->on_freed();
  };
  pool_->post(std::move(work), std::move(then));
}

void Channel::scrubbed(const std::vector<ExtentRange>& extents, std::optional<uint32_t> slot) {
  for (const ExtentRange& r : extents) {
    extents_.release(kScrubber, r);
    pool_->used_bytes -= r.bytes;
  }
  if (slot) slots_[*slot] = {};
}

bool Channel::holds_too_much() const {
  struct stat st;
  if (::fstat(memory_->fd.get(), &st) != 0) return false;
  const uint64_t given = geometry_.bulk_offset() + extents_.used_bytes();
  return static_cast<uint64_t>(st.st_blocks) * 512 > given;
}

void Channel::set_state(sluice_channel_state state, const std::string& reason) {
  copy_text(header().reason, sizeof header().reason, reason);
  store_shared(header().state, uint32_t{state}, std::memory_order_release);
}

void Channel::beat(uint64_t count) { store_shared(header().host_beat, count); }

std::vector<int> Channel::host_bells() const {
  std::vector<int> fds;
  for (const auto& bell : host_bells_) fds.push_back(bell ? bell->fd() : -1);
  return fds;
}
std::vector<int> Channel::guest_bells() const {
  std::vector<int> fds;
  for (const auto& bell : guest_bells_) fds.push_back(bell ? bell->fd() : -1);
  return fds;
}

}  // namespace sluice
