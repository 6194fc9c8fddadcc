// SPDX-License-Identifier: Apache-2.0
// What one session may make its worker hold besides what it allocates. All of it is charged or
// bounded, because a guest can have as many of each as it likes. Beside each: what breaks if it is
// changed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::worker {

// --- charged to the vGPU's device memory ---
// One stream of the driver's. Less: streams are a way to take memory that nobody pays for.
inline constexpr uint64_t kStreamBytes = 16u << 10;
// One green context of the guest's, on an H200. Less: likewise.
inline constexpr uint64_t kGreenBytes = 6u << 20;
// What a variable is aligned to at least, and at most (PTX allows 4096; the driver 512).
inline constexpr uint64_t kLeastVariableAlign = 16;
inline constexpr uint64_t kMostVariableAlign = 4096;

// --- charged to the vGPU's host memory ---
// A module: this much, and this many times its text. Measured on the software GPU: 26 KB for a text
// of 5 KB, and 3.6 MB, 17 times the text, for one of 211 KB in which every instruction has its own
// constant. Less: a guest fills the host's memory with modules. More: programs with large modules
// need a larger limit.
inline constexpr uint64_t kModuleHostBytes = 64u << 10;
inline constexpr uint64_t kModuleHostFactor = 24;
// Beside that, each variable and each label: 3 KB and 0.7 KB on the software GPU, for texts of 6
// and 9 bytes. Less: a guest fills the host's memory with them.
inline constexpr uint64_t kVariableHostBytes = 4u << 10;
inline constexpr uint64_t kLabelHostBytes = 1u << 10;
// Machine code: this many times its image. NVIDIA's driver keeps the image and tables of its
// own, the worker a copy while it loads. Less: as above. More: PyTorch, which loads hundreds of
// megabytes of machine code, needs a larger limit.
inline constexpr uint64_t kCubinHostFactor = 3;

// A worker's memory for each object of a session, measured on the software GPU and rounded up: an
// operation that waits (a launch without its parameters, a free, a recorded event); an allocation
// or mapping; a texture object; anything else with a handle. Less: a guest that makes as many as it
// may fills the host's memory (1.2 GB a session). More: programs with very many objects are refused
// early.
inline constexpr uint64_t kOperationHostBytes = 768, kAllocationHostBytes = 256;
inline constexpr uint64_t kTextureHostBytes = 768, kObjectHostBytes = 1024;
// Of that, kHeldFreeBytes are free for each session. The rest is charged in steps, checked every
// kRecordsPerHeldLook records. Less: more messages to sluiced. More: as above.
inline constexpr uint64_t kHeldFreeBytes = 8u << 20, kHeldStepBytes = 2u << 20;
inline constexpr uint32_t kRecordsPerHeldLook = 64;
// After a refusal: requested again after this time, and at most this many operations are queued.
inline constexpr uint64_t kHeldAgainNs = 100'000'000;
inline constexpr size_t kRefusedOperations = 8192;

// --- bounded ---
// Priorities of the driver's streams between two levels of grants (SLUICE_GRANT_LEVEL), where turns
// are priorities. More: a GPU has six in all. Less: not tried on one.
inline constexpr int kTurnLevels = 2;
// The longest launch at the level of visits, where its length is known: a little longer than
// sluiced lets an interrupted vGPU linger. Longer: a heavy tenant's launch keeps others from that
// level.
inline constexpr uint64_t kVisitNs = 500'000;
// There an original took longer than expected if it took kForgetFactor times that, and at least
// kForgetAfterNs. After kForgetEach of those its time is forgotten. More often: launches that
// waited for others' are timed in a slower form. Less often: a kernel whose blocks have become long
// keeps the GPU from others.
inline constexpr uint64_t kForgetFactor = 4, kForgetAfterNs = 1'000'000;
inline constexpr uint64_t kForgetContendedNs = 100'000'000;  // while others wait
inline constexpr uint32_t kForgetEach = 8;
// Opaque launches in flight while others wait: as many as are expected to take this long together;
// one of unknown length is alone. Less: gaps between short launches. More: a turn ends that much
// later.
inline constexpr uint64_t kTurnOpaqueNs = 500'000;
// There: the next one is issued this long before the expected end of the one in flight. Less: the
// engine polls too late for it. More: more turns end with two launches in flight.
inline constexpr uint64_t kTurnLeadNs = 100'000;
// The guest's green contexts. Each takes one of the GPU's channel groups, of which there are about
// a thousand for all. Less: programs that partition finely get CUDA_ERROR_OUT_OF_MEMORY.
inline constexpr uint32_t kMostGreens = 32;
// Streams of one context. Each that launches clones has a left-over list (LeftPool::kMaxLists).
inline constexpr uint32_t kMostStreams = 4000;
// Texture and surface objects of one context; each costs about 100 bytes here and in the driver.
inline constexpr size_t kMostTextures = 1u << 16;
// The longest side of an array in texels; below it the driver refuses what is too large. More:
// sizes whose products overflow.
inline constexpr uint64_t kMostArraySide = 1u << 20;
// Parameters of launches that wait, and bodies of calls that do, in bytes. At the first the decoder
// stops taking records, unless a host function waits; at the second the session ends. Less:
// programs that queue deep stop sooner.
inline constexpr uint64_t kQueuedParameterBytes = 64u << 20;
inline constexpr uint64_t kMostParameterBytes = 256u << 20;
// The witness: how often it reports that its launch still waits, and how often it queries the
// driver. More: the last report counts less often, and an overrun is proved that much later.
inline constexpr uint64_t kTriedMs = 20;
inline constexpr uint32_t kWitnessPollUs = 500;

}  // namespace sluice::worker
