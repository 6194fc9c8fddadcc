/* SPDX-License-Identifier: Apache-2.0 */
/* The software GPU's shared file as others than its own processes see it: sluiced, which samples
 * the registers, reads the context-switch log and sets time slices and SMs; tests; tools.
 *
 * Terms
 *   channel    one context's entry in this file; its group on the engine has the number TSGID
 *   engine     what executes kernels; one channel holds it at a time, in mps mode all share it
 *   control    a word by which whoever rules over the GPU steers a channel
 *   attention  a futex word of each process, changed when one of its control words has
 *   switch     a change of the channel that holds the engine; the log has one record for its start
 *              and one for its end
 *
 *   0               +---------------------------------------+
 *                   | registers, as BAR0 of a real GPU      |  abi/registers.h
 *   INFO_OFFSET     +---------------------------------------+
 *                   | sluice_soft_info                      |  written once
 *   FAULTS_OFFSET   +---------------------------------------+
 *                   | sluice_soft_faults                    |  a ring
 *   CHANNELS_OFFSET +---------------------------------------+
 *                   | sluice_soft_channel 0 | 1 | ...       |  SLUICE_SOFT_CHANNELS of them
 *   ATTENTION_OFFSET+---------------------------------------+
 *                   | uint32_t 0 | 1 | ...                  |  SLUICE_SOFT_PROCESSES of them
 *   LOG_OFFSET      +---------------------------------------+
 *                   | sluice_switch_log, then its records   |  a ring
 *   STATE_OFFSET    +---------------------------------------+
 *                   | the software GPU's own                |  mediator/softgpu/shared/gpu_file.h
 *                   +---------------------------------------+
 *   (each name with SLUICE_SOFT_ before it)
 *
 * Every word may change at any time and is read and written atomically, once. Whoever can write
 * this file owns the GPU; an index read from it is bounded before use all the same.
 */
#ifndef SLUICE_ABI_SOFT_GPU_H
#define SLUICE_ABI_SOFT_GPU_H

#include <stdint.h>

#define SLUICE_SOFT_MAGIC 0x55504743494c5553ull
#define SLUICE_SOFT_VERSION 7u

#define SLUICE_SOFT_CHANNELS 64u /* contexts; the waiting set is one 64-bit word */
#define SLUICE_SOFT_PROCESSES 64u
#define SLUICE_SOFT_MAX_SMS 256u
/* Device memory that a context takes by itself, with stacks, heap and printf's buffer of their
 * default sizes. What limits and kernels want beyond the defaults comes on top
 * (softgpu/memory/reservations.cc). */
#define SLUICE_SOFT_CONTEXT_BYTES (2u << 20)
/* TSGID of channel i is i + 1. In mps mode one group stands for all, as on hardware: */
#define SLUICE_SOFT_MPS_TSGID 0x800u

#define SLUICE_SOFT_INFO_OFFSET 0x30000u
#define SLUICE_SOFT_FAULTS_OFFSET 0x30100u
#define SLUICE_SOFT_CHANNELS_OFFSET 0x31000u
#define SLUICE_SOFT_ATTENTION_OFFSET 0x35000u
#define SLUICE_SOFT_LOG_OFFSET 0x36000u
#define SLUICE_SOFT_LOG_RECORDS                                     \
  4096u /* less than 65536, so that seq tells one lap from the next \
         */
#define SLUICE_SOFT_STATE_OFFSET 0x57000u

enum sluice_soft_mode {
  SLUICE_SOFT_FCFS = 0,      /* contexts take turns, kernel by kernel, first come first served */
  SLUICE_SOFT_TIMESLICE = 1, /* contexts take turns by time slices */
  SLUICE_SOFT_MPS = 2        /* kernels of all contexts side by side */
};
enum sluice_soft_preemption {
  SLUICE_SOFT_SAVE = 0, /* running blocks are saved and restored */
  SLUICE_SOFT_DRAIN = 1 /* running blocks finish, no others start */
};

/* Written once by whoever makes the file. */
struct sluice_soft_info {
  uint64_t magic; /* last, with release */
  uint32_t version;
  uint32_t mode;       /* enum sluice_soft_mode */
  uint32_t preemption; /* enum sluice_soft_preemption */
  uint32_t sms;
  uint32_t model; /* row of the software GPU's table */
  uint32_t blocks_per_sm;
  uint64_t memory_bytes;
  uint64_t switch_fixed_ns;         /* cost of a change of context that belongs to nobody */
  uint64_t switch_bytes_per_second; /* with which state is saved and restored; 0: at no cost */
  uint32_t timeslice_us;            /* of a new channel */
  uint32_t stall_ms; /* a process that holds the GPU and stands still this long loses it */
  uint32_t
      sm_group; /* SMs in the smallest group that a green context can have; 0: no such contexts */
  /* For how long a kernel's fault stops every channel; 0: it stops nobody. */
  uint32_t fault_stall_us;     /* of an address that is not mapped */
  uint32_t exception_stall_us; /* of what an SM finds wrong: misaligned, no instruction, ... */
  uint32_t reserved;
};

/* The faults that have stopped the GPU, the newest kept: a context's first one. A ring; `put`
 * counts those that were begun, and a record is there once its `number` is its place in that count
 * + 1. */
#define SLUICE_SOFT_FAULT_RECORDS 96u
struct sluice_soft_fault {
  uint64_t number;
  uint64_t time_ns;  /* when it happened */
  uint64_t stall_ns; /* for how long every channel stood still for it */
  uint32_t pid;      /* sluice_soft_channel::pid of who faulted */
  uint32_t tsgid;
};
struct sluice_soft_faults {
  uint64_t put;
  uint64_t pad[3];
  struct sluice_soft_fault records[SLUICE_SOFT_FAULT_RECORDS];
};

/* One channel group, that is: one context. `control` words are written by its owner and by whoever
 * rules over the GPU; the rest by its owner. Nanoseconds of CLOCK_MONOTONIC, as everywhere. */
struct sluice_soft_channel {
  uint32_t generation;   /* grows with each owner */
  uint32_t process;      /* whose attention to call */
  uint32_t pid;          /* as the owner sees it; for people */
  uint32_t timeslice_us; /* control */
  uint32_t preempt;     /* control: a change takes the context off the engine; it queues up again */
  uint32_t sm_sequence; /* control: grows with each change of sm_set */
  uint64_t sm_set[SLUICE_SOFT_MAX_SMS / 64]; /* control: SMs that its blocks may use; none: all */
  uint64_t engine_ns;                        /* on the engine with work, turns that have ended */
  uint64_t sm_ns;        /* the same summed over the SMs on which it had blocks */
  uint64_t kernels;      /* physical launches ended */
  uint64_t memory_bytes; /* device memory */
  /* Preemptions: how many, and from the request to the last block off its SM. */
  uint64_t preempt_count;
  uint64_t preempt_last_ns;
  uint64_t preempt_max_ns;
  uint64_t preempt_total_ns;
  uint64_t saved_blocks; /* taken off in the middle; the others had finished */
  uint64_t saved_bytes;
  uint64_t ejected; /* times that it was taken for dead or stopped */
  uint64_t sms_used[SLUICE_SOFT_MAX_SMS /
                    64]; /* SMs that its blocks have come to, since whoever last cleared it */
};
#define SLUICE_SOFT_CHANNEL_BYTES 256u /* distance of two channels */

/* The context-switch log, as the hardware's (FECS event buffer of NVIDIA's open kernel modules,
 * cl90cdfecs.h): a ring, the newest kept. `put` counts the records that were begun; a record is
 * there once its `seq` is the low half of its number + 1. A reader that falls behind by more than
 * SLUICE_SOFT_LOG_RECORDS has lost the difference. */
struct sluice_switch_log {
  uint64_t put;
  uint64_t pad[7];
};
#define SLUICE_SWITCH_LOG_RECORDS_AT 0x1000u /* from the log's begin */

enum sluice_switch_tag {
  SLUICE_SWITCH_START = 6, /* the context starts on the compute engine */
  SLUICE_SWITCH_END = 7    /* it ends there */
};
struct sluice_switch_record {
  uint16_t type;
  uint16_t sub;
  uint32_t var;
  uint8_t tag; /* enum sluice_switch_tag */
  uint8_t vmid;
  uint16_t seq;
  uint32_t cid; /* here: the TSGID */
  uint32_t pid;
  uint32_t reserved;
  uint64_t time_ns; /* steps of 32, as the hardware's */
};

#endif /* SLUICE_ABI_SOFT_GPU_H */
