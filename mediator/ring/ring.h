// SPDX-License-Identifier: Apache-2.0
// One direction of a slot or of the control channel: a single-producer, single-consumer byte ring
// over abi/channel.h's sluice_ring, in memory that a hostile peer can write at any time.
//
// Owned by the two ends: the program's shim or sluice-agent in the guest, sluice-worker or sluiced
// on the host. Each object belongs to one thread at a time (callers lock if they share one). It
// never blocks and knows no descriptors but the bell's; waiting is its user's business
// (ring/wait.h).
//
// Nothing in it is trusted. Each end keeps its own index in private memory and never reads it back
// from the ring; the peer's index is bounded at every read (0 <= head - tail <= bytes, aligned). A
// record is copied once, header first; the copy of its length is checked, then the body is copied,
// and nothing in shared memory is read twice. A peer that breaks a rule makes the object
// `broken()` for good, with a reason: its user ends the session.
//
// Memory order: the mapping may be write-combined or uncached (a guest's VFIO mapping of BAR2), so
// C++'s release order, which on x86 is no instruction at all, is not enough: write-combined stores
// pass one another, and loads may be speculated. See ring/fence.h.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "abi/channel.h"
#include "abi/wire.h"
#include "mediator/ring/fence.h"

namespace sluice {

// Rings on somebody's behalf, for those who must not write to the peer's eventfd themselves.
class BellRinger {
 public:
  virtual ~BellRinger() = default;
  virtual void ring() = 0;
};

// How to wake the peer: an eventfd, or a store to the doorbell register of the ivshmem device.
// Copyable; the descriptor or mapping stays its owner's and must outlive the bell.
class Bell {
 public:
  Bell() = default;  // rings nothing: the peer polls
  static Bell for_ringer(BellRinger& ringer) {
    Bell b;
    b.ringer_ = &ringer;
    return b;
  }
  // Only where it does not matter whether the peer makes ring() wait: the eventfd's O_NONBLOCK is
  // the peer's, too. sluiced uses a BellRinger (mediator/io/peers/peer_thread.h).
  static Bell for_eventfd(int fd) {
    Bell b;
    b.fd_ = fd;
    return b;
  }
  static Bell for_mmio(volatile uint32_t* doorbell, uint32_t value) {
    Bell b;
    b.doorbell_ = doorbell;
    b.value_ = value;
    return b;
  }
  // Any thread.
  void ring() const;

 private:
  BellRinger* ringer_ = nullptr;
  int fd_ = -1;
  volatile uint32_t* doorbell_ = nullptr;
  uint32_t value_ = 0;
};

// Where a ring lies: its indices, its data and their size (a power of two). Borrowed.
struct RingMemory {
  sluice_ring* indices = nullptr;
  std::byte* data = nullptr;
  uint32_t bytes = 0;
};

// The rings of slot `slot` in a region mapped at `region`, and the two control rings. The caller
// has checked that the region is large enough and the slot number in range.
RingMemory submit_ring(void* region, uint32_t slot);
RingMemory complete_ring(void* region, uint32_t slot);
RingMemory control_to_host(void* region);
RingMemory control_to_agent(void* region);

// Bytes that a record with `body` bytes behind its 32-byte header takes.
constexpr uint32_t record_bytes(size_t body) {
  return static_cast<uint32_t>((sizeof(sluice_record) + body + SLUICE_RECORD_ALIGN - 1) &
                               ~size_t{SLUICE_RECORD_ALIGN - 1});
}
inline constexpr size_t kMaxRecordBody = SLUICE_RECORD_MAX_BYTES - sizeof(sluice_record);
static_assert(sizeof(sluice_record) == 32 && sizeof(sluice_completion) == 32);

class RingProducer {
 public:
  RingProducer() = default;
  // `fresh`: both indices are zero (a new slot). Otherwise the present head is taken over.
  RingProducer(RingMemory memory, Bell bell, bool fresh = true);

  // Room for a record of `bytes` (with header, a multiple of SLUICE_RECORD_ALIGN, at most
  // SLUICE_RECORD_MAX_BYTES), contiguous in the ring; null if there is none now, or broken().
  // Write it front to back and never read it: it is shared memory, perhaps write-combined.
  std::byte* reserve(uint32_t bytes);
  // The reserved record is written; the consumer sees it at the next publish().
  void commit();
  // Lets the consumer see everything committed, and rings if it sleeps. Once after several records.
  // Returns whether the bell was rung.
  bool publish();

  // reserve + copy + commit of header and body; false: no room, or broken(). `header.bytes` is
  // set here. Header is sluice_record or sluice_completion.
  template <class Header>
  bool push(Header header, std::span<const std::byte> body = {}) {
    static_assert(sizeof(Header) == sizeof(sluice_record));
    header.bytes = record_bytes(body.size());
    std::byte* to = reserve(header.bytes);
    if (to == nullptr) return false;
    std::memcpy(to, &header, sizeof header);
    if (!body.empty()) std::memcpy(to + sizeof header, body.data(), body.size());
    const size_t end = sizeof header + body.size();
    if (end < header.bytes) std::memset(to + end, 0, header.bytes - end);  // no stale bytes leak
    commit();
    return true;
  }

  // To sleep for room: arm_space(bytes); true -> wait for the wake descriptor, then disarm_space();
  // false -> there is room already (or broken()), nothing is armed.
  bool arm_space(uint32_t bytes);
  void disarm_space();

  bool broken() const { return broken_ != nullptr; }
  const char* broken_reason() const { return broken_ ? broken_ : ""; }
  uint64_t head() const { return head_; }  // committed, ours

 private:
  bool read_tail();                       // false: broken
  bool has_room(uint32_t bytes) const;    // with the filler that it may need
  uint32_t filler(uint32_t bytes) const;  // bytes lost at the end of the ring

  RingMemory memory_;
  Bell bell_;
  uint64_t head_ = 0;       // committed
  uint64_t published_ = 0;  // what the consumer may see
  uint64_t tail_seen_ = 0;
  uint32_t reserved_ = 0;
  const char* broken_ = nullptr;
};

// A private copy of one record.
class RecordBuffer {
 public:
  RecordBuffer() : data_(new Storage) {}
  uint32_t bytes() const { return bytes_; }
  const sluice_record& record() const { return *reinterpret_cast<const sluice_record*>(data_->b); }
  const sluice_completion& completion() const {
    return *reinterpret_cast<const sluice_completion*>(data_->b);
  }
  // What follows the header, with up to 31 bytes of padding.
  std::span<const std::byte> body() const {
    return {data_->b + sizeof(sluice_record), bytes_ - sizeof(sluice_record)};
  }

 private:
  friend class RingConsumer;
  struct Storage {
    alignas(64) std::byte b[SLUICE_RECORD_MAX_BYTES];
  };
  std::unique_ptr<Storage> data_;
  uint32_t bytes_ = sizeof(sluice_record);
};

enum class Pop {
  kRecord,  // a record was copied
  kEmpty,   // nothing there; the room of what was consumed is back, but for GiveBack::kLate
  kBroken   // the peer broke a rule; broken_reason() says which
};

// When a consumer gives back the room of what it has consumed, beside every eighth of the ring.
enum class GiveBack {
  kWhenEmpty,  // whenever the ring is empty: who takes over the ring finds nothing twice
  kLate        // before it sleeps; for rings that nobody takes over. Spares two fences a call.
};

class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(RingMemory memory, Bell bell, bool fresh = true,
               GiveBack give_back = GiveBack::kWhenEmpty);

  // The next record, fillers skipped.
  Pop pop(RecordBuffer& out);
  // Whether something is there, without taking it. Cheap enough to spin on. True when broken, too,
  // so that a waiter comes back and sees it.
  bool readable();
  // Gives back the room of everything popped; rings if the producer waits for room.
  void release();

  // To sleep: arm(); true -> wait for the wake descriptor, then disarm(); false -> something came
  // (or broken()), nothing is armed. arm() releases first, so a sleeper never sits on room.
  bool arm();
  void disarm();

  bool broken() const { return broken_ != nullptr; }
  const char* broken_reason() const { return broken_ ? broken_ : ""; }
  uint64_t tail() const { return tail_; }

 private:
  bool read_head();  // false: broken
  void prefetch() const;

  RingMemory memory_;
  Bell bell_;
  GiveBack give_back_ = GiveBack::kWhenEmpty;
  uint64_t tail_ = 0;      // consumed, ours
  uint64_t released_ = 0;  // what the producer may reuse
  uint64_t head_seen_ = 0;
  const char* broken_ = nullptr;
};

}  // namespace sluice
