/* What the rewriter, the kernels it makes, and the launcher agree on.
 *
 * A rewritten kernel is a *clone* of the original entry in the same module, named
 * `<entry>__sluice`, whose parameter list is the original's with one 64-byte block appended
 * (struct sluice_preempt_params). Its thread blocks are *workers*: each fetches *tickets*
 * (block-task numbers) from a counter, runs the original body for each, and looks at the evict
 * word between chunks of tickets. What has run stays run; a relaunch goes on from the counter.
 *
 * Who runs it: the GPU (clone) and sluice-worker (launcher). No guest reads or writes these
 * structures except through a kernel of its own, which can harm only its own session.
 * Sources: EffiSha (PPoPP'17) section 4 (evict flag, persistent form, proxy), FLEP (ASPLOS'17)
 * section 4 (spatial range), FRS. C and C++; sizes and offsets are checked in abi/asserts.c.
 */
#ifndef SLUICE_ABI_PREEMPT_H
#define SLUICE_ABI_PREEMPT_H

#include <stdint.h>

#define SLUICE_CLONE_SUFFIX "__sluice"
#define SLUICE_PREEMPT_PARAMS_BYTES 64
#define SLUICE_PREEMPT_PARAMS_ALIGN 8

/* The evict word: ONE 64-bit little-endian store {generation:32, sm_lo:16, sm_hi:16}, generation
 * in the low half. A launch whose own generation is <= the word's leaves at its next chunk
 * boundary if sm_lo <= %smid < sm_hi. Generations only grow and nothing is ever cleared, so an
 * old eviction can never meet a new grant. 0 is "never"; launches start at generation 1. */
typedef uint64_t sluice_evict_word;
#define SLUICE_EVICT_WORD(gen, lo, hi) \
  ((uint64_t)(uint32_t)(gen) | ((uint64_t)(uint16_t)(lo) << 32) | ((uint64_t)(uint16_t)(hi) << 48))
#define SLUICE_EVICT_ALL_SMS(gen) SLUICE_EVICT_WORD((gen), 0, 0xffff)

/* sluice_preempt_params.flags */
#define SLUICE_LAUNCH_PROXY 0x1u /* hardware block 0 is the proxy: it polls `signal` (host memory)
                                    and copies it to control.evict, which the workers read.
                                    Without it the workers read `signal` themselves. */

/* Appended parameter block; little-endian; alignment 8 inside the parameter space. Written by the
 * launcher for each physical launch, read-only for the kernel. */
struct sluice_preempt_params {
  uint64_t control;    /* device address of the logical launch's sluice_launch_control */
  uint64_t signal;     /* the session's evict word as the GPU addresses it (signal page) */
  uint64_t record;     /* the launch's sluice_launch_record as the GPU addresses it; 0: none */
  uint64_t pred;       /* control block of the predecessor in the stream whose `done` must be 1
                          before any ticket is fetched; 0: none */
  uint32_t grid_x, grid_y, grid_z; /* the logical grid; x*y*z tasks, < 2^31 */
  uint32_t generation; /* this physical launch's generation, >= 1 */
  uint16_t chunk;      /* tickets per fetch, 1..1024; a fetched chunk is always finished */
  uint16_t flags;      /* SLUICE_LAUNCH_* */
  /* ticket -> (x,y,z), row-major as the hardware starts blocks, by the round-up method of
   * Granlund & Montgomery: q = (t + ((n - t) >> s1)) >> s2 with t = mulhi(magic, n),
   * l = ceil(log2 d), s1 = min(l,1), s2 = max(l-1,0). _x divides by grid_x, _y by grid_y. */
  uint32_t magic_x, magic_y;
  uint8_t shift_x1, shift_x2, shift_y1, shift_y2;
};

/* One per LOGICAL launch, in device memory, zeroed before its first physical launch and kept
 * until the launches behind it have ended. 512 bytes, 128-byte aligned; each group of fields that
 * is written by different parties stands on its own 128-byte line. */
struct sluice_launch_control {
  /* line 0, atomics by all workers. Device scope. */
  uint32_t next_ticket;   /* first ticket not yet fetched; overshoots the total by up to
                             workers*chunk, so clamp it */
  uint32_t pad0[31];
  /* line 1, written by the proxy only, read by all workers (relaxed). */
  uint64_t evict;         /* device copy of the evict word */
  uint64_t pad1[15];
  /* line 2, atomics by each worker as it leaves. */
  uint32_t finished;      /* tasks run to their end, added once per worker and physical launch */
  uint32_t exited;        /* blocks of this physical launch that have left; the last one sets it
                             back to 0, so a relaunch finds it clean */
  uint32_t done;          /* 1 once finished == total; read by the successor's leaders */
  uint32_t physical;      /* physical launches that have ended */
  uint32_t pad2[28];
  /* line 3, for left-over lists (chunks abandoned half-way); not used yet, must be 0. */
  uint32_t left_count, left_capacity;
  uint64_t left_list;
  uint32_t pad3[28];
};

/* States of a launch, from EffiSha's kernel stub. */
enum sluice_launch_state {
  SLUICE_LAUNCH_FREE = 0,    /* record unused (worker) */
  SLUICE_LAUNCH_PREP = 1,    /* the program asked, the worker has it (worker) */
  SLUICE_LAUNCH_READY = 2,   /* all it depends on is done; waits for a grant (worker) */
  SLUICE_LAUNCH_TORUN = 3,   /* given to the driver (worker) */
  SLUICE_LAUNCH_RUNNING = 4, /* its first block has started (GPU) */
  SLUICE_LAUNCH_TOEVICT = 5, /* left before its end (GPU, last block out) */
  SLUICE_LAUNCH_DONE = 6     /* every task has run (GPU, last block out) */
};

/* One per logical launch, in the report page (abi/stub.h): 64 bytes, written by the GPU (fields
 * marked G; plain stores, system scope, by the last block out) and the worker (W), read by both
 * and by sluiced. A hostile kernel can forge it: a hint, never proof. */
struct sluice_launch_record {
  uint32_t state;        /* W, G: enum sluice_launch_state */
  uint32_t generation;   /* G: generation of the physical launch that wrote last */
  uint32_t tasks_total;  /* W */
  uint32_t tasks_done;   /* G: == tasks_total when done */
  uint64_t launch_id;    /* W: running number within the session, from 1 */
  uint64_t ready_ns;     /* W: CLOCK_MONOTONIC of the host */
  uint64_t left_ns;      /* G: %globaltimer when the last block left (0: not written) */
  uint64_t start_ns;     /* G: %globaltimer of the first block's start (0: not written) */
  uint32_t evictions;    /* W: physical launches that ended before the logical one did */
  uint32_t opaque;       /* W: 1 = not rewritten */
  uint64_t reserved;
};

#endif /* SLUICE_ABI_PREEMPT_H */
