/* SPDX-License-Identifier: Apache-2.0 */
/* The records in a slot's rings: the CUDA driver API on the wire. Rings, slots and extents are
 * defined in abi/channel.h.
 *
 * Terms
 *   call          one function of the driver API that the program asks the worker to run
 *   record        a call in the submit ring: sluice_record, then its arguments
 *   completion    its answer in the complete ring: sluice_completion, then its results
 *   call id       pairs the two; completions come in any order
 *   generic call  a row of abi/cuda_calls.h, marshalled by the tags of the row
 *   custom call   one of enum sluice_custom_opcode, with an argument struct below
 *   bulk          data in extents of the region, named by struct sluice_bulk, not in the ring
 *   handle        the name of an object that the worker made for the program
 *
 *   submit ring     +---------------+-----------------------+---------+
 *   program ->      | sluice_record | arguments             | padding |   `bytes` in all,
 *   worker          +---------------+-----------------------+---------+   a multiple of 32
 *
 *   complete ring   +-------------------+-------------------+---------+
 *   worker ->       | sluice_completion | results           | padding |   likewise
 *   program         +-------------------+-------------------+---------+
 *
 * Versions: program and worker may be of different releases. Opcodes keep their meaning and structs
 * only grow at their end, into what was padding or with a new opcode. A call that the worker does
 * not know is answered CUDA_ERROR_NOT_SUPPORTED; new calls therefore ask for an answer.
 *
 * Trust: the worker copies a record once and checks the copy. A program that forges one harms its
 * own session only.
 *
 * All integers little-endian; structs are multiples of 8 bytes; C and C++; checked in asserts.c.
 */
#ifndef SLUICE_ABI_WIRE_H
#define SLUICE_ABI_WIRE_H

#include <stdint.h>

#define SLUICE_RECORD_ALIGN 32u
#define SLUICE_RECORD_MAX_BYTES (64u << 10) /* one record; more goes through bulk memory */

/* sluice_record.flags */
#define SLUICE_RECORD_NO_REPLY                                                               \
  0x1u                            /* success is not answered; an error becomes the session's \
                                     sticky or next-synchronise error, as CUDA does it */
#define SLUICE_RECORD_PAD 0x8000u /* filler up to the end of the ring; skip `bytes` */

struct sluice_record {
  uint32_t bytes;  /* with this header, a multiple of SLUICE_RECORD_ALIGN */
  uint16_t opcode; /* abi/cuda_calls.h or enum sluice_custom_opcode */
  uint16_t flags;
  uint64_t call_id; /* chosen by the program, not 0, unique among outstanding calls; ignored with
                       NO_REPLY */
  uint64_t context; /* handle of the calling thread's current context, or of the green context that
                       is current in it: streams 0 and 1 are then that one's own; 0: none */
  uint64_t reserved;
};

struct sluice_completion {
  uint32_t bytes; /* with this header, a multiple of SLUICE_RECORD_ALIGN */
  uint16_t opcode;
  uint16_t flags;
  uint64_t call_id; /* 0: asynchronous error of earlier NO_REPLY calls; status says which */
  int32_t status;   /* CUresult */
  uint32_t reserved0;
  uint64_t reserved1;
};

/* Handle. Made by the worker, never a pointer; the program sees it as its CUDA handle.
 *
 *   63   56 55          32 31                      0
 *   +------+--------------+-------------------------+
 *   | kind |  generation  |          index          |
 *   +------+--------------+-------------------------+
 *
 *   kind        enum sluice_handle_kind
 *   generation  number of this use of the index: a handle of a removed object finds nothing
 *   index       place in the worker's table
 *
 * 0 is null. Streams 0, 1 and 2 keep CUDA's meaning (default, legacy, per-thread). Device addresses
 * are not handles: they are passed raw and must lie in an allocation of the session. */
#define SLUICE_HANDLE(kind, generation, index) \
  (((uint64_t)(kind) << 56) | ((uint64_t)((generation)&0xffffffu) << 32) | (uint32_t)(index))
#define SLUICE_HANDLE_KIND(h) ((uint32_t)((h) >> 56))
#define SLUICE_HANDLE_GENERATION(h) ((uint32_t)((h) >> 32) & 0xffffffu)
#define SLUICE_HANDLE_INDEX(h) ((uint32_t)(h))
enum sluice_handle_kind {
  SLUICE_HANDLE_CONTEXT = 1,
  SLUICE_HANDLE_MODULE = 2,
  SLUICE_HANDLE_FUNCTION = 3,
  SLUICE_HANDLE_STREAM = 4,
  SLUICE_HANDLE_EVENT = 5,
  SLUICE_HANDLE_LIBRARY = 6,
  SLUICE_HANDLE_KERNEL = 7,
  SLUICE_HANDLE_MEMORY = 8,
  SLUICE_HANDLE_ARRAY = 9,
  SLUICE_HANDLE_MIPMAP = 10,
  SLUICE_HANDLE_GREEN = 11,
  SLUICE_HANDLE_KINDS /* one beyond the last */
};

/* A range of the shared region, in bytes from its start. It must lie in extents of this session. */
struct sluice_bulk {
  uint64_t offset;
  uint64_t bytes;
};

/* Custom calls. Opcodes below 0x1000 are table rows. */
enum sluice_custom_opcode {
  SLUICE_CALL_MODULE_LOAD = 0x1000,  /* sluice_module_load; reply sluice_handle_reply or log text */
  SLUICE_CALL_FUNCTION_GET = 0x1001, /* sluice_function_get; reply sluice_function_reply */
  SLUICE_CALL_LAUNCH = 0x1002,       /* sluice_launch; NO_REPLY */
  SLUICE_CALL_COPY = 0x1003,         /* sluice_copy */
  SLUICE_CALL_MEMSET = 0x1004,       /* sluice_memset */
  SLUICE_CALL_SYNCHRONIZE = 0x1005,  /* sluice_synchronize; parked until done */
  SLUICE_CALL_EVENT_RECORD = 0x1006, /* sluice_stream_event; NO_REPLY */
  SLUICE_CALL_STREAM_WAIT = 0x1007,  /* sluice_stream_event: stream waits for event; NO_REPLY */
  SLUICE_CALL_QUERY = 0x1008,        /* sluice_synchronize; status SUCCESS or NOT_READY at once */
  SLUICE_CALL_EXTENT_ALLOC = 0x1009, /* sluice_extent; reply sluice_bulk: contiguous extents */
  SLUICE_CALL_EXTENT_FREE = 0x100a,  /* sluice_bulk of an earlier EXTENT_ALLOC; answered when no
                                        copy uses it any more */
  SLUICE_CALL_STREAM_VALUE = 0x100b, /* sluice_stream_value: write or wait value 32 */
  SLUICE_CALL_HOST_FUNC = 0x100c,    /* sluice_synchronize: answered when the stream gets there;
                                        later stream work waits for SLUICE_CALL_HOST_FUNC_DONE */
  SLUICE_CALL_HOST_FUNC_DONE = 0x100d,  /* u64 call id of the HOST_FUNC; NO_REPLY */
  SLUICE_CALL_COPY_BOX = 0x100f,        /* sluice_copy_box */
  SLUICE_CALL_FUNCTION_CLONES = 0x1010, /* sluice_function_clones */
  SLUICE_CALL_CLUSTERS = 0x1011,        /* sluice_clusters; reply int32_t, and 4 bytes of 0 */
  SLUICE_CALL_GREEN_SPLIT = 0x1012,     /* sluice_green; reply sluice_green_reply */
  SLUICE_CALL_GREEN_CREATE = 0x1013,    /* sluice_green; reply sluice_green_reply */
  SLUICE_CALL_STREAM_VALUE64 = 0x1014,  /* sluice_stream_value64: write or wait value 64; answered,
                                           because a worker of before does not know it */
  SLUICE_CALL_PRINTED = 0x100e /* never a record: a completion of call 0, sluice_printed, before the
                                  answer of a call that the program waits for */
};

/* What kernels have printed, for the program's own output; `bytes` of text follow. */
enum sluice_printed_to { SLUICE_PRINTED_OUTPUT = 0, SLUICE_PRINTED_ERROR = 1 /* asserts' lines */ };
struct sluice_printed {
  uint32_t bytes;
  uint32_t to; /* sluice_printed_to; a libcuda of before knows OUTPUT only */
};
#define SLUICE_PRINTED_MAX_BYTES 4096u

/* PTX text (already rewritten by the guest where its rewriter took it), NUL not included. Text of
 * more than SLUICE_RECORD_MAX_BYTES/2 goes by `bulk` (bytes != 0), else it follows the struct. */
struct sluice_module_load {
  struct sluice_bulk bulk;
  uint32_t inline_bytes;
  uint32_t log_bytes; /* room the program has for an error log in the reply, at most 4096 */
};
struct sluice_handle_reply {
  uint64_t handle;
};

#define SLUICE_FUNCTION_EVICTABLE 0x1u /* the module holds NAME__sluice made by a pass */
#define SLUICE_FUNCTION_SLOT_DYNAMIC \
  0x2u /* its slots stand behind the dynamic shared memory (preempt.h) */
#define SLUICE_FUNCTION_IN_ORDER 0x4u /* its tasks wait for lower ones: one ticket at a time */
#define SLUICE_FUNCTION_ONCE 0x8u     /* prologue form: a block runs one task */
#define SLUICE_FUNCTION_RESUMABLE \
  0x10u /* its blocks leave in mid-work and are resumed (preempt.cuh) */
#define SLUICE_FUNCTION_ONE_ROW \
  0x20u /* only in grids of one row: others' launches take the original */
/* In sluice_function_clones only. */
#define SLUICE_FUNCTION_OTHERS_LATER \
  0x40u /* the first form, and there may be others once the worker wants them */
#define SLUICE_FUNCTION_OTHER_FORMS 0x80u /* these are the others */
struct sluice_function_get {              /* name follows, name_bytes without NUL */
  uint64_t module;
  uint32_t flags; /* SLUICE_FUNCTION_*, by the guest's rewriter; forged, they harm its guest only */
  uint32_t name_bytes;
  uint32_t reserved;    /* 0; the driver says where the clone's own parameter lies */
  uint32_t state_bytes; /* RESUMABLE: what each thread saves, at most SLUICE_RESUME_MAX_BYTES */
};
/* The clones of a kernel whose module was loaded without any (SLUICE_JOINED_LAZY_CLONES), in a
 * module of their own. From its answer on that module is a part of the kernel's: its own handle
 * names nothing any more. Once for a function, and once more with OTHER_FORMS where the first time
 * said OTHERS_LATER. Addresses of variables follow, address_bytes: what the module's array
 * SLUICE_ADDRESS_ARRAY, of this many bytes, is to hold. */
#define SLUICE_ADDRESS_ARRAY "sluice_addresses"
struct sluice_function_clones {
  uint64_t function;
  uint64_t module;
  uint32_t flags;         /* as in sluice_function_get */
  uint32_t state_bytes;   /* likewise */
  uint32_t address_bytes; /* a multiple of 8; 0: the module has no such array */
  uint32_t reserved;      /* 0 */
};
#define SLUICE_MAX_PARAMS 1024
struct sluice_function_reply { /* then param_count pairs {u32 offset, u32 bytes} of the ORIGINAL */
  uint64_t handle;
  uint32_t param_count;
  uint32_t param_bytes;
  int32_t attributes[16]; /* CUfunction_attribute 0..15 of the original, INT32_MIN: not known */
};

/* sluice_launch.flags. A launch with any of them runs in its original form, not evictable. */
#define SLUICE_LAUNCHED_COOPERATIVE 0x1ull
/* The GPU holds its blocks at once, so no clones were asked for. A claim of the program's, which
 * only counts it (SLUICE_JOINED_ORIGINALS_AT_ONCE). */
#define SLUICE_LAUNCHED_AT_ONCE 0x2ull
#define SLUICE_LAUNCHED_CLUSTER(x, y, z) /* of blocks; 1 to 65535 each; all 0: none */ \
  (((uint64_t)(uint16_t)(x) << 16) | ((uint64_t)(uint16_t)(y) << 32) |                 \
   ((uint64_t)(uint16_t)(z) << 48))
#define SLUICE_LAUNCHED_CLUSTER_DIM(flags, i) ((uint32_t)(uint16_t)((flags) >> (16 + 16 * (i))))
struct sluice_launch { /* then param_bytes of the parameter buffer */
  uint64_t function;
  uint64_t stream;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared_bytes;
  uint32_t param_bytes;
  uint64_t flags; /* SLUICE_LAUNCHED_* */
};

/* How many clusters of a launch fit on the GPU at once, or how large they may be. */
enum sluice_clusters_what { SLUICE_CLUSTERS_ACTIVE = 0, SLUICE_CLUSTERS_SIZE = 1 };
struct sluice_clusters {
  uint64_t function;
  uint32_t grid[3], block[3];
  uint32_t dynamic_shared_bytes;
  uint32_t what;  /* enum sluice_clusters_what */
  uint64_t flags; /* SLUICE_LAUNCHED_CLUSTER, or none */
};

/* SMs of the device, or of a green context, and how they are split (cuDevSmResourceSplitByCount):
 * what programs get for a resource is how it was asked for, never the driver's own. The same split
 * has the same groups each time. */
#define SLUICE_GREEN_GROUPS 256u /* that one split has at most */
#define SLUICE_GREEN_SPLIT 0x1u  /* else all of them */
#define SLUICE_GREEN_REST 0x2u   /* create: what the split leaves is the context's, too */
struct sluice_green {
  uint64_t base; /* a green context of the record's context; 0: the device */
  int32_t device;
  uint32_t flags;     /* SLUICE_GREEN_* */
  uint32_t groups;    /* SPLIT: this many at most; 0: asks how many there can be */
  uint32_t min_count; /* SPLIT: SMs of each */
  uint32_t how;       /* SPLIT: CUdevSmResourceSplit_flags */
  uint32_t reserved;
  uint64_t chosen[SLUICE_GREEN_GROUPS / 64]; /* create: bits of its groups */
};
/* As CUdevSmResource; count 0: none. */
struct sluice_sms {
  uint32_t count, least, multiple;
};
struct sluice_green_reply {
  uint64_t handle;                    /* create */
  struct sluice_sms all, group, rest; /* create: all of its own; `group`: each of the groups */
  uint32_t groups;
};

/* ARRAY: in a sluice_copy_box only. */
enum sluice_copy_end { SLUICE_COPY_DEVICE = 0, SLUICE_COPY_BULK = 1, SLUICE_COPY_ARRAY = 2 };
struct sluice_copy { /* 1-D: height 1. A BULK address is a region offset. */
  uint64_t dst, src;
  uint64_t dst_pitch, src_pitch; /* bytes, 2-D only */
  uint64_t width, height;        /* bytes, rows */
  uint64_t stream;
  uint32_t dst_kind, src_kind; /* enum sluice_copy_end */
  uint32_t wait; /* 1: answer when it is done; 0: answer (or not, NO_REPLY) when queued */
  uint32_t reserved;
};

/* A box of which at least one end is an array: `depth` slices of `height` rows of `width` bytes. */
struct sluice_copy_box_end {
  uint64_t at;          /* address, region offset or handle, as `kind` says */
  uint64_t x, y, z;     /* of an array, where the box begins: bytes, rows, slices; else 0 */
  uint64_t pitch, rows; /* of memory: bytes from row to row, rows from slice to slice; else 0 */
  uint32_t kind;        /* enum sluice_copy_end */
  uint32_t reserved;
};
struct sluice_copy_box {
  struct sluice_copy_box_end dst, src;
  uint64_t width, height, depth;
  uint64_t stream;
  uint32_t wait, reserved; /* as in sluice_copy */
};
struct sluice_memset {
  uint64_t dst, pitch, width,
      height; /* width in elements, pitch in bytes (2-D only), height rows */
  uint64_t stream;
  uint32_t value, element_bytes; /* 1, 2, 4 */
  uint32_t wait, reserved;
};

enum sluice_sync_what { SLUICE_SYNC_CONTEXT = 0, SLUICE_SYNC_STREAM = 1, SLUICE_SYNC_EVENT = 2 };
struct sluice_synchronize {
  uint32_t what;
  uint32_t end_word; /* abi/end_word.h; 0: none */
  uint64_t handle;   /* stream or event; context: that of the record */
};
/* What a guest's CUipcMemHandle and CUipcEventHandle hold. Only the token counts for the host: it
 * finds nothing but memory of the same vGPU. */
#define SLUICE_IPC_MAGIC 0x4350494543554c53ull
struct sluice_ipc_handle {
  uint64_t magic;
  uint8_t token[16];
  uint64_t offset; /* where the allocation begins in what is shared ... */
  uint64_t bytes;  /* ... and its size, which only the guest's library looks at */
  /* of an event: the file of its counter, /proc/PID/fd/DESCRIPTOR in the guest */
  uint32_t pid, descriptor;
  uint64_t file;
  uint64_t reserved;
};

struct sluice_stream_event {
  uint64_t stream, event;
  uint64_t flags;
};
struct sluice_stream_value {
  uint64_t stream, address;
  uint32_t value, flags;
  uint32_t is_wait, reserved;
};
struct sluice_stream_value64 {
  uint64_t stream, address;
  uint64_t value;
  uint32_t flags, is_wait;
};
struct sluice_extent {
  uint64_t bytes; /* rounded up to extents */
};

#endif /* SLUICE_ABI_WIRE_H */
