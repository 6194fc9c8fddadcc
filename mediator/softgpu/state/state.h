// SPDX-License-Identifier: Apache-2.0
// State: everything the library has in this process, made by cuInit and never taken down (its
// threads may outlive main). Also what every API function begins with: is there a driver, which
// context is current, has it failed.
//
// After cuInit the library opens no files: what it still asks of the kernel is memory (mmap,
// munmap, madvise, mincore), threads (clone, futex, sigprocmask, prctl), time (clock_gettime,
// clock_nanosleep), fcntl locks and write.
// Threads: any. The tables and parts lock for themselves; `mutex` guards what is marked.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/exec/checker/checker.h"
#include "mediator/base/virtual_ranges.h"
#include "mediator/softgpu/grid/grid_runner.h"
#include "mediator/softgpu/grid/stream_scheduler.h"
#include "mediator/softgpu/memory/arena.h"
#include "mediator/softgpu/memory/textures.h"
#include "mediator/softgpu/shared/shared_gpu.h"
#include "mediator/softgpu/state/config.h"
#include "mediator/softgpu/state/handle_tables.h"
#include "mediator/softgpu/state/objects.h"

namespace sluice::softgpu {

// Host memory that kernels may touch, in every context: allocated by us or registered.
struct HostRange {
  uint64_t bytes = 0;
  unsigned flags = 0;
  bool ours = false;  // to be unmapped when freed
  bool writable = true;
};

// Physical memory of cuMemCreate. All under State::mutex.
struct Physical {
  CUmemGenericAllocationHandle handle = 0;
  void* pages = nullptr;  // shared: mappings are these once more
  uint64_t bytes = 0, references = 0, mappings = 0;
  int handle_types = CU_MEM_HANDLE_TYPE_NONE;  // as which it may leave, said the program
};
// Virtual memory management (api/virtual_memory.cc). All under State::mutex.
struct VirtualMemory {
  VirtualRanges<std::shared_ptr<Physical>> ranges;
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> handles;
  CUmemGenericAllocationHandle next_handle = 0xd000000000000001;  // no address, and no other kind's
  std::optional<unsigned>
      slot;  // in the GPU file, which is charged; while there is physical memory
  uint64_t bytes = 0;

  // What contexts may touch in the reservation of `address`.
  std::vector<exec::MemoryRange> runs(uint64_t address) const;
};

struct State {
  State(Config c, std::unique_ptr<SharedGpu> g)
      : config(std::move(c)), gpu(std::move(g)), runner(*gpu, config.threads), scheduler(runner) {}

  const Config config;
  const std::unique_ptr<SharedGpu> gpu;
  Arena arena;
  GridRunner runner;
  StreamScheduler scheduler;

  HandleTables tables;
  uint64_t resource_key = 0;  // of this process: what its CUdevResources are known by
  std::atomic<uint64_t> next_grid_id{1}, next_split_id{1};
  std::mutex mutex;
  std::vector<std::weak_ptr<Context>> live_contexts;  // under mutex
  std::map<uint64_t, HostRange> host_ranges;          // under mutex, by address
  std::map<uint64_t, TextureObject> textures;         // under mutex, by handle; surfaces, too
  VirtualMemory virtual_memory;                       // under mutex
  std::shared_ptr<Context> primary;                   // under mutex
  unsigned primary_uses = 0, primary_flags = 0;       // under mutex
  unsigned green_contexts = 0;                        // under mutex: uses among them
  uint64_t next_context_id = 1, next_stream_id = 3;   // under mutex

  std::unique_ptr<exec::Checker> checker;  // null: none was asked for
  std::atomic<uint64_t> calls{0};          // of the driver API, counted where there is a checker

  Fd log_file;  // Config::log, opened by cuInit because later a sandbox may forbid it
  // Faults and refusals, for people; to Config::log.
  void log(const std::string& line);
};

// Null before cuInit, in a forked child and while the process ends; `status` then says which error.
State* state(CUresult& status);
// What checks kernels (Config::check); null: nothing does. Any thread; for the life of the process.
exec::Checker* checker();
// cuInit's work; later calls only return the first one's result.
CUresult initialise();

// What is current to a thread: a context, or a green context in it.
struct Current {
  std::shared_ptr<Context> context;
  std::shared_ptr<GreenContext> green;

  explicit operator bool() const { return context != nullptr; }
  CUcontext handle() const { return green ? green->view : context ? context->handle : nullptr; }
  bool gone() const { return green ? green->gone() : context->destroyed.load(); }
};
// The calling thread's stack of them, and its top: one without a context if there is none.
std::vector<Current>& context_stack();
Current current();
// What a handle means; none: nothing.
Current find_context(State& s, CUcontext handle);

// A context with its slot, streams and view of host memory.
Result<std::shared_ptr<Context>> make_context(State& s, unsigned flags, bool primary);
// A use of the device's primary context, made if there is none; null: no room for it.
// release_primary: the end of one, or of all if none is a green context; of `which`, unless that is
// null. Errors as cuDevicePrimaryCtxRelease.
std::shared_ptr<Context> retain_primary(State& s);
CUresult release_primary(State& s, const Context* which, bool all);
// Waits for its work and frees all it has.
void destroy_context(State& s, const std::shared_ptr<Context>& context);

// Runs f(State&) if the library is up.
template <class F>
CUresult with_state(F f) {
  CUresult status;
  State* s = state(status);
  if (s == nullptr) return status;
  if (s->checker != nullptr) s->calls.fetch_add(1, std::memory_order_relaxed);
  return f(*s);
}

// Runs f(State&, Context&) if the calling thread has a current context that has not failed.
template <class F>
CUresult with_context(F f) {
  return with_state([&](State& s) -> CUresult {
    const Current top = current();
    if (!top) return CUDA_ERROR_INVALID_CONTEXT;
    if (top.gone()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (const int error = top.context->error.load(); error != 0)
      return static_cast<CUresult>(error);
    return f(s, *top.context);
  });
}

// The stream that `handle` names for the calling thread: NULL and CU_STREAM_LEGACY the legacy
// stream of the current context or green context, CU_STREAM_PER_THREAD the thread's own, which
// green contexts do not have (cuda.h, cuStreamGetCtx_v2). Null: no such stream.
std::shared_ptr<Stream> find_stream(State& s, CUstream handle);
// A stream of the green context, or with null of the context.
std::shared_ptr<Stream> make_stream(State& s, const std::shared_ptr<Context>& context,
                                    const std::shared_ptr<GreenContext>& green, unsigned flags,
                                    int priority);
// Whether it is of a green context that is destroyed.
inline bool orphaned(const Stream& stream) {
  if (stream.green_id == 0) return false;
  const auto green = stream.green.lock();
  return !green || green->gone();
}

// Runs f(State&, Context&, Stream&) for a stream of a context that has not failed.
template <class F>
CUresult with_stream(CUstream handle, F f) {
  return with_context([&](State& s, Context&) -> CUresult {
    const std::shared_ptr<Stream> stream = find_stream(s, handle);
    const std::shared_ptr<Context> context = stream ? stream->context.lock() : nullptr;
    if (!context) return CUDA_ERROR_INVALID_HANDLE;
    if (context->destroyed.load() || orphaned(*stream)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (const int error = context->error.load(); error != 0) return static_cast<CUresult>(error);
    return f(s, *context, *stream);
  });
}

// What a call that waited returns: the error that came up meanwhile.
inline CUresult outcome(const Context& context) {
  return static_cast<CUresult>(context.error.load());
}

// Device memory of a context, charged; 0: none left. free_device: false if `base` is not one of its
// allocations. The caller has made sure that nothing uses it.
uint64_t allocate_device(State& s, Context& context, uint64_t bytes);
bool free_device(State& s, Context& context, uint64_t base);
// Takes memory of other processes, which begins there, out of the context. False: there is none.
bool close_import(Context& context, uint64_t base);

// reservations.cc: device memory that contexts take besides allocations. False: there is no more.
// reserve_local: before a kernel with this much local memory is launched. reserve_limit: before a
// limit changes; under context.mutex.
bool reserve_local(State& s, Context& context, uint64_t bytes_per_thread);
bool reserve_limit(State& s, Context& context, CUlimit limit, size_t now, size_t value);

// modules.cc. load_code: from an image as cuModuleLoadData takes it; the error's code is a
// CUresult, its message what a compiler would say. load_module: in a context; also enters it in the
// tables. drop_module: whatever the context's state; nothing of it may be running.
Result<Code> load_code(const void* image);
Result<std::shared_ptr<Module>> load_module(State& s, const std::shared_ptr<Context>& context,
                                            const Code& code);
void drop_module(State& s, const std::shared_ptr<Module>& module);
// The handle of entry `name`; null: no such entry.
CUfunction function_of(State& s, const std::shared_ptr<Module>& module, std::string_view name);
// By the driver API's numbers. Nothing: there is no such attribute.
std::optional<int> device_attribute(const State& s, CUdevice_attribute which);
std::optional<int> function_attribute(const State& s, const Function& function,
                                      CUfunction_attribute which);
// What a launch or query names: a function, or a kernel of a library, which gets loaded in
// `context`.
std::shared_ptr<Function> find_function(State& s, Context& context, CUfunction handle,
                                        CUresult& error);

}  // namespace sluice::softgpu
