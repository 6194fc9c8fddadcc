// SPDX-License-Identifier: Apache-2.0
// Every limit of the host side in one place, each with what breaks if it changes. Constants only;
// what an operator may change stands in the configuration (mediator/daemon/setup/config.h) and is
// bounded by these. Limits that a guest sees as part of the layout are in abi/channel.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "abi/channel.h"

namespace sluice::limits {

// vGPUs of one sluiced. Each costs a memfd, 2*(slots+1) eventfds, two listening sockets, and for
// each local program a memfd, two eventfds and a connection; more needs a higher RLIMIT_NOFILE (64
// vGPUs of 64 slots are about 8,500 descriptors, with as many local programs 25,000).
inline constexpr size_t kMaxVgpus = 64;
// Length of a vGPU's name: it becomes part of a socket path of at most 107 bytes and fills
// worker_protocol::Start::vgpu.
inline constexpr size_t kMaxVgpuNameBytes = 48;
// Weights are ratios; the scheduler's virtual time keeps its precision within this range.
// Priorities are for policies that know them (higher is more urgent). Both as in policies/policy.h
// (compared in mediator/daemon/scheduling/grant_executor.cc), written again here because sluicectl
// does not include policies.
inline constexpr uint32_t kMinWeight = 1;
inline constexpr uint32_t kMaxWeight = 10000;
inline constexpr int kMinPriority = 0;
inline constexpr int kMaxPriority = 31;
// A target of latency beyond a minute would be none.
inline constexpr uint32_t kMaxTargetUs = 60'000'000;

// Size of a vGPU's region: power of two; the smallest that holds 64 slots and some extents, and the
// largest that fits the window that guest process and worker reserve.
inline constexpr uint64_t kMinRegionBytes = 32ull << 20;
inline constexpr uint64_t kMaxRegionBytes = SLUICE_WINDOW_BYTES;
// Staging of one session, in bytes; a copy larger than it is cut, so less only costs speed.
inline constexpr uint64_t kMinStagingBytes = SLUICE_EXTENT_BYTES;
inline constexpr uint64_t kMaxStagingBytes = 256ull << 20;

// Admin socket. A request longer than this is answered with an error and the connection closed.
inline constexpr size_t kMaxAdminRequestBytes = 64u << 10;
inline constexpr size_t kMaxAdminConnections = 32;
// Of those, only for root and sluiced's own user. Fewer: members of its group can keep root out.
inline constexpr size_t kAdminConnectionsForRoot = 8;
// Of the loop's time, what new admin connections may take, and all connections of one user, beyond
// so much at once; and all of them together. Higher: storms of permitted clients take more of
// sluiced's core. Lower: scripts that ask much wait.
inline constexpr double kAdminLoopShare = 0.1, kAllAdminLoopShare = 0.2;
inline constexpr uint64_t kAdminLoopBurstMs = 50;
// How often one connection wakes the loop, and users whose share is remembered when they have gone.
inline constexpr double kAdminWakesPerSecond = 1000, kAdminWakeBurst = 200;
inline constexpr size_t kRememberedAdminUsers = 64;
// Refused connections that still read why. More: strangers hold more descriptors; fewer: a flood of
// them leaves nobody the time to read.
inline constexpr size_t kMaxRefusedAdmin = 16;
inline constexpr size_t kMaxAdminBatch = 64;  // requests in one JSON-RPC array
// Requests of one connection that wait for what they have begun (`delete`: for workers to end).
// Fewer: a script that deletes many vGPUs at once is refused; more: a client that asks without end
// takes more memory.
inline constexpr size_t kMaxAdminUnanswered = 256;
inline constexpr size_t kMaxAdminBacklogBytes = 4u << 20;  // unread answers before we hang up
inline constexpr size_t kMaxEvents = 1024;  // kept for `sluicectl events`; older are dropped

// ivshmem peers beyond the live one are held open with a "refused" page (closing in the handshake
// hangs QEMU). Past this many per vGPU they are closed at once.
inline constexpr size_t kMaxRefusedPeers = 16;
// Pieces of 256 bytes that are read at once of what a QEMU has sent, when its connection is to
// outlive sluiced. Fewer: one that has sent more is not kept.
inline constexpr size_t kForgottenPieces = 16;
// Local programs between connect and the end of their join, per vGPU.
inline constexpr size_t kMaxPendingJoins = 64;
// Messages of one agent handled before others get their turn.
inline constexpr size_t kAgentBurst = 32;
// Pause after a burst. Longer: an honest agent's answers wait.
inline constexpr uint64_t kAgentPauseMs = 2;
// Answers waiting for room in the agent's ring. An agent that asks and never reads loses its
// sessions.
inline constexpr size_t kMaxAgentBacklog = 256;
// Workers started for one vGPU per second on average, and at once: a program that opens and closes
// in a loop must not turn the host into a fork server. Later ones wait.
inline constexpr double kSessionsPerSecond = 20;
inline constexpr double kSessionBurst = 64;
// Requests of one worker for shared memory that wait until memory given back is punched out. An
// honest worker has as many as its program has threads; more are answered with "none left".
inline constexpr size_t kMaxWaitingExtentRequests = 64;
// Answers with a descriptor that one worker has not read yet: the kernel lets sluiced's user have
// so many on their way as it may open (65,536). An honest worker has as many as its program has
// threads that open others' memory; more are refused. More: fewer vGPUs whose workers were taken
// over keep all others from starting a worker.
inline constexpr size_t kMaxUnreadFiles = 64;
// Messages of one worker handled before others get their turn.
inline constexpr size_t kWorkerBurst = 32;
// What a worker writes to its standard error is logged, a line at a time: so many at once, so many
// a second on average, of such a length. More would let one worker push all else out of the event
// log.
inline constexpr double kWorkerLineBurst = 50;
inline constexpr double kWorkerLinesPerSecond = 2;
inline constexpr size_t kWorkerLineBytes = 400;
// Messages there that are read: a line that never ends is none, and would take half of sluiced's
// core otherwise. At the end of a worker, no more once so many lines were dropped.
inline constexpr double kWorkerOutputsPerSecond = 100, kWorkerOutputBurst = 100;
inline constexpr uint64_t kWorkerLastDropped = 1000;
// Host memory of one worker beside what vgpu.host_memory and its region allow: the driver, its
// contexts and its compiler. Less: an honest worker is ended by its cgroup's limit. More: one that
// was taken over has more of the host before it is.
inline constexpr uint64_t kWorkerOwnBytes = 4ull << 30;
// Pids of workers, gone ones too, that no socket of ours serves where they have no uid of their
// own. At least all that can run at once; more, and a new process with an old number is turned away
// for longer.
inline constexpr size_t kRememberedWorkers = kMaxVgpus * SLUICE_MAX_SLOTS;

// Calls that wait on one vGPU's PeerThread. More only delays the moment at which a vGPU whose peer
// blocks the thread is refused new connections; each holds a descriptor at most.
inline constexpr size_t kMaxPeerWork = 256;
// Of a processor, what freeing the memory of one vGPU's programs may take, beyond so much at once
// (a gigabyte is some 100 ms). Higher: a guest that has memory written and freed without end has
// that much of the host. Lower: programs that free much pinned memory wait for more.
inline constexpr double kScrubShare = 0.25;
inline constexpr uint64_t kScrubBurstMs = 300;
// Threads that one vGPU's peers may leave stuck before it is refused new connections: each holds a
// stack and what it hangs on, for as long as the peer likes.
inline constexpr size_t kMaxStuckPeerThreads = 4;
// A ring or a close that takes longer is interrupted; other work that takes longer lets what waits
// pass. Shorter: a busy machine calls honest work stuck. Longer: a peer delays its vGPU for longer.
inline constexpr uint64_t kPeerLateMs = 100;
inline constexpr uint64_t kPeerWorkLateMs = 2000;

// How often one peer may wake the loop, per second and at once (io/fd_watch.h): an agent's bell,
// messages of a worker (kWorkerBurst a time) and its rings, connections on which nothing
// is expected, and new connections to one socket of a vGPU. Higher: a flood takes more of sluiced's
// one core (some 10 us a time). Lower: honest ones wait.
inline constexpr double kAgentBellsPerSecond = 1000, kAgentBellBurst = 200;
inline constexpr double kWorkerWakesPerSecond = 1000, kWorkerWakeBurst = 500;
inline constexpr double kRingsPerSecond = 10000, kRingBurst = 2000;
// Of the loop's time, what the workers, agent and connections of one vGPU may take together, beyond
// so much at once, and those of all vGPUs (io/loop_budget.h): their own paces add up to several
// cores. Higher: floods take more of sluiced's core. Lower: honest programs of a vGPU with
// many short launches are heard later.
inline constexpr double kVgpuLoopShare = 0.1, kAllVgpusLoopShare = 0.3;
inline constexpr uint64_t kVgpuLoopBurstMs = 10, kAllVgpusLoopBurstMs = 25;
// The same of workers that are over their share, as long as others wait for what they will report:
// holders of the GPU. Higher: floods of theirs take more of sluiced's core. Lower: a holder that
// has become idle keeps the GPU for longer.
inline constexpr double kAwaitedLoopShare = 0.05;
inline constexpr uint64_t kAwaitedLoopBurstMs = 5;
// Of the loop's time at once, for learning from launch records, which workers and kernels write:
// 0.1 ms for a session whose 512 are new each time. Longer: thousands of such sessions keep others
// waiting. Shorter: of many sessions each is learnt from less often.
inline constexpr uint64_t kLearnMs = 5;
// Sessions whose reports are read in one beat although nobody waits for them, and sessions whose
// launch records are read for accounting at once: 1 to 10 us and 3 us each. More: with thousands of
// sessions others are kept waiting. Fewer: what people see of a session is older, and more of what
// its records say is overwritten unread.
inline constexpr size_t kReportsPerBeat = 1024, kWordSessions = 512;
inline constexpr double kIdleWakesPerSecond = 20, kIdleWakeBurst = 10;
inline constexpr double kConnectionsPerSecond = 1000, kConnectionBurst = 200;
// Contexts, and green contexts, of all guests on an NVIDIA GPU: each takes one of its channel
// groups, of which there are about a thousand. More: one guest takes them all, and no other program
// starts. Fewer: guests with very many are refused early.
inline constexpr uint64_t kNvidiaContexts = 900;
// The same under MPS, whose server takes so many clients (NVIDIA's manual).
inline constexpr uint64_t kMpsContexts = 48;
// New agents of one vGPU: each ends the sessions of the one before.
inline constexpr uint64_t kAgentStartMs = 100;

// sluiced's log (base/log.h): lines that wait for a slow stderr; lines that begin alike at once and
// per second; how many beginnings are counted apart. Fewer lose what an operator needs; more let
// one guest fill the disk.
inline constexpr size_t kMaxLogQueue = 1024;
inline constexpr double kLogBurst = 200;
inline constexpr double kLogPerSecond = 5;
inline constexpr size_t kMaxLogKeys = 512;
// What sluiced waits at its end for stderr to take its last lines.
inline constexpr uint64_t kLogFinishMs = 500;

// Heartbeats: host pages (a worker calls ours stale after many of them, so a longer period delays
// fail-open), channel headers.
inline constexpr uint32_t kHostPageBeatMs = 100;
inline constexpr uint32_t kChannelBeatMs = 1000;

}  // namespace sluice::limits
