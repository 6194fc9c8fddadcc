/* SPDX-License-Identifier: Apache-2.0 */
/* What the rewriter, the kernels it makes, and the launcher agree on.
 *
 * Terms
 *   clone            a rewritten copy of a kernel in the same module, named `<entry>__sluice`. Its
 *                    parameters are the original's and one struct sluice_preempt_params.
 *   task, ticket     the work of one block of the original grid; its number
 *   worker           a thread block of a clone. (The process is written sluice-worker here.)
 *   chunk            tickets that a worker fetches at once from the counter `next_ticket`
 *   batch            tasks of a chunk that a worker runs between two polls of the evict word
 *   logical launch   what the program asked for; it has one control block
 *   physical launch  one submission to the GPU; an eviction ends it and another follows
 *   generation       number of the grant under which a physical launch was submitted
 *   left-over list   per stream: the unstarted rests of chunks, a slot for each worker
 *
 * A worker
 *
 *   tickets   0                   next_ticket                    tasks
 *             +-------------------+------------------------------+
 *             | fetched           | not fetched                  |
 *             +-------------------+------------------------------+
 *                     | a chunk: | run | run | batch | not begun |
 *                                                  ^ evict word polled: leave
 *                                                    the rest -> its left-over slot
 *
 * What has run is not run again. A relaunch drains the list and goes on from the counter. A launch
 * is done when all tickets are fetched, the list is empty and its blocks have ended.
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
/* A kernel whose clone is a loop has a second one, with the same parameters and shared memory,
 * whose blocks run one task each (kernels/passes/clone/admission.h); the launcher chooses. */
#define SLUICE_ONE_TASK_SUFFIX "__sluice_once"
/* A third one, with the original's shared memory: the original's blocks, which the launcher starts
 * in *windows* of the grid (kernels/passes/steps/window.cc). */
#define SLUICE_WINDOW_SUFFIX "__sluice_window"
#define SLUICE_PREEMPT_PARAMS_BYTES 128
#define SLUICE_PREEMPT_PARAMS_ALIGN 8
/* Shared memory that a clone has on top of the original: two broadcast slots of 16 bytes and its
 * leader's 48 bytes of state. Static; or behind the dynamic shared memory that the program asked
 * for, at the next multiple of 16: its launch then gets SLUICE_PREEMPT_DYNAMIC_BYTES more. */
#define SLUICE_PREEMPT_SHARED_BYTES 80
/* Behind these: counters of the threads that have returned (kernels/passes/steps/unified.cc). */
#define SLUICE_PREEMPT_COUNT_BYTES 32
/* Behind these: addresses of the task's mbarrier objects (kernels/passes/steps/clean_up.cc). */
#define SLUICE_PREEMPT_OBJECTS 16
#define SLUICE_PREEMPT_OBJECT_BYTES (4 * SLUICE_PREEMPT_OBJECTS)
#define SLUICE_PREEMPT_DYNAMIC_BYTES \
  (SLUICE_PREEMPT_SHARED_BYTES + SLUICE_PREEMPT_COUNT_BYTES + SLUICE_PREEMPT_OBJECT_BYTES + 16)

/* Evict word. Written whole, by one 64-bit store.
 *
 *   63    48 47    32 31               0
 *   +-------+--------+------------------+
 *   | sm_hi | sm_lo  |    generation    |
 *   +-------+--------+------------------+
 *
 *   generation    launches of this one and of those before it leave at their next batch boundary
 *   sm_lo, sm_hi  but only from SMs with sm_lo <= %smid < sm_hi
 *
 * Generations only grow and the word is never cleared, so an old eviction cannot end a new grant.
 * 0: nobody leaves; launches start at generation 1. */
typedef uint64_t sluice_evict_word;
#define SLUICE_EVICT_WORD(gen, lo, hi) \
  ((uint64_t)(uint32_t)(gen) | ((uint64_t)(uint16_t)(lo) << 32) | ((uint64_t)(uint16_t)(hi) << 48))
#define SLUICE_EVICT_ALL_SMS(gen) SLUICE_EVICT_WORD((gen), 0, 0xffff)

/* sluice_preempt_params.flags */
#define SLUICE_LAUNCH_PROXY                                              \
  0x1u /* hardware block 0 is the proxy: it polls `signal` (host memory) \
          and copies it to control.evict, which the workers read.        \
          Without it the workers read `signal` themselves. */
#define SLUICE_LAUNCH_RESUME                                              \
  0x2u /* a physical launch has passed `pred` before: drain the left-over \
          list; there are no first tickets any more */
#define SLUICE_LAUNCH_FIXED                                            \
  0x4u /* the chunk stays as given, and is a batch (FLEP's amortising) \
        */
#define SLUICE_LAUNCH_DUTY                                                 \
  0x10u /* resumable clones: the workers take turns in copying `signal` to \
           control.evict, one look each SLUICE_DUTY_NS; instead of PROXY,  \
           whose block might find no room beside blocks that never end */
#define SLUICE_LAUNCH_SPATIAL                                          \
  0x8u /* only on SMs [sm_lo, sm_hi), sm_quota workers on each; counts \
          the workers of each SM, so that its last one reports it */

#define SLUICE_LAUNCH_ONE_ROW                                         \
  0x20u /* grid_y and grid_z are 1: a task's number is its index in x \
         */

/* Appended parameter block; little-endian; alignment 8 inside the parameter space. Written by the
 * launcher for each physical launch, read-only for the kernel. */
struct sluice_preempt_params {
  uint64_t control; /* device address of the logical launch's sluice_launch_control */
  uint64_t signal;  /* the session's evict word as the GPU addresses it: in the signal page, or
                       a word in device memory that the worker's signaller writes. 16-byte
                       aligned, and the 8 bytes behind it can be read */
  uint64_t record;  /* the launch's sluice_launch_record as the GPU addresses it; 0: none */
  uint64_t pred;    /* control block of the predecessor in the stream whose `done` must be 1
                       before any ticket is fetched; 0: none */
  uint64_t left;    /* device address of the stream's sluice_launch_left */
  uint32_t grid_x, grid_y, grid_z; /* the logical grid */
  uint32_t tasks;                  /* grid_x * grid_y * grid_z, < 2^31 */
  uint32_t generation;             /* this physical launch's generation, >= 1 */
  uint16_t chunk;                  /* tickets of a worker's first chunk, >= 1; adapted from there */
  uint16_t flags;                  /* SLUICE_LAUNCH_* */
  /* ticket -> (x,y,z), row-major as the hardware starts blocks, by the round-up method of
   * Granlund & Montgomery: q = (t + ((n - t) >> s1)) >> s2 with t = mulhi(magic, n),
   * l = ceil(log2 d), s1 = min(l,1), s2 = max(l-1,0). _x divides by grid_x, _y by grid_y. */
  uint32_t magic_x, magic_y;
  uint8_t shift_x1, shift_x2, shift_y1, shift_y2;
  uint32_t target_clocks; /* of a chunk, in SM clocks: a worker draws as many tickets as take this
                             long */
  uint32_t worker_base;   /* number of the first worker: 0, or behind those of a first grid that
                             still runs (growing back). Worker numbers name left-over slots. Where a
                             block runs one task: the first task that is left */
  uint32_t left_slots;    /* slots of the list that may hold something */
  uint16_t chunk_max;     /* >= 1 */
  uint8_t batch_shift;    /* a batch, which is run between two polls of the evict word, takes
                             target_clocks >> batch_shift and one task */
  uint8_t tail_shift;     /* a chunk is at most (tasks not fetched) >> tail_shift, so that the end
                             of the grid is shared out evenly: 2^tail_shift >= workers */
  uint16_t sm_lo, sm_hi;  /* SLUICE_LAUNCH_SPATIAL */
  uint16_t sm_quota;      /* 0: no limit */
  uint16_t grid;          /* 0, or 1 for the second grid on the same control block */
  uint32_t first_tickets; /* this many workers run the task of their own number first, and tickets
                             are counted from there; the same in every physical launch */
  uint64_t state; /* resumable clones: a sluice_resume_state for each task, state_stride bytes
                     apart. Needs no initial contents. One launch's at a time */
  uint32_t state_stride; /* SLUICE_RESUME_STRIDE(threads of a block, bytes of a thread) */
  uint32_t place; /* SPATIAL: workers that are to stay. A block that is not wanted on its SM waits
                     until this many have come to theirs, at most SLUICE_PLACE_NS from the first
                     such wait on, and then leaves; 0: it leaves at once */
  uint32_t reserved[2];
};

/* The same for a clone that is launched in windows (kernels/passes/steps/window.cc): one window,
 * which is a grid of its own. Same size and place; what has the same name stands where it does
 * there. */
struct sluice_window_params {
  uint64_t reserved[3];
  uint64_t pred; /* the control block of a launch before it in the stream: the window's blocks run
                    only if its `done` is 1. 0: they run. Asking costs a block some instructions, so
                    it is set only until that launch is known to be done */
  uint32_t reserved32[2];
  uint32_t grid_x, grid_y, grid_z;    /* the logical grid */
  uint32_t first_x, first_y, first_z; /* what is added to the hardware's index of a block */
  uint32_t reserved_end[16];
};

/* What a block that left by sluice::leave() (kernels/include/sluice/preempt.cuh) has saved. Such
 * tasks form a stack (R. K. Treiber, "Systems Programming: Coping with Parallelism", 1986), linked
 * from sluice_launch_control.left_head; a block takes from it before it draws a ticket. */
struct sluice_resume_state {
  uint32_t next; /* task + 1 of the one below; 0: none. GPU */
  uint32_t pad[3];
  uint64_t bytes[1]; /* each thread's, one after the other, in the order of their linear number */
};
#define SLUICE_RESUME_HEADER_BYTES 16
/* What a thread may save at most; more is refused by the rewriter. */
#define SLUICE_RESUME_MAX_BYTES 1024u
#define SLUICE_RESUME_STRIDE(threads, bytes) \
  (SLUICE_RESUME_HEADER_BYTES + (((uint64_t)(threads) * (bytes) + 127) & ~(uint64_t)127))
/* A block that leaves at once makes room where it was, and the hardware may send the next one there
 * again: on an H200 launches got a handful of workers on SMs that were empty. In ns of
 * %globaltimer; more: a launch that cannot have all its workers holds others' room for longer. */
#define SLUICE_PLACE_NS 20000u
/* Time between two polls of `signal` under SLUICE_LAUNCH_DUTY, in ns of %globaltimer. */
#define SLUICE_DUTY_NS 4000u

/* What a worker that leaves in the middle of a chunk has not started: per stream, in device memory.
 * One list serves all launches of a stream, because each touches it only after the one before it is
 * done, and a launch that is done has emptied it: it is zeroed once, when it is made. */
#define SLUICE_LEFT_SMS 256
/* In sm_workers, in the place of 0: above every quota, so that no worker stays on that SM. This is
 * how a launch is kept to SMs that are not contiguous: the launcher bars the others within
 * [sm_lo, sm_hi), in stream order, and sm_quota is not 0. */
#define SLUICE_LEFT_BARRED 0x40000000u
struct sluice_launch_left {
  uint32_t
      sm_workers[SLUICE_LEFT_SMS]; /* workers on each SM; atomics; 0 (or barred) between launches */
  uint64_t slot[1]; /* one per worker: {begin:32, end:32}, begin in the low half; 0: empty. Written
                       by the worker of that number, taken by atomic exchange. Two grids' worth. */
};
#define SLUICE_LEFT_BYTES(slots) (SLUICE_LEFT_SMS * 4ull + (slots)*8ull)

/* Control block: one per logical launch, in device memory, zeroed before its first physical launch
 * and kept until the launches behind it have ended. 128-byte aligned. Fields with different writers
 * are on different lines of 128 bytes.
 *
 *     0  +------------------------------+
 *        | next_ticket, admission       |  all workers, atomics
 *   128  +------------------------------+
 *        | evict, looked_ns, placing_ns |  the proxy, or workers in turn
 *   256  +------------------------------+
 *        | finished, exited, done, ...  |  each worker as it leaves, atomics
 *   384  +------------------------------+
 *        | left_count, left_head        |  each worker as it leaves or resumes, atomics
 *   512  +------------------------------+
 */
struct sluice_launch_control {
  /* line 0, atomics by all workers. Device scope. */
  uint32_t next_ticket; /* first ticket not yet fetched, less first_tickets; overshoots the total
                           by up to workers*chunk, so clamp it. Where a block runs one task: tasks
                           that are admitted, with SLUICE_ADMISSION_CLOSED; the low half of the
                           admission word, 64-bit atomics. Windows do not use it */
  uint32_t admitted_generation; /* where a block runs one task: of the physical launch whose block
                             or proxy was the first to touch the word; 0: none. Another's:
                             next_ticket is that one's */
  uint32_t pad0[30];
  /* line 1, written by the proxy (DUTY: by workers in turn), read by all workers (relaxed). */
  uint64_t evict;     /* device copy of the evict word */
  uint64_t looked_ns; /* DUTY: %globaltimer of the newest look at `signal`; by all workers, CAS */
  uint64_t placing_ns[2]; /* SPATIAL: %globaltimer of the first wait for `place`, of each grid; CAS;
                             0: none */
  uint64_t pad1[12];
  /* line 2, atomics by each worker as it leaves. */
  uint32_t finished;  /* tasks run to their end, added once per worker and physical launch */
  uint32_t exited[2]; /* blocks of this physical launch that have left, for each of two grids;
                         the last one sets it back to 0, so a relaunch finds it clean */
  uint32_t done;      /* 1 once finished == total; read by the successor's leaders */
  uint32_t physical;  /* physical launches that have ended */
  uint32_t sms_left;  /* SMs whose last worker has left under an eviction (SPATIAL only) */
  uint64_t placed[2]; /* SPATIAL: workers that have come to their SMs, of each grid; the last block
                         out sets these two back to 0 */
  uint32_t pad2[22];
  /* line 3, atomics. */
  uint32_t left_count; /* slots of the left-over list that hold something; of a resumable clone:
                          tasks that have left */
  uint32_t pad3;
  uint64_t left_head; /* resumable clones: {task + 1:32, count of changes:32}, task in the low half;
                         CAS */
  uint32_t pad4[28];
};

/* In next_ticket: no task beyond those admitted will be, in this physical launch. */
#define SLUICE_ADMISSION_CLOSED 0x80000000u
/* Tasks that a launch of the one-task form has admitted, by its control block, of which `before`
 * were when its newest physical launch, of `generation`, was queued. */
static inline uint32_t sluice_admitted(const struct sluice_launch_control* c, uint32_t generation,
                                       uint32_t before) {
  return c->admitted_generation == generation ? c->next_ticket & ~SLUICE_ADMISSION_CLOSED : before;
}

/* States of a launch, from EffiSha's kernel stub. */
enum sluice_launch_state {
  SLUICE_LAUNCH_FREE = 0, /* record unused (worker) */
  SLUICE_LAUNCH_PREP = 1, /* the program asked, the worker has it (worker); nothing of it has run */
  SLUICE_LAUNCH_READY = 2,   /* all it depends on is done; waits for a grant (worker) */
  SLUICE_LAUNCH_TORUN = 3,   /* given to the driver (worker) */
  SLUICE_LAUNCH_RUNNING = 4, /* its first block has started (GPU) */
  SLUICE_LAUNCH_TOEVICT = 5, /* left before its end (GPU, last block out) */
  SLUICE_LAUNCH_DONE = 6     /* every task has run (GPU, last block out) */
};

/* One per logical launch, in memory of their own (abi/stub.h): 64 bytes, written by the GPU (fields
 * marked G; plain stores, system scope, by the last block out) and the worker (W), read by both
 * and by sluiced. A hostile kernel can forge it: a hint, never proof. */
struct sluice_launch_record {
  uint32_t state;       /* W, G: enum sluice_launch_state */
  uint32_t generation;  /* G, in windows W: generation of the physical launch that wrote last */
  uint32_t tasks_total; /* W */
  uint32_t tasks_done;  /* G, in windows W: == tasks_total when done */
  uint64_t launch_id;   /* W: running number within the session, from 1 */
  uint64_t ready_ns;    /* W: CLOCK_MONOTONIC of the host */
  uint64_t left_ns; /* G: %globaltimer when the last block left (0: not written). Where a block runs
                       one task: when the last one was admitted, or the others shut out; not written
                       in windows */
  uint64_t start_ns;      /* G: %globaltimer of task 0's start (0: not written, as in windows) */
  uint32_t evictions;     /* W: physical launches that ended before the logical one did */
  uint32_t opaque;        /* W: bit 0: not rewritten; the others: a hash of the kernel's name */
  uint32_t tasks_fetched; /* G: by the proxy now and then, and by the last block out; in
                             windows W, when one has ended */
  uint32_t sms_left;      /* G: SMs that the launch has left whole (SPATIAL only) */
};

#endif /* SLUICE_ABI_PREEMPT_H */
