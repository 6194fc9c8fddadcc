// SPDX-License-Identifier: Apache-2.0
// What the handles of the driver API stand for: contexts, streams, events, modules, functions.
// Plain structures; their owners are the handle tables (state.h) and each other, by shared_ptr.
//
// Threads: fields say which lock guards them; what says nothing is fixed once the object is made.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "abi/cuda_green.h"
#include "kernels/exec/block/block.h"
#include "kernels/exec/memory/device_heap.h"
#include "kernels/exec/memory/memory_map.h"
#include "kernels/exec/program/program.h"
#include "mediator/softgpu/grid/stream_scheduler.h"

namespace sluice::softgpu {

// Of streams and launches, as an H200's: the smaller the more urgent. Blocks that wait for an SM
// start in that order; nothing that runs is taken off for it.
inline constexpr int kLeastPriority = 0, kGreatestPriority = -5;

struct Stream {
  std::weak_ptr<Context> context;
  // Of a green context in it, whose number is not 0.
  std::weak_ptr<GreenContext> green;
  uint64_t green_id = 0;
  bool legacy = false;
  bool blocking = true;  // waits for the legacy stream, and that one for it; not of green contexts
  unsigned flags = 0;
  std::atomic<int> priority{0};
  std::map<CUlaunchAttributeID, CUlaunchAttributeValue> attributes;  // under Context::mutex
  uint64_t id = 0;
  OperationRef last;    // under StreamScheduler's mutex; may be over already
  bool closed = false;  // under StreamScheduler's mutex: its handle is gone
};

struct Event {
  std::weak_ptr<Context> context;
  unsigned flags = 0;
  std::mutex mutex;
  OperationRef recorded;  // under mutex; null: never recorded
};

// Another process' memory, mapped.
struct Import {
  uint64_t bytes = 0;
  uint64_t file = 0;  // its number
  unsigned uses = 1;
};

struct Context {
  unsigned flags = 0;
  bool primary = false;
  uint64_t id = 0;
  unsigned slot = 0;  // in the GPU file; TSGID = slot + 1
  CUcontext handle = nullptr;
  exec::MemoryMap map;                                          // what its kernels may touch
  exec::DeviceHeap heap{map};                                   // of malloc in kernels
  std::atomic<uint64_t> stack_bytes{exec::kDefaultStackBytes};  // CU_LIMIT_STACK_SIZE
  std::atomic<int> error{0};                                    // sticky CUresult; set once
  std::atomic<bool> destroyed{false};

  std::mutex mutex;
  std::string fault;                         // under mutex: what set `error`, for people
  std::map<uint64_t, uint64_t> allocations;  // under mutex: device memory, base -> bytes
  std::set<uint64_t> managed;                // under mutex: bases of those that the host may touch
  std::set<uint64_t> variables;              // under mutex: bases of modules' variables
  std::map<uint64_t, Import> imports;        // under mutex, by address
  std::unordered_map<CUmodule, std::shared_ptr<struct Module>> modules;  // under mutex
  std::map<CUlimit, size_t> limits;                                      // under mutex
  // Local memory for each thread that fits on the GPU, as much as the kernel with most of it has
  // wanted; under mutex. It stays until the context ends (reservations.cc).
  uint64_t local_bytes = 0;

  // Under StreamScheduler's mutex: all streams, closed ones as long as they have work.
  std::vector<std::shared_ptr<Stream>> streams;
  std::shared_ptr<Stream> legacy;
  std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;  // under mutex

  // The first failure wins. Any thread.
  void fail(CUresult result, const std::string& why);
};

// How small groups of SMs may be and what their size is a multiple of.
struct GroupRule {
  uint32_t least = 0, multiple = 0;
};

// Some SMs of the device, with streams of their own; all else is the primary context's, of which it
// counts as a use.
struct GreenContext {
  std::shared_ptr<Context> context;
  SmSet sms;  // not none
  GroupRule rule;
  uint64_t id = 0;
  CUgreenCtx handle = nullptr;
  CUcontext view = nullptr;                // as which it is made current
  std::shared_ptr<Stream> default_stream;  // what a null stream means then; waits for no other
  std::atomic<bool> destroyed{false};
  OperationRef
      barrier;  // under StreamScheduler's mutex: what all that is enqueued from now on waits for

  bool gone() const { return destroyed.load() || context->destroyed.load(); }
};

// What cuDevResourceGenerateDesc makes.
struct ResourceDesc {
  SmSet sms;
  GroupRule rule;
};

struct Function {
  std::weak_ptr<struct Module> module;
  std::weak_ptr<Context> context;
  std::shared_ptr<const exec::Image> image;
  const exec::EntryInfo* entry = nullptr;  // of image's program
  uint32_t ptx_version = 0;
  uint32_t constant_bytes = 0;
  uint32_t registers = 0;  // per thread: estimated, within what the kernel's directives say
  std::atomic<int> max_dynamic_shared{48 * 1024};
  std::atomic<int> carveout{-1};
  std::atomic<int> cluster[3];              // required sides, 0: not given; the kernel's own stay
  std::atomic<bool> large_clusters{false};  // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
  std::atomic<int> cluster_policy{0};       // a hint
};

// A module's text, decoded; the same for all contexts that load it.
struct Code {
  std::shared_ptr<const exec::Program> program;
  uint32_t ptx_version = 0;  // of .target: 90 for sm_90
  // Registers per thread that .maxntid and .minnctapersm leave; entries without are not here.
  std::map<std::string, uint32_t, std::less<>> register_limits;
};

struct Module {
  std::weak_ptr<Context> context;
  CUmodule handle = nullptr;
  Code code;
  std::shared_ptr<const exec::Image> image;
  std::vector<uint64_t> owned;  // device memory of its variables
  std::mutex mutex;
  std::map<std::string, CUfunction, std::less<>> functions;  // under mutex: handed out so far
};

// A library belongs to no context; each context that uses it gets its module.
struct Library {
  Code code;
  std::mutex mutex;
  std::map<uint64_t, CUmodule> modules;                  // under mutex, by Context::id
  std::map<std::string, CUkernel, std::less<>> kernels;  // under mutex: handed out so far
};

struct Kernel {
  std::weak_ptr<Library> library;
  CUlibrary library_handle = nullptr;
  std::string name;
};

// Where a kernel's parameters lie in a buffer handed over as a whole and what cuFuncGetParamInfo
// says, then where they end: as machine code for sm_90 has them, whose parameters begin 0x210 bytes
// into the constant bank, and that is where alignments of 32 bytes and more count from (.nv.info's
// KPARAM_INFO and PARAM_CBANK, ptxas 13.0: a first tensor map lies at 48). ParamInfo::offset is
// PTX's own layout, in which the interpreter has them.
std::vector<uint32_t> buffer_layout(const exec::EntryInfo& entry);

}  // namespace sluice::softgpu
