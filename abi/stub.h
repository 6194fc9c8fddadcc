/* The kernel stub of EffiSha, split by who may write: four memory objects per session (= per guest
 * process and worker). None of them is ever visible to the guest's processor.
 *
 *   host page       written by sluiced          mapped by the worker read-only (sealed); not by the GPU
 *   signal page     written by sluiced          mapped by the worker; GPU: read-only where it can
 *   report page     written by the worker       mapped by sluiced read-only; not by the GPU
 *   launch records  written by worker and GPU   mapped by sluiced read-only
 *
 * A kernel of the guest's can store into the launch records: it gets their address as a parameter. So
 * they are hints about lengths and progress and take part in no decision about who holds the GPU. The
 * report page is a memory object of its own: pinning the records does not reach it. A worker that a
 * guest has taken over may write anything there: docs/concepts/accounting.md, "Without a grant".
 *
 * All fields are naturally aligned words accessed with atomic loads and stores; orders are named
 * at each field. No read-modify-write by two parties on any of them.
 */
#ifndef SLUICE_ABI_STUB_H
#define SLUICE_ABI_STUB_H

#include <stdint.h>

#include "abi/preempt.h"

#define SLUICE_STUB_PAGE_BYTES 4096

/* grant word: one 64-bit word, so that gate, generation and flags are always read together.
 * bits 31:0 grant generation; bit 32 gate open; bit 33 contended (somebody else waits: ring when
 * demand falls to 0); bit 34 session is being ended; bit 35 recall (older generations are called
 * back while the gate stays open: say when they have left); bit 36 part of the GPU: launches of this
 * generation run on the SMs of its set in the host page and on no others. Without it: on all; bit 37
 * keep (with recall): what older generations have on SMs of the new set stays there. */
#define SLUICE_GRANT_GENERATION(w) ((uint32_t)(w))
#define SLUICE_GRANT_OPEN (1ull << 32)
#define SLUICE_GRANT_CONTENDED (1ull << 33)
#define SLUICE_GRANT_ENDING (1ull << 34)
#define SLUICE_GRANT_RECALL (1ull << 35)
#define SLUICE_GRANT_PART (1ull << 36)
#define SLUICE_GRANT_KEEP (1ull << 37)

/*
 * The gate protocol (model-checked in tests/model/gate_model.h; why each step is there: docs/internals/channel.md).
 * All words named here are loaded and stored seq_cst, in the order written.
 *
 *   worker, before any launch:   in_flight := n+1; g := grant;
 *                                open -> launch with generation(g);
 *                                closed -> heartbeat stale? launch with generation(g) + 1
 *                                          fresh? in_flight := n, hold; n == 0 -> *left*.
 *                                open with recall, and nothing of an older generation is in flight
 *                                -> *left* before the launch.
 *   worker, a launch has ended:  in_flight := n-1; demand as it is now, with its rule below;
 *                                g := grant; closed and in_flight == 0 -> *left*;
 *                                open with recall, nothing of an older generation in flight -> *left*.
 *   *left*:                      left_generation := generation(g), less one if it is open (release);
 *                                ring sluiced. Once for each value.
 *   worker, demand 0 -> n:       demand := n; grant closed -> ring sluiced.
 *   worker, demand n -> 0:       demand := 0; grant contended -> ring sluiced.
 *   worker, while it holds:      waits at its gate socket, and looks again some times a second (the
 *                                heartbeat may have gone stale, or sluiced died before it rang).
 *   sluiced, to grant:           grant := open, generation + 1, contended if others wait; ring the gate.
 *   sluiced, to engage:          grant |= contended; then reads demand and in_flight: both 0 -> idle.
 *   sluiced, to take the GPU:    grant := closed | contended, same generation; evict word := generation;
 *                                then reads in_flight: 0 -> it has left; else waits for the ring and
 *                                in_flight == 0 or left_generation == generation.
 *   sluiced, to change the SMs:  set of generation + 1 in the host page; grant := open | recall | part,
 *                                generation + 1; evict word := the old generation; ring the gate;
 *                                then reads in_flight: 0 -> the old has left; else waits for the ring
 *                                and in_flight == 0 or left_generation >= the old generation. SMs that
 *                                are not in the new set are given to nobody else before that.
 *   sluiced, the same where `keeps` allows it: evict word := of the old generation, a range with the SMs that its
 *                                launches may be on and the new set has not (none such: no word), then the set, and
 *                                the grant that says keep too; the ring and the reading as above.
 *                                recall >= the old generation: evict word := all its SMs.
 *   worker, open with recall and keep, something older in flight:
 *                                none of it is on SMs beyond the new set, nor can come there -> *left*.
 *                                What cannot be brought about: recall := generation(g) - 1; ring.
 *
 * A grant has a new, higher generation each time. A launch that read an old grant carries the old
 * generation, meets the evict word and leaves at once: old and new can never be confused. A launch on a
 * stale heartbeat carries the next generation, because the word's own has been evicted already; it is
 * recalled with that next grant's. Closed words carry the contended flag,
 * also the first one of a session, so that demand n -> 0 rings then as well.
 * The set of a generation is in the half of `sms` that its lowest bit names, stored before the grant
 * word. That half was the set of the generation before the last, which has left: sluiced changes the SMs
 * of a session again only when its last change is over, and grants it nothing before it has left. So a
 * worker that has counted its launch and read the grant finds the set of that grant. A launch on a stale
 * heartbeat and a closed gate runs on all SMs. What cannot be kept to a set of SMs (an opaque kernel)
 * runs all the same and is counted in `unconfined`.
 *
 * Ring = a datagram on the session's ring socket to sluiced; sluiced's answer to a grant change that
 * the worker waits for is one on its gate socket.
 */
struct sluice_host_page {
  uint64_t grant;         /* sluiced, seq_cst */
  uint64_t pad0[7];
  uint64_t heartbeat_ns;  /* sluiced, seq_cst: its CLOCK_MONOTONIC; stale = gates count as open */
  uint64_t pad1[7];
  /* sluiced, seq_cst: SMs of a generation with SLUICE_GRANT_PART, SM i in bit i % 64 of word i / 64;
     [generation & 1]. */
  uint64_t sms[2][SLUICE_LEFT_SMS / 64];
};

struct sluice_signal_page {
  sluice_evict_word evict; /* sluiced, seq_cst; read by proxies or, on the software GPU, workers */
  uint64_t pad0[15];
  uint64_t release_seq;    /* sluiced: releases pre-armed launches that wait for >= n (later use) */
  uint64_t pad1[15];
};

#define SLUICE_REPORT_RECORDS 512  /* launch records of a session */
/* sluice_report_header.keeps */
#define SLUICE_KEEPS_SHRINK 0x1u /* it could leave some of its SMs */
#define SLUICE_KEEPS_GROW 0x2u   /* it could go on on more */
#define SLUICE_MEMORY_KINDS 5
struct sluice_report_header {
  /* Written by the worker only. */
  uint32_t demand;          /* launches that the program queued and that are not done, but for those
                               that wait for the program itself (a host function, a value); seq_cst */
  uint32_t in_flight;       /* physical launches given, or about to be given, to the GPU; seq_cst */
  uint32_t left_generation; /* everything launched under generations <= this has left; release */
  uint32_t pid;             /* the worker's, for the logs */
  uint64_t launches;        /* logical launches accepted; relaxed, like all below */
  uint64_t launches_done;
  uint64_t evictions;       /* launches that ran, were first in their stream, and left before their end;
                               those behind them, which leave on `pred`, count as relaunches only */
  uint64_t relaunches;
  uint64_t opaque_launches;
  uint64_t left_ns;         /* CLOCK_MONOTONIC at the last change of left_generation */
  uint64_t error;           /* sticky CUresult of the session, 0: none */
  uint32_t unconfined;      /* launches in flight under a part of the GPU that are not kept to its SMs;
                               seq_cst; changes between 0 and more are rung */
  uint32_t keeps;           /* SLUICE_KEEPS_*: how far what is in flight could stay under another set; seq_cst, a
                               hint that need not be kept */
  uint32_t recall;          /* what was launched under generations <= this cannot stay: call it back whole; seq_cst,
                               changes are rung */
  uint32_t reserved32;
  uint64_t narrowed;        /* changes of SMs under which launches stayed where they were, but for the SMs that
                               were lost */
  uint64_t grown;           /* second grids of launches, on SMs that were won */
  uint64_t green_launches;  /* physical launches that were kept to a part of the GPU by a green context's stream */
  uint64_t green_contexts;  /* that were made */
  uint64_t part_launches;   /* physical launches under a part of the GPU, those included */
  uint64_t memory[SLUICE_MEMORY_KINDS]; /* device memory charged, bytes, in the order of ChargeKind
                                           (mediator/core/quota_lease.h) */
  uint64_t reserved[112 - SLUICE_MEMORY_KINDS];
};

/* Bytes of the memfd that holds a report header, and nothing else. */
#define SLUICE_REPORT_BYTES 4096

/* The only one of the four that kernels write. */
struct sluice_launch_records {
  struct sluice_launch_record records[SLUICE_REPORT_RECORDS];
};
/* Bytes of the memfd that holds them. */
#define SLUICE_RECORDS_BYTES 32768

/* The kernel that a sluice_launch_record's `opaque` names. */
#define SLUICE_RECORD_KERNEL(opaque) ((uint32_t)(opaque) >> 1)

#endif /* SLUICE_ABI_STUB_H */
