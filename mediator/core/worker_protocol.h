// SPDX-License-Identifier: Apache-2.0
// The messages between sluiced and a sluice-worker, on the SOCK_SEQPACKET pair that sluiced makes
// when it starts the worker (descriptor 3 of the worker). Both are ours, but sluiced trusts a
// worker no more than its guest: every message is checked, and a bad one ends that worker only.
//
//   sluiced -> worker   Start (once, first, with descriptors); End
//   worker -> sluiced   Ready (once, first); Ended
//
// In between either sends what Type below says. The same program is the witness, which has no guest
// (mediator/worker/witness/witness.h):
//   sluiced -> witness  Witness (once, first), Try
//   witness -> sluiced  Ready (once, first), Tried, Served
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::worker_protocol {

inline constexpr int kControlFd = 3;
// Grows with every change below: while a package is upgraded, an earlier sluiced may start a worker
// of the later release.
inline constexpr uint32_t kVersion = 10;

enum class Type : uint32_t {
  kStart = 1,
  kReady = 2,  // worker: the driver is up, the slot is served (or code != 0: it is not, text)
  kLeaseRequest = 3,   // worker: may this session have `bytes` more of `code` (a Resource)?
  kLeaseReply = 4,     // sluiced: code 0 yes, ENOMEM over the vGPU's limit
  kLeaseReturn = 5,    // worker: gives `bytes` of `code` (a Resource) back; no answer
  kExtentRequest = 6,  // worker: `bytes` of contiguous extents
  kExtentReply = 7,    // sluiced: code 0 and `offset`, `bytes`; or ENOMEM
  kExtentReturn = 8,   // worker: `offset`, `bytes`; sluiced punches them out; no answer
  kEnd = 9,            // sluiced: end the session; `code` (CUresult) and text are for the guest
  kEnded = 10,      // worker: the session is over by itself: `code` CUresult, text; it exits next
  kTimeSlice = 11,  // sluiced: its contexts' slices of an NVIDIA GPU's time, `bytes` ns; no answer
  kWitness = 12,    // sluiced, in place of kStart: a Start behind it, of which library,
                    // soft_gpu_file, nvidia and host_pid count; no descriptor but kSoftGpuFd's
  kTry = 13,        // sluiced: launch an empty kernel. `request` is its number
  kTried = 14,   // witness: `request` has been submitted and was not seen to end; again and again
  kServed = 15,  // witness: `request` has run
  // Memory that several programs of a vGPU have (core/shares.h). `text` is a ShareKey. On the
  // software GPU a reply comes with a descriptor: the file of `bytes` in which the memory lies.
  kShareRequest = 16,  // worker: others of the vGPU may open `bytes` of the session's memory
  kShareReply = 17,    // sluiced: code 0 and the token; or ENOMEM
  kShareEnd = 18,      // worker: it is freed; the session's lease is `bytes` less; no answer
  kOpenRequest = 19,   // worker: what has this token?
  kOpenReply = 20,     // sluiced: code 0, `bytes` and the driver's handle; or ENOENT
  kOpenEnd = 21,       // worker: it has unmapped that; no answer
  kSpin = 22,          // sluiced: Start::call_spin_us is `bytes` from now on, Start::spin_us is
                       // `offset`; no answer
};

// What is leased: memory of the device, or of the host for what the worker keeps for its guest;
// places for contexts beyond the session's first, of which the GPU has a number for all; and leave
// to open a context or load a module: the reply comes when the pace of its vGPU allows it
// (core/stall_budget.h), and that is used up, never returned. Of the last three one at a time
// (`bytes` is 1).
enum Resource : int32_t {
  kDeviceMemory = 0,
  kHostMemory = 1,
  kContextOpenings = 2,
  kModuleLoads = 3,
  kContextPlaces = 4,
};
// Start::paced: for which of them a worker asks.
inline constexpr uint32_t kPacedContexts = 1, kPacedModules = 2;

// Every message is one Message; kStart and kWitness have a Start behind it in the same packet.
struct Message {
  Type type;
  int32_t code = 0;
  uint64_t request = 0;  // chosen by the asker, echoed in the reply
  uint64_t offset = 0;   // region offset
  uint64_t bytes = 0;
  char text[224] = {};  // NUL-terminated
};
static_assert(sizeof(Message) == 256);

// By which memory that several programs have is asked for.
struct ShareKey {
  uint8_t token[16] = {};
  char handle[64] = {};  // CUipcMemHandle; zeros on the software GPU
};
static_assert(sizeof(ShareKey) < sizeof Message::text);

// Descriptors sent with Start, in this order.
enum StartFd {
  kRegionFd,   // the vGPU's region memfd
  kBellFd,     // eventfd: the guest rings, the worker waits
  kWakeFd,     // eventfd: the worker rings, the guest waits
  kHostFd,     // host page memfd, sealed against writing by the worker
  kSignalFd,   // signal page memfd
  kReportFd,   // report page memfd: never registered with the GPU's driver
  kRecordsFd,  // launch records memfd
  kGateFd,     // wake socket (base/peer_socket.h): sluiced rings when the grant word changed
  kRingFd,     // wake socket: the worker rings sluiced (abi/stub.h)
  kStartFdCount,
  // Only with a soft_gpu_file: that file, opened for this worker alone. Without it the worker opens
  // the path itself.
  kSoftGpuFd = kStartFdCount
};

// How the evict word gets from the signal page, into which sluiced stores it, to the blocks that
// look at it. What each costs: docs/notes/2026-11-22-benchmarks.md.
enum class Signal : uint32_t {
  kHost = 0,   // every block reads the page itself (FLEP)
  kProxy = 1,  // block 0 reads the page and copies the word to device memory (EffiSha)
  kWrite = 2,  // the worker writes it to device memory by a stream memory operation
  kCopy = 3,   // the worker has it copied to device memory (FRS)
};
inline constexpr std::string_view kSignalNames[] = {"host", "proxy", "stream-write", "copy"};
// The worker has to be woken (gate socket) by whoever stored an evict word.
constexpr bool is_forwarded(Signal s) { return s == Signal::kWrite || s == Signal::kCopy; }

struct Start {
  uint32_t version = kVersion;
  uint32_t slot = 0;
  uint64_t epoch = 0;  // the slot's
  uint64_t region_bytes = 0;
  uint64_t staging_offset = 0;  // the session's own staging extents
  uint64_t staging_bytes = 0;
  uint64_t memory_limit_bytes = 0;  // at most; what cuMemGetInfo and cuDeviceTotalMem
                                    // show as the total if the GPU has more. UINT64_MAX: no limit
  uint64_t host_memory_bytes = UINT64_MAX;  // the same of the host's memory: refused without asking
  uint64_t context_bytes = 0;               // of device memory, which each context is charged
  uint32_t nvidia = 0;                      // 1: library is NVIDIA's; 0: the software GPU
  uint32_t chunk_target_us = 200;           // how long a chunk of tasks should take at most
  uint32_t spatial_sms = 0;    // SMs of the GPU, where parts of it may be granted; 0: never
  uint32_t call_spin_us = 50;  // how long the worker polls for its program's next call before it
                               // sleeps
  uint32_t spin_us = 50;       // ... and for an end that is waited for, and each other thread
  uint32_t turns_by_priority = 0;  // 1: grants have levels (SLUICE_GRANT_LEVEL)
  uint32_t turn_whole_us = 0;      // then: what is expected to take no longer runs whole
  uint32_t time_slices = 0;        // 1: the hardware goes round among vGPUs: nobody waits for this
  uint32_t green_contexts = 1;     // parts are confined by the hardware where it can be; 0: never
  Signal signal = Signal::kHost;
  uint32_t fixed_chunk = 0;  // tasks between two polls of the evict word (FLEP's amortising
                             // factor), at most 1024; 0: as many as take chunk_target_us
  uint32_t window_us =
      32;  // how long a window of a grid is that is launched in windows; 0: none is
  uint32_t admission_us = 40;    // what the rest of a grid may take to leave where blocks run one
                                 // task each; 0: only kernels run so that cannot run otherwise
  uint32_t host_pid = 0;         // the worker's own, as the host sees it; 0: getpid() is the host's
  uint32_t paced = 0;            // kPacedContexts, kPacedModules
  char library[256] = {};        // path or soname for dlopen
  char soft_gpu_file[256] = {};  // shared file of the software GPU, empty: none
  char vgpu[64] = {};            // name, for logs
};

}  // namespace sluice::worker_protocol
