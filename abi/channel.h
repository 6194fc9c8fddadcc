/* SPDX-License-Identifier: Apache-2.0 */
/* The channel: how the programs of one vGPU reach the host.
 *
 * Terms
 *   region     the shared memory of one vGPU. In a guest, BAR2 of the ivshmem device; for processes
 *              of the host, a memfd. Users of the channel cannot tell which.
 *   slot       one guest process's part of the region: a header and two byte rings
 *   epoch      the number of one use of a slot; changes with every opening
 *   bulk area  the rest of the region, in extents of 2 MiB that sluiced lends to sessions: data of
 *              copies, pinned memory
 *   record     one message in a ring; never wraps
 *   bell       the wake-up of the other side
 *   agent      sluice-agent, the only process of a guest that has the device
 *
 * The region
 *   0               +--------------------------------------+
 *                   | sluice_channel_header                |  host half, agent half
 *   4 KiB           +--------------------------------------+
 *                   | sluice_control: agent <-> sluiced    |  two rings of 128-byte messages
 *   1 MiB           +--------------------------------------+
 *                   | slot 0 | slot 1 | ...                |  slot_stride bytes each
 *   bulk_offset     +--------------------------------------+
 *                   | extent | extent | ...                |  2 MiB each
 *   region_bytes    +--------------------------------------+
 *
 * A slot
 *   0               sluice_slot_header, with the indices of both rings
 *   64 KiB          submit ring's bytes    program -> worker
 *   640 KiB         complete ring's bytes  worker -> program
 *
 * Trust: the host trusts nothing in the region. Whatever the guest can write is copied once, the
 * copy is checked, and the host never reads back a word of its own from here: its indices, sizes
 * and states live in private memory, and the region has copies for the guest to see.
 *
 * Access: no locked read-modify-write and no assumption of write-back caching, because a guest may
 * map BAR2 uncached or write-combined (mediator/ring has the fences). [H] is written by the host
 * (sluiced or worker), [G] by the guest (agent or program). Sizes and offsets are checked in
 * abi/asserts.c.
 */
#ifndef SLUICE_ABI_CHANNEL_H
#define SLUICE_ABI_CHANNEL_H

#include <stdint.h>

#define SLUICE_CHANNEL_MAGIC 0x6563756c73ull /* "sluce" */
#define SLUICE_CHANNEL_VERSION 2u
/* The oldest version that is still spoken. Host, agent and libcuda are upgraded at different times.
 * Two of them work together while neither's version is below the other's oldest; they then speak
 * the lower of their versions. Within a version, records and flags are only added. */
#define SLUICE_CHANNEL_OLDEST 2u

#define SLUICE_EXTENT_BYTES (2u << 20)
#define SLUICE_SLOT_OFFSET (1u << 20)
#define SLUICE_SLOT_STRIDE (1u << 20)
#define SLUICE_MAX_SLOTS 64
/* Guest process and worker both map the whole region here, with MAP_FIXED_NOREPLACE and before
 * cuInit, so that an extent has the same address on both sides. Far from where the NVIDIA driver,
 * the loader and sanitizers put things. The region may have at most SLUICE_WINDOW_BYTES. */
#define SLUICE_WINDOW_ADDRESS 0x500000000000ull
#define SLUICE_WINDOW_BYTES (16ull << 30)

enum sluice_channel_state {
  SLUICE_CHANNEL_STARTING = 0,
  SLUICE_CHANNEL_READY = 1,
  SLUICE_CHANNEL_REFUSED = 2, /* `reason` says why; the region has one page only */
  SLUICE_CHANNEL_CLOSED = 3   /* the vGPU was deleted */
};

struct sluice_channel_header {
  uint64_t magic;        /* [H] */
  uint32_t version;      /* [H] */
  uint32_t state;        /* [H] release; enum sluice_channel_state */
  uint64_t region_bytes; /* [H] a power of two */
  uint32_t
      slot_count; /* [H] slots 0..n-1; slot i uses interrupt vector i+1, vector 0 is the agent's */
  uint32_t slot_stride; /* [H] */
  uint64_t bulk_offset; /* [H] a multiple of SLUICE_EXTENT_BYTES */
  uint64_t host_epoch;  /* [H] changes when sluiced gives the vGPU a new life (guest reboot seen) */
  uint64_t host_beat;   /* [H] relaxed; grows about once a second while sluiced lives */
  char reason[192];     /* [H] NUL-terminated, for REFUSED and CLOSED */
  uint32_t oldest;      /* [H] SLUICE_CHANNEL_OLDEST of the host; 0: equal to its version */
  uint32_t pad0;
  char host_release[16]; /* [H] of its package, for people; NUL-terminated */
  uint64_t pad1[30];
  /* second half: the agent's */
  uint64_t agent_epoch;   /* [G] release; random and non-zero, new for each start of the agent. A
                             change ends every session of the vGPU. */
  uint64_t agent_beat;    /* [G] relaxed; stale = the guest is silent */
  char agent_release[16]; /* [G] of the guest's package, for people; empty: from before the field */
};

/* One direction of a byte ring. Indices are free-running byte counts; position = index & (bytes-1).
 * A record never wraps: SLUICE_RECORD_PAD fills the rest. Each 64-byte line has one writer. */
struct sluice_ring {
  uint64_t head; /* producer, release; consumer acquires */
  uint64_t pad0[7];
  uint64_t tail;  /* consumer, release; producer acquires */
  uint32_t armed; /* consumer, seq_cst: 1 = sleeping or about to; ring after publishing */
  uint32_t pad1[13];
  uint32_t space_armed; /* producer, seq_cst: 1 = waiting for room; ring after consuming */
  uint32_t pad2[15];
};

/* The wake-up protocol (model-checked in tests/model/wakeup_model_test.cc):
 *   consumer sleeps: armed = 1; full fence; head == tail still? wait for the bell; armed = 0.
 *   producer:        write record; head = new (release); full fence; armed? ring the bell.
 * A full ring is the same with tail and space_armed: the producer waits for room, the consumer
 * rings. One thread of each side waits for a bell. When it wakes it checks everything that the bell
 * may stand for: new records in one ring, room in the other. Two waiting threads would take each
 * other's bell.
 */

#define SLUICE_CONTROL_RING_BYTES 16384u
struct sluice_control {
  struct sluice_ring to_host;  /* agent -> sluiced */
  struct sluice_ring to_agent; /* sluiced -> agent */
};
#define SLUICE_CONTROL_OFFSET 4096u
#define SLUICE_CONTROL_TO_HOST_DATA 8192u
#define SLUICE_CONTROL_TO_AGENT_DATA (8192u + SLUICE_CONTROL_RING_BYTES)

enum sluice_control_opcode {
  SLUICE_CONTROL_OPEN = 1,   /* agent: a program wants a slot */
  SLUICE_CONTROL_OPENED = 2, /* sluiced: answer to OPEN; status 0 or an errno, then reason */
  /* agent: the program of this slot and epoch has gone; also after CLOSED. Slot and extents keep
   * their contents until then. */
  SLUICE_CONTROL_CLOSE = 3,
  /* sluiced: the session of this slot and epoch is over (also unasked) */
  SLUICE_CONTROL_CLOSED = 4
};
struct sluice_control_message { /* 128 bytes, in the control rings behind a sluice_record header */
  uint32_t slot;
  uint32_t status;    /* 0 or errno */
  uint64_t request;   /* chosen by the agent, echoed */
  uint64_t epoch;     /* the slot's, see sluice_slot_header.epoch */
  uint32_t guest_pid; /* for logs only */
  uint32_t flags;     /* OPENED: SLUICE_JOINED_* for the program; else 0 */
  char text[96];      /* program name (OPEN) or reason (OPENED, CLOSED), NUL-terminated */
};

enum sluice_slot_state {
  SLUICE_SLOT_FREE = 0,
  SLUICE_SLOT_OPEN = 1, /* a worker serves it */
  SLUICE_SLOT_ENDED = 2 /* the session is over: error and reason say why */
};

#define SLUICE_WANTED_CLONES 7u

struct sluice_slot_header {    /* at the slot's offset; 4 KiB */
  uint32_t state;              /* [H] release; enum sluice_slot_state */
  int32_t error;               /* [H] CUresult that ended the session, 0: closed normally */
  uint64_t epoch;              /* [H] changes with every opening of the slot */
  uint64_t staging_offset;     /* [H] region offset of the session's own staging extents */
  uint64_t staging_bytes;      /* [H] */
  char reason[224];            /* [H] NUL-terminated */
  struct sluice_ring submit;   /* program -> worker */
  struct sluice_ring complete; /* worker -> program */
  /* [H] 1: the session's streams hold as much as they may, behind a host function. Nothing that
   * queues work is to be submitted until it is 0 again; then the wake-up rings. A program that
   * submits more loses the session in the end. HOST_FUNC_DONE comes by the same ring, so the ring
   * stays open. */
  uint32_t hold;
  uint32_t pad;
  /* [H] With SLUICE_JOINED_CLONES_ON_REQUEST: functions whose clones the worker wants, 0: none.
   * With SLUICE_JOINED_FORMS_APART also those that have their first form, and whose others it
   * wants. Each stands at its handle modulo SLUICE_WANTED_CLONES; another one may take its place.
   */
  uint64_t wanted_clones[SLUICE_WANTED_CLONES];
};
#define SLUICE_SUBMIT_DATA (64u << 10) /* from the slot's offset */
#define SLUICE_SUBMIT_RING_BYTES (512u << 10)
#define SLUICE_COMPLETE_DATA (640u << 10)
#define SLUICE_COMPLETE_RING_BYTES (256u << 10)

/* Joining: the first messages on the socket of sluiced (local transport) or of the agent (in a
 * guest). SOCK_SEQPACKET. The program sends sluice_join, gets sluice_joined with descriptors, and
 * keeps the connection open: its end ends the session. */
#define SLUICE_JOIN_MAGIC 0x6e696f6au
/* sluice_join.version: what the program speaks.
 *
 *   31    16 15      0
 *   +-------+---------+
 *   | oldest| version |   oldest 0: equal to the version
 *   +-------+---------+
 */
#define SLUICE_JOIN_VERSION(version, oldest) \
  ((uint32_t)(version) | ((oldest) == (version) ? 0u : (uint32_t)(oldest) << 16))
struct sluice_join {
  uint32_t magic;
  uint32_t version; /* SLUICE_JOIN_VERSION(SLUICE_CHANNEL_VERSION, SLUICE_CHANNEL_OLDEST) */
  char program[96]; /* for logs and `sluicectl show`, NUL-terminated */
};
/* Modules are loaded as the program gives them, and a kernel's clones when it is first launched
 * (SLUICE_CALL_FUNCTION_CLONES). Without it every clone is in the text of its module. */
#define SLUICE_JOINED_LAZY_CLONES 0x1u
/* Beside it: not at the first launch, but once the worker has asked for them (sluice_slot_header.
 * wanted_clones), which it does for kernels that take long. */
#define SLUICE_JOINED_CLONES_ON_REQUEST 0x4u
/* Beside LAZY_CLONES: a launch whose blocks the GPU holds at once needs no clones
 * (SLUICE_LAUNCHED_AT_ONCE). */
#define SLUICE_JOINED_ORIGINALS_AT_ONCE 0x8u
/* Beside LAZY_CLONES: the text of a kernel's clones has no original, and unless CLONES_ON_REQUEST
 * stands here too it has their first form only (SLUICE_FUNCTION_OTHERS_LATER). */
#define SLUICE_JOINED_FORMS_APART 0x10u
/* Modules are loaded as the program gives them, and nothing is evicted: kernels have no clones. */
#define SLUICE_JOINED_ORIGINALS 0x2u
enum sluice_doorbell_kind {
  SLUICE_DOORBELL_EVENTFD =
      1, /* descriptors: region memfd, bell (write to ring the host), wake (host rings) */
  SLUICE_DOORBELL_MMIO = 2, /* descriptors: VFIO device (region and BAR0 by mmap offsets), wake */
  SLUICE_DOORBELL_MMIO_APART = 3 /* descriptors: region, wake, BAR0; the offsets are in each */
};
struct sluice_joined {
  uint32_t magic;
  uint32_t status; /* 0, or an errno with `reason` */
  uint32_t slot;
  uint32_t doorbell_kind;
  uint64_t epoch;
  uint64_t region_bytes;
  uint64_t region_offset;   /* mmap offset of the region in descriptor 0 */
  uint64_t doorbell_offset; /* MMIO: its mmap offset; APART: in descriptor 2 */
  uint32_t doorbell_at;     /* MMIO: byte in that page */
  uint32_t doorbell_value;  /* MMIO: 32-bit value to store: peer << 16 | vector */
  uint32_t can_wait;        /* 1: the wake descriptor fires; 0: the program has to poll */
  uint32_t flags;           /* SLUICE_JOINED_*; those that are not known mean nothing */
  char reason[192];
};

/* ivshmem-doorbell BAR0 (QEMU docs/specs/ivshmem-spec.txt) */
#define SLUICE_IVSHMEM_VENDOR 0x1af4u
#define SLUICE_IVSHMEM_DEVICE 0x1110u
#define SLUICE_IVSHMEM_IVPOSITION 8u
#define SLUICE_IVSHMEM_DOORBELL 12u
#define SLUICE_IVSHMEM_HOST_PEER 0u /* sluiced's peer id; the guest is peer 1 */
#define SLUICE_IVSHMEM_GUEST_PEER 1u

/* The version that this side speaks with one of `version` and `oldest` (0: equal to its version);
 * 0: they have none in common. */
static inline uint32_t sluice_channel_common(uint32_t version, uint32_t oldest) {
  if (oldest == 0 || oldest > version) oldest = version;
  if (version < SLUICE_CHANNEL_OLDEST || oldest > SLUICE_CHANNEL_VERSION) return 0;
  return version < SLUICE_CHANNEL_VERSION ? version : SLUICE_CHANNEL_VERSION;
}
static inline uint32_t sluice_join_common(uint32_t join_version) {
  return sluice_channel_common(join_version & 0xffffu, join_version >> 16);
}

#endif /* SLUICE_ABI_CHANNEL_H */
