// SPDX-License-Identifier: Apache-2.0
#include "mediator/ring/ring.h"

#include <unistd.h>

#include <algorithm>

#include "mediator/base/check.h"

namespace sluice {
namespace {

constexpr uint64_t kAlignMask = SLUICE_RECORD_ALIGN - 1;

// Consumed room goes back once it is this part of the ring: often enough that a producer does not
// wait for it, seldom enough that the producer's cache line with `tail` stays its own.
constexpr uint32_t kReleaseFraction = 8;
// What most records take, in lines of a processor's cache.
constexpr uint32_t kLineBytes = 64, kPrefetchedLines = 3;

RingMemory ring_at(void* region, uint64_t indices, uint64_t data, uint32_t bytes) {
  auto* base = static_cast<std::byte*>(region);
  return {reinterpret_cast<sluice_ring*>(base + indices), base + data, bytes};
}

uint64_t slot_offset(uint32_t slot) {
  return SLUICE_SLOT_OFFSET + uint64_t{slot} * SLUICE_SLOT_STRIDE;
}

}  // namespace

void Bell::ring() const {
  if (ringer_ != nullptr) {
    ringer_->ring();
  } else if (doorbell_ != nullptr) {
    *doorbell_ = value_;
  } else if (fd_ >= 0) {
    const uint64_t one = 1;
    // EAGAIN: the counter is full, so the bell rings already. Nothing else can be done here.
    [[maybe_unused]] ssize_t n = ::write(fd_, &one, sizeof one);
  }
}

RingMemory submit_ring(void* region, uint32_t slot) {
  const uint64_t at = slot_offset(slot);
  return ring_at(region, at + offsetof(sluice_slot_header, submit), at + SLUICE_SUBMIT_DATA,
                 SLUICE_SUBMIT_RING_BYTES);
}
RingMemory complete_ring(void* region, uint32_t slot) {
  const uint64_t at = slot_offset(slot);
  return ring_at(region, at + offsetof(sluice_slot_header, complete), at + SLUICE_COMPLETE_DATA,
                 SLUICE_COMPLETE_RING_BYTES);
}
RingMemory control_to_host(void* region) {
  return ring_at(region, SLUICE_CONTROL_OFFSET + offsetof(sluice_control, to_host),
                 SLUICE_CONTROL_TO_HOST_DATA, SLUICE_CONTROL_RING_BYTES);
}
RingMemory control_to_agent(void* region) {
  return ring_at(region, SLUICE_CONTROL_OFFSET + offsetof(sluice_control, to_agent),
                 SLUICE_CONTROL_TO_AGENT_DATA, SLUICE_CONTROL_RING_BYTES);
}

// ---- producer ----

RingProducer::RingProducer(RingMemory memory, Bell bell, bool fresh)
    : memory_(memory), bell_(bell) {
  SLUICE_CHECK(memory.bytes != 0 && (memory.bytes & (memory.bytes - 1)) == 0);
  if (!fresh) {
    head_ = published_ = load_shared(memory_.indices->head, std::memory_order_acquire);
    if ((head_ & kAlignMask) != 0) broken_ = "head index is not aligned";
    tail_seen_ = head_;
    const uint64_t tail = load_shared(memory_.indices->tail, std::memory_order_acquire);
    if (head_ - tail > memory_.bytes || (tail & kAlignMask) != 0)
      broken_ = "tail index is out of range";
    else
      tail_seen_ = tail;
  }
}

bool RingProducer::read_tail() {
  const uint64_t tail = load_shared(memory_.indices->tail, std::memory_order_acquire);
  // The consumer can only go forward, and never past what it was shown.
  if (tail - tail_seen_ > published_ - tail_seen_ || (tail & kAlignMask) != 0) {
    broken_ = "tail index jumped";
    return false;
  }
  tail_seen_ = tail;
  return true;
}

uint32_t RingProducer::filler(uint32_t bytes) const {
  const uint32_t to_end = memory_.bytes - static_cast<uint32_t>(head_ & (memory_.bytes - 1));
  return bytes <= to_end ? 0 : to_end;
}

bool RingProducer::has_room(uint32_t bytes) const {
  return memory_.bytes - (head_ - tail_seen_) >= uint64_t{filler(bytes)} + bytes;
}

std::byte* RingProducer::reserve(uint32_t bytes) {
  SLUICE_CHECK(bytes >= sizeof(sluice_record) && (bytes & kAlignMask) == 0 &&
               bytes <= SLUICE_RECORD_MAX_BYTES && bytes <= memory_.bytes / 2 && reserved_ == 0);
  if (broken_) return nullptr;
  if (!has_room(bytes) && (!read_tail() || !has_room(bytes))) return nullptr;
  if (const uint32_t pad = filler(bytes); pad != 0) {
    sluice_record record{};
    record.bytes = pad;
    record.flags = SLUICE_RECORD_PAD;
    std::memcpy(memory_.data + (head_ & (memory_.bytes - 1)), &record, sizeof record);
    head_ += pad;
  }
  reserved_ = bytes;
  return memory_.data + (head_ & (memory_.bytes - 1));
}

void RingProducer::commit() {
  SLUICE_CHECK(reserved_ != 0);
  head_ += reserved_;
  reserved_ = 0;
}

bool RingProducer::publish() {
  if (published_ == head_ || broken_) return false;
  store_fence();  // the records before the index, also through write-combining buffers
  store_shared(memory_.indices->head, head_, std::memory_order_release);
  published_ = head_;
  full_fence();  // the index before the look at `armed`
  if (load_shared(memory_.indices->armed) == 0) return false;
  bell_.ring();
  return true;
}

bool RingProducer::arm_space(uint32_t bytes) {
  publish();  // the consumer cannot make room for what it has not seen
  store_shared(memory_.indices->space_armed, 1u);
  full_fence();
  if (!broken_ && read_tail() && !has_room(bytes)) return true;
  disarm_space();
  return false;
}

void RingProducer::disarm_space() { store_shared(memory_.indices->space_armed, 0u); }

// ---- consumer ----

RingConsumer::RingConsumer(RingMemory memory, Bell bell, bool fresh, GiveBack give_back)
    : memory_(memory), bell_(bell), give_back_(give_back) {
  SLUICE_CHECK(memory.bytes != 0 && (memory.bytes & (memory.bytes - 1)) == 0);
  if (!fresh) {
    tail_ = released_ = head_seen_ = load_shared(memory_.indices->tail, std::memory_order_acquire);
    if ((tail_ & kAlignMask) != 0) broken_ = "tail index is not aligned";
  }
}

bool RingConsumer::read_head() {
  const uint64_t head = load_shared(memory_.indices->head, std::memory_order_acquire);
  if (head - tail_ > memory_.bytes || head - tail_ < head_seen_ - tail_ ||
      (head & kAlignMask) != 0) {
    broken_ = "head index jumped";
    return false;
  }
  head_seen_ = head;
  load_fence();  // the index before the records behind it
  return true;
}

// The next record is in the cache of the producer's processor: its lines come all at once, instead
// of one after the other as they are read.
void RingConsumer::prefetch() const {
  const uint64_t end = std::min(head_seen_, tail_ + kPrefetchedLines * kLineBytes);
  for (uint64_t at = tail_; at < end; at += kLineBytes)
    __builtin_prefetch(memory_.data + (at & (memory_.bytes - 1)));
}

bool RingConsumer::readable() {
  if (broken_ || head_seen_ != tail_) return true;
  return !read_head() || head_seen_ != tail_;
}

Pop RingConsumer::pop(RecordBuffer& out) {
  while (!broken_) {
    if (head_seen_ == tail_) {
      if (!read_head()) break;
      if (head_seen_ == tail_) {
        if (give_back_ == GiveBack::kWhenEmpty) release();
        return Pop::kEmpty;
      }
      prefetch();
    }
    const uint32_t at = static_cast<uint32_t>(tail_ & (memory_.bytes - 1));
    const uint32_t to_end = memory_.bytes - at;
    const uint64_t available = head_seen_ - tail_;
    std::byte* to = out.data_->b;
    std::memcpy(to, memory_.data + at, sizeof(sluice_record));
    // The compiler must take the header from the copy from here on: the peer may change the
    // original.
    asm volatile("" : : "r"(to) : "memory");
    const uint32_t bytes = out.record().bytes;
    if (bytes < sizeof(sluice_record) || (bytes & kAlignMask) != 0 || bytes > to_end ||
        bytes > available) {
      broken_ = "record length is out of range";
      break;
    }
    if ((out.record().flags & SLUICE_RECORD_PAD) != 0) {
      if (bytes != to_end) {
        broken_ = "filler does not end with the ring";
        break;
      }
      tail_ += bytes;
      continue;
    }
    if (bytes > SLUICE_RECORD_MAX_BYTES) {
      broken_ = "record is too long";
      break;
    }
    std::memcpy(to + sizeof(sluice_record), memory_.data + at + sizeof(sluice_record),
                bytes - sizeof(sluice_record));
    asm volatile("" : : "r"(to) : "memory");
    out.bytes_ = bytes;
    tail_ += bytes;
    if (tail_ - released_ >= memory_.bytes / kReleaseFraction) release();
    prefetch();  // while this one is used
    return Pop::kRecord;
  }
  return Pop::kBroken;
}

void RingConsumer::release() {
  if (released_ == tail_) return;
  load_fence();  // our reads of the records before the producer may overwrite them
  store_fence();
  store_shared(memory_.indices->tail, tail_, std::memory_order_release);
  released_ = tail_;
  full_fence();  // the index before the look at `space_armed`
  if (load_shared(memory_.indices->space_armed) != 0) bell_.ring();
}

bool RingConsumer::arm() {
  release();
  store_shared(memory_.indices->armed, 1u);
  full_fence();  // `armed` before the look at the index
  if (!readable()) return true;
  disarm();
  return false;
}

void RingConsumer::disarm() { store_shared(memory_.indices->armed, 0u); }

}  // namespace sluice
