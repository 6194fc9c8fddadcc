#include "mediator/daemon/channel.h"

#include <fcntl.h>

#include <cstring>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/base/log.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/fence.h"

namespace sluice {
namespace {

void copy_text(char* to, size_t bytes, const std::string& text) {
  std::memset(to, 0, bytes);
  std::memcpy(to, text.data(), std::min(text.size(), bytes - 1));
}

}  // namespace

uint64_t ChannelGeometry::bulk_offset() const {
  uint64_t end = SLUICE_SLOT_OFFSET + uint64_t{slots} * SLUICE_SLOT_STRIDE;
  return (end + SLUICE_EXTENT_BYTES - 1) / SLUICE_EXTENT_BYTES * SLUICE_EXTENT_BYTES;
}

Channel::Channel(const ChannelGeometry& geometry)
    : geometry_(geometry),
      extents_(geometry.bulk_offset(), geometry.region_bytes),
      slots_(geometry.slots),
      next_epoch_(monotonic_ns()) {}

Result<std::unique_ptr<Channel>> Channel::make(const std::string& vgpu, const ChannelGeometry& geometry,
                                               uint64_t host_epoch) {
  std::unique_ptr<Channel> c(new Channel(geometry));
  c->vgpu_ = vgpu;
  auto memory = make_memfd("sluice-" + vgpu, geometry.region_bytes);
  if (!memory) return memory.error();
  // QEMU and the guest get this descriptor: they must not be able to add seals of their own.
  if (auto sealed = io::seal(memory->get(), 0); !sealed) return sealed.error();
  auto region = io::Mapping::map(memory->get(), geometry.region_bytes, true);
  if (!region) return region.error();
  c->memory_ = std::move(*memory);
  c->region_ = std::move(*region);
  for (uint32_t v = 0; v <= geometry.slots; ++v)
    for (std::vector<Fd>* bells : {&c->host_bells_, &c->guest_bells_}) {
      auto bell = make_eventfd();
      if (!bell) return bell.error();
      bells->push_back(std::move(*bell));
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

sluice_slot_header& Channel::slot_header(uint32_t slot) const {
  SLUICE_CHECK(slot < geometry_.slots);
  return *region_.as<sluice_slot_header>(SLUICE_SLOT_OFFSET + uint64_t{slot} * SLUICE_SLOT_STRIDE);
}

std::optional<uint32_t> Channel::take_slot() {
  std::optional<uint32_t> best;
  for (uint32_t i = 0; i < slots_.size(); ++i)
    if (!slots_[i].taken && (!best || slots_[i].freed < slots_[*best].freed)) best = i;
  if (best) slots_[*best].taken = true;
  return best;
}

Result<uint64_t> Channel::prepare_slot(uint32_t slot, const ExtentRange& staging) {
  SLUICE_CHECK(slots_[slot].taken);
  // Everything of the session before: rings, their data, its words.
  if (auto r = io::punch_out(memory_.get(), SLUICE_SLOT_OFFSET + uint64_t{slot} * SLUICE_SLOT_STRIDE,
                             SLUICE_SLOT_STRIDE);
      !r)
    return r.error();
  // Rings of the time before must not wake the new session.
  for (int fd : {host_bell(slot + 1), guest_bell(slot + 1)}) {
    uint64_t count;
    [[maybe_unused]] ssize_t n = ::read(fd, &count, sizeof count);
  }
  sluice_slot_header& s = slot_header(slot);
  const uint64_t epoch = ++next_epoch_;
  s.epoch = epoch;
  s.staging_offset = staging.offset;
  s.staging_bytes = staging.bytes;
  return epoch;
}

void Channel::open_slot(uint32_t slot) {
  store_shared(slot_header(slot).state, uint32_t{SLUICE_SLOT_OPEN}, std::memory_order_release);
}

void Channel::end_slot(uint32_t slot, int cuda_error, const std::string& reason) {
  sluice_slot_header& s = slot_header(slot);
  s.error = cuda_error;
  copy_text(s.reason, sizeof s.reason, reason);
  store_shared(s.state, uint32_t{SLUICE_SLOT_ENDED}, std::memory_order_release);
  slots_[slot].taken = false;
  slots_[slot].freed = ++ends_;
}

Result<ExtentRange> Channel::allocate(uint32_t slot, uint64_t bytes) {
  return extents_.allocate(owner(slot), bytes);
}

Result<void> Channel::give_back(uint32_t slot, uint64_t offset, uint64_t bytes) {
  if (!extents_.owns(owner(slot), offset, bytes))
    return Error{EINVAL, "gave back shared memory that it does not have"};
  if (auto r = io::punch_out(memory_.get(), offset, bytes); !r) {
    // Never handed out again in this life of the channel, because it may still hold data.
    log::error("vgpu {}: {} bytes of shared memory are lost: {}", vgpu_, bytes, r.error().message);
    return {};
  }
  extents_.release(owner(slot), {offset, bytes});
  return {};
}

void Channel::give_back_all(uint32_t slot) {
  for (const ExtentRange& r : extents_.of(owner(slot)))
    if (auto given = give_back(slot, r.offset, r.bytes); !given)
      log::error("vgpu {}: {}", vgpu_, given.error().message);
}

void Channel::set_state(sluice_channel_state state, const std::string& reason) {
  copy_text(header().reason, sizeof header().reason, reason);
  store_shared(header().state, uint32_t{state}, std::memory_order_release);
}

void Channel::beat(uint64_t count) { store_shared(header().host_beat, count); }

std::vector<int> Channel::host_bells() const {
  std::vector<int> fds;
  for (const Fd& fd : host_bells_) fds.push_back(fd.get());
  return fds;
}
std::vector<int> Channel::guest_bells() const {
  std::vector<int> fds;
  for (const Fd& fd : guest_bells_) fds.push_back(fd.get());
  return fds;
}

}  // namespace sluice
