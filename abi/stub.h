/* SPDX-License-Identifier: Apache-2.0 */
/* Stub pages: how sluiced, a worker and the kernels of its guest signal to each other.
 *
 * Terms (more in ARCHITECTURE.md, "Glossary")
 *   session      one guest process and its worker
 *   grant        the permission for a session to launch; each has a new, higher generation
 *   gate         open or closed: whether the worker may submit launches now
 *   in flight    submitted to the GPU, or about to be, and not ended
 *   demand       launches that the program queued and that have not ended
 *   left         nothing that was launched under a generation is in flight any more
 *   ring         send a datagram: the worker to sluiced on the session's ring socket, sluiced to
 *                the worker on its gate socket
 *
 * Four memory objects a session, split by who may write. None is visible to the guest's processor.
 *
 *                     sluiced      worker       kernels on the GPU
 *   host page         writes       reads        -
 *   signal page       writes       reads        read, where the GPU can map it read-only
 *   report page       reads        writes       -
 *   launch records    reads        writes       write
 *
 * Trust: a guest's kernel gets the address of the launch records as a parameter and can store into
 * them. They are hints about lengths and progress; no decision about who holds the GPU uses them.
 * The report page is a memory object of its own, because pinning the records must not reach it. A
 * worker that a guest has taken over may write anything there: docs/concepts/accounting.md,
 * "Without a grant".
 *
 * Access: naturally aligned words, atomic loads and stores, in the order named at each field.
 * No word is read, modified and written by two parties.
 */
#ifndef SLUICE_ABI_STUB_H
#define SLUICE_ABI_STUB_H

#include <stdint.h>

#include "abi/preempt.h"

#define SLUICE_STUB_PAGE_BYTES 4096

/* Grant word. Written by sluiced, read by the worker, always whole.
 *
 *   63       42    41    40  39 38  37   36   35     34     33        32   31          0
 *   +----------+-------+----+-----+----+----+------+------+---------+----+------------+
 *   | reserved |standby|fill|level|keep|part|recall|ending|contended|open| generation |
 *   +----------+-------+----+-----+----+----+------+------+---------+----+------------+
 *
 *   open       launches may start
 *   contended  another vGPU is waiting: ring when demand drops to 0
 *   ending     the session is being terminated
 *   recall     generations before this one drain although the gate is open: ring when they have
 *              left
 *   part       launches of this generation are confined to its SM set in the host page; without it
 *              they may use all SMs
 *   keep       with recall: launches on SMs of the new set need not drain
 *   level      where turns are priorities: launches of this generation go to streams whose priority
 *              is this many levels above the lowest one
 *   fill       with a level above 0: others are kept out of the gaps between launches; at level 0:
 *              prepare for that
 *   standby    with open: it is nobody's turn, and only launches may start that are expected to
 *              take SLUICE_STANDBY_NS at most; ring when there is demand
 */
#define SLUICE_GRANT_GENERATION(w) ((uint32_t)(w))
#define SLUICE_GRANT_OPEN (1ull << 32)
#define SLUICE_GRANT_CONTENDED (1ull << 33)
#define SLUICE_GRANT_ENDING (1ull << 34)
#define SLUICE_GRANT_RECALL (1ull << 35)
#define SLUICE_GRANT_PART (1ull << 36)
#define SLUICE_GRANT_KEEP (1ull << 37)
#define SLUICE_GRANT_LEVELS 3 /* of the 4 that there is room for */
#define SLUICE_GRANT_LEVEL(w) ((uint32_t)((w) >> 38) & 3u)
#define SLUICE_GRANT_AT_LEVEL(level) ((uint64_t)(level) << 38)
#define SLUICE_GRANT_FILL (1ull << 40)
#define SLUICE_GRANT_STANDBY (1ull << 41)
/* Longer: a standby launch delays others for longer. Shorter: more kernels need a grant first. */
#define SLUICE_STANDBY_NS 500000ull

/* The gate protocol. Model-checked in tests/model/gate_model.h; docs/internals/channel.md says why
 * each step is there. All words named here are loaded and stored seq_cst, in the order written.
 *
 * Worker
 *   before a launch      in_flight := n + 1; g := grant
 *     open                 launch with generation(g)
 *     open, recall         nothing older in flight: *left* first, then launch
 *     closed, stale        (heartbeat too old) launch with generation(g) + 1
 *     closed, fresh        in_flight := n; hold the launch; n == 0: *left*
 *   a launch has ended   in_flight := n - 1; demand, by its rule below; g := grant
 *     closed               in_flight == 0: *left*
 *     open, recall         nothing older in flight: *left*
 *   *left*               left_generation := generation(g), less one if the gate is open (release);
 *                        ring sluiced. Once for each value.
 *   demand 0 -> n        demand := n; gate closed, or standby: ring sluiced
 *   demand n -> 0        demand := 0, one more of `idles`; contended: ring sluiced
 *   while it holds       waits at its gate socket; polls the grant and the heartbeat some times a
 *                        second, because sluiced may have died before it rang
 *   open, recall, keep, something older in flight
 *     all of it is and stays on SMs of the new set:   *left*
 *     some of it cannot:   recall := generation(g) - 1; ring sluiced
 *
 * sluiced
 *   grant                grant := open, generation + 1, contended if others wait; ring the gate
 *   engage               grant |= contended; then read demand and in_flight: both 0 -> idle
 *   preempt              grant := closed | contended, same generation; evict word := generation;
 *                        then read in_flight: 0 -> left. Else wait for a ring and
 *                        in_flight == 0 or left_generation == generation.
 *   stand by             (demand and in_flight were 0) grant := open | contended | standby, same
 *                        generation; then read demand and in_flight
 *   accept               grant := open, same generation; ring the gate, for launches that are held
 *   repartition          SM set of generation + 1 in the host page; grant := open | recall | part,
 *                        generation + 1; evict word := the old generation; ring the gate;
 *                        then read in_flight: 0 -> the old generation has left. Else wait for a
 *                        ring and in_flight == 0 or left_generation >= the old generation. Until
 *                        then no other vGPU gets an SM that is not in the new set.
 *   repartition, keep    (where `keeps` allows it) evict word := the old generation, with the range
 *                        of SMs that its launches may be on and the new set lacks; none: no word.
 *                        Then set, grant with keep, ring and reading as above.
 *                        recall >= the old generation: evict word := all its SMs.
 *
 * Why generations cannot be confused
 *   - A launch that read an old grant carries the old generation, meets the evict word and leaves.
 *   - A launch on a stale heartbeat carries the next generation, because the word's own has been
 *     evicted already. The next grant recalls it. It runs on all SMs.
 *   - Closed words carry `contended`, also the first one of a session: demand n -> 0 rings, too.
 *   - The set of a generation is in the half of `sms` that the generation's lowest bit names,
 *     stored before the grant word. That half held the set of the generation before the last, which
 *     has left: sluiced repartitions only when the last repartition is over, and grants nothing
 *     before the session has left. So a worker that has counted its launch and read the grant finds
 *     the set of that grant.
 *   - What cannot be confined to SMs (an opaque kernel) runs all the same; `unconfined` counts it.
 */
/* After this long without a beat sluiced counts as gone and its gates as open: fairness waits, the
 * programs go on. Shorter: a busy machine opens gates by mistake. Longer: a dead mediator stalls
 * every program for that long. */
#define SLUICE_STALE_HEARTBEAT_NS 2000000000ull

struct sluice_host_page {
  uint64_t grant; /* sluiced, seq_cst */
  uint64_t pad0[7];
  uint64_t heartbeat_ns; /* sluiced, seq_cst: its CLOCK_MONOTONIC; too old: gates count as open */
  uint64_t pad1[7];
  /* sluiced, seq_cst: the SM set of a generation with SLUICE_GRANT_PART, in [generation & 1]; SM i
     is bit i % 64 of word i / 64. */
  uint64_t sms[2][SLUICE_LEFT_SMS / 64];
};

struct sluice_signal_page {
  sluice_evict_word evict; /* sluiced, seq_cst; read by proxies or, on the software GPU, workers */
  uint64_t pad0[15];
  uint64_t release_seq; /* sluiced: releases pre-armed launches that wait for >= n (later use) */
  uint64_t pad1[15];
};

#define SLUICE_REPORT_RECORDS 512 /* launch records of a session */
/* sluice_report_header.keeps */
#define SLUICE_KEEPS_SHRINK 0x1u /* can leave some of its SMs */
#define SLUICE_KEEPS_GROW 0x2u   /* can use more SMs */
#define SLUICE_KEEPS_SMS                                               \
  0x4u /* where turns are priorities: their blocks stay until they are \
          evicted, so that no priority moves them */
#define SLUICE_MEMORY_KINDS 5
struct sluice_report_header {
  /* Written by the worker only. */
  uint32_t demand;    /* launches that the program queued and that have not ended, except those
                         that wait for the program itself (a host function, a value); seq_cst */
  uint32_t in_flight; /* physical launches given, or about to be given, to the GPU; seq_cst */
  uint32_t left_generation; /* everything launched under generations <= this has left; release */
  uint32_t pid;             /* the worker's, for the logs */
  uint64_t launches;        /* logical launches accepted; relaxed, like all below */
  uint64_t launches_done;
  uint64_t evictions; /* launches that ran, were first in their stream, and left before their end;
                         those behind them, which leave on `pred`, count as relaunches only */
  uint64_t relaunches;
  uint64_t opaque_launches;
  uint64_t left_ns;    /* CLOCK_MONOTONIC at the last change of left_generation */
  uint64_t error;      /* sticky CUresult of the session, 0: none */
  uint32_t unconfined; /* launches in flight under a part of the GPU that are not kept to its SMs;
                          seq_cst; changes between 0 and more are rung */
  uint32_t keeps;      /* SLUICE_KEEPS_*: what launches in flight could do under another set; a
                          hint, not a promise; seq_cst */
  uint32_t recall;     /* launches under generations <= this cannot stay: evict them from all
                          their SMs; seq_cst, changes are rung */
  uint32_t idles; /* how often demand became 0; wraps, relaxed: a host that is busy misses some */
  uint64_t narrowed;       /* repartitions in which launches left only the SMs that were lost */
  uint64_t grown;          /* second grids of launches, on gained SMs */
  uint64_t green_launches; /* physical launches that a green context's stream confined */
  uint64_t green_contexts; /* created */
  uint64_t part_launches; /* physical launches under a grant with `part`, green_launches included */
  uint64_t memory[SLUICE_MEMORY_KINDS]; /* device memory charged, bytes, in the order of ChargeKind
                                           (mediator/core/quota_lease.h) */
  uint64_t whole_launches; /* those of opaque_launches whose kernel could be evicted: the grid was
                              on the GPU at once, or known to be short; or has no clones
                              because all its grids were (SLUICE_LAUNCHED_AT_ONCE) */
  uint64_t in_flight_ns;   /* CLOCK_MONOTONIC when in_flight was 0 last; stored before it changes */
  uint64_t burst_ns;       /* for how long demand was above 0 each time, ... */
  uint64_t gap_ns;         /* ... and 0 in between: means of the last ones; 0: not known */
  uint64_t demand_changed_ns; /* CLOCK_MONOTONIC when demand last became 0, or ceased to be it */
  uint64_t flight_ns; /* for how long in_flight was above 0 in all, until it became 0 last; stored
                         before it does */
  uint64_t reserved[106 - SLUICE_MEMORY_KINDS];
};

/* Bytes of the memfd that holds a report header, and nothing else. */
#define SLUICE_REPORT_BYTES 4096

/* Of a launch with a record: by what its length is predicted, beside its tasks. */
struct sluice_launch_shape {
  uint32_t block_threads;
  uint32_t shared_bytes; /* of a block, dynamic */
  uint64_t input_bytes;  /* of the allocations that its parameters point into */
};
/* Kernels write the records, of the four memory objects nothing else. The shapes are on a page of
   their own, which is not pinned. */
struct sluice_launch_records {
  struct sluice_launch_record records[SLUICE_REPORT_RECORDS];
  struct sluice_launch_shape shapes[SLUICE_REPORT_RECORDS]; /* W */
};
/* Bytes of the memfd that holds them, and of those that are pinned for kernels. */
#define SLUICE_RECORDS_BYTES 40960
#define SLUICE_PINNED_RECORDS_BYTES 32768

/* The kernel that a sluice_launch_record's `opaque` names. */
#define SLUICE_RECORD_KERNEL(opaque) ((uint32_t)(opaque) >> 1)

#endif /* SLUICE_ABI_STUB_H */
