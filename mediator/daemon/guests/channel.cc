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
constexpr int kErrorUnknown = 999;  // CUDA_ERROR_UNKNOWN

}  // namespace

uint64_t ChannelGeometry::bulk_offset() const {
  uint64_t end = SLUICE_SLOT_OFFSET + uint64_t{slots} * SLUICE_SLOT_STRIDE;
  return (end + SLUICE_EXTENT_BYTES - 1) / SLUICE_EXTENT_BYTES * SLUICE_EXTENT_BYTES;
}

Channel::Channel(const std::string& vgpu, const ChannelGeometry& geometry,
                 std::shared_ptr<RegionPool> pool)
    : geometry_(geometry),
      pool_(std::move(pool)),
      vgpu_(vgpu),
      extents_(geometry.bulk_offset(), geometry.region_bytes),
      slots_(geometry.slots),
      next_epoch_(monotonic_ns()) {}

Result<std::shared_ptr<Channel>> Channel::make(const std::string& vgpu,
                                               const ChannelGeometry& geometry, uint64_t host_epoch,
                                               std::shared_ptr<RegionPool> pool,
                                               io::PeerThread& peers) {
  std::shared_ptr<Channel> c(new Channel(vgpu, geometry, std::move(pool)));
  auto memory = make_memfd("sluice-" + vgpu, geometry.region_bytes);
  if (!memory) return memory.error();
  // QEMU and the guest get this descriptor: they must not be able to add seals of their own.
  if (auto sealed = io::seal(memory->get(), 0); !sealed) return sealed.error();
  if (auto mapped = c->map(std::move(*memory)); !mapped) return mapped.error();
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
  c->write_header(host_epoch);
  return c;
}

Result<void> Channel::map(Fd region) {
  auto mapped = io::Mapping::map(region.get(), geometry_.region_bytes, true);
  if (!mapped) return mapped.error();
  memory_ = std::make_shared<Memory>();
  memory_->fd = std::move(region);
  memory_->map = std::move(*mapped);
  return {};
}

// The epoch last: who sees it sees the rest.
void Channel::write_header(uint64_t host_epoch) {
  sluice_channel_header& h = header();
  h.magic = SLUICE_CHANNEL_MAGIC;
  h.version = SLUICE_CHANNEL_VERSION;
  h.oldest = SLUICE_CHANNEL_OLDEST;
  copy_text(h.host_release, sizeof h.host_release, SLUICE_VERSION);
  h.region_bytes = geometry_.region_bytes;
  h.slot_count = geometry_.slots;
  h.slot_stride = SLUICE_SLOT_STRIDE;
  h.bulk_offset = geometry_.bulk_offset();
  set_state(SLUICE_CHANNEL_READY, "");
  store_shared(h.host_epoch, host_epoch, std::memory_order_release);
}

Result<std::shared_ptr<Channel>> Channel::adopt(const std::string& vgpu,
                                                const ChannelGeometry& geometry,
                                                uint64_t host_epoch,
                                                std::shared_ptr<RegionPool> pool,
                                                io::PeerThread& peers, Descriptors descriptors) {
  const size_t vectors = geometry.slots + 1;
  struct stat st;
  if (::fstat(descriptors.region.get(), &st) != 0 ||
      static_cast<uint64_t>(st.st_size) != geometry.region_bytes ||
      descriptors.host_bells.size() != vectors || descriptors.guest_bells.size() != vectors)
    return Error{EINVAL, "the kept region is not of this vGPU's size"};
  std::shared_ptr<Channel> c(new Channel(vgpu, geometry, std::move(pool)));
  if (auto mapped = c->map(std::move(descriptors.region)); !mapped) return mapped.error();
  for (auto [from, to] : {std::pair{&descriptors.host_bells, &c->host_bells_},
                          {&descriptors.guest_bells, &c->guest_bells_}})
    for (Fd& bell : *from) to->push_back(std::make_unique<io::PeerBell>(peers, std::move(bell)));
  // Which extents programs still read is not known: all of them may be.
  if (auto all = c->extents_.allocate(owner(0), c->extents_.total_bytes()))
    c->pool_->used_bytes += all->bytes;
  for (uint32_t i = 0; i < geometry.slots; ++i) {
    c->slots_[i].state = SlotState::kOpen;
    c->slots_[i].epoch = ++c->next_epoch_;
    if (load_shared(c->slot_header(i).state) != SLUICE_SLOT_ENDED)
      c->end_slot(i, kErrorUnknown, "sluiced was started anew");
    else
      c->slots_[i].state = SlotState::kEnded;
  }
  // The agent of the old life is no agent of this one, until it writes a new epoch.
  const uint64_t had_agent = load_shared(c->header().agent_epoch);
  store_shared(c->header().agent_epoch, uint64_t{0}, std::memory_order_release);
  c->write_header(host_epoch);
  if (had_agent == 0) c->all_programs_gone();
  return c;
}

Channel::Memory::~Memory() {
  if (punch_out_at_end || free_at_end) (void)io::punch_out(fd.get(), 0, map.bytes());
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
