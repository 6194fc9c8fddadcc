// SPDX-License-Identifier: Apache-2.0
// What a session's handles stand for, and what its streams have queued. Plain structures that hold
// driver objects; the files of calls/ and launch/ call the driver with them.
//
// Owned by the session's handle table and, while work is queued, by that work (shared_ptr).
// Fields say which lock guards them; what says nothing is fixed once the object is made. "Session
// lock" is WorkerSession::mutex.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/stub.h"
#include "abi/wire.h"
#include "mediator/base/grid_windows.h"
#include "mediator/core/handles.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/launch/control_pool.h"
#include "mediator/worker/launch/plan/geometry.h"
#include "mediator/worker/launch/plan/register_clamp.h"
#include "mediator/worker/launch/plan/whole_times.h"
#include "mediator/worker/streams/engine.h"

namespace sluice::worker {

class GreenContexts;
struct GreenObject;
struct StreamObject;
struct SeenWorkers;  // launch/sms/block_confinement.cc

// Local memory that launches wait for: sluiced is asked. Session lock.
struct LocalGrant {
  uint64_t bytes_per_thread = 0;
  bool refused = false;  // the vGPU's limit: the launches fail
  std::shared_ptr<EventRecord> answered = std::make_shared<EventRecord>();
};

// A texture or surface object.
struct TextureObject {
  std::shared_ptr<struct ArrayObject> array;  // null: of plain memory
  bool surface = false;
};

// What launches may be like on a context's device.
struct DeviceShape {
  int multiprocessors = 1;
  int clock_khz = 1000000;  // of the SMs
  int max_threads_per_block = 1024;
  int max_block[3] = {1024, 1024, 64};
  int max_grid[3] = {0x7fffffff, 65535, 65535};
  uint64_t threads_at_once = 0;  // that fit on the GPU
};

// What a context is charged besides allocations and modules. Session lock, but for the atomics.
struct ContextCharges {
  uint64_t own = 0;  // with streams and green contexts, which are used again once they are paid for
  uint64_t streams = 0;
  std::atomic<uint32_t> streams_live{0};
  uint64_t greens = 0;  // the guest's own
  uint32_t places = 0;  // among the GPU's contexts: its own unless the session's first, and those
                        // of the guest's green contexts
  std::atomic<uint32_t> greens_live{0};
  // The driver keeps as much local memory as the launch with most of it wanted, for every thread
  // that fits on the GPU at once.
  uint64_t local_bytes = 0;                 // per thread
  std::shared_ptr<LocalGrant> local_asked;  // the newest that sluiced was asked for; null: none
  struct Limit {
    uint64_t usual = 0;    // as the context was made, which it pays for itself
    uint64_t charged = 0;  // bytes
  };
  std::map<CUlimit, Limit> limits;
};

// Device memory and streams that launches of a context take and give back. Session lock, but for
// `greens`, which is fixed.
struct ContextPools {
  std::unique_ptr<ControlPool> controls;
  std::unique_ptr<LeftPool> lefts;
  std::unique_ptr<StatePool> states;
  std::shared_ptr<GreenContexts> greens;  // null: the hardware confines no launches here
  SeenWorkers* seen = nullptr;            // pinned, goes with the context; null until launches stay
};

struct ContextObject : HandleObject {
  uint64_t handle = 0;
  ContextId id = 0;
  CUcontext cu = nullptr;
  CUdevice device = 0;
  DeviceShape shape;
  bool primary = false;
  uint32_t retained = 0;         // primary: by the program; session lock
  bool closed = false;           // session lock
  CUstream transfers = nullptr;  // ours: control blocks in and out
  CUdeviceptr signal = 0;        // the signal page's evict word as kernels address it
  CUdeviceptr evict_word = 0;    // in device memory, follows that (EvictForwarder); 0: none
  CUdeviceptr records = 0;       // the launch records as kernels address them
  ContextCharges charged;
  ContextPools pools;
  std::vector<std::shared_ptr<struct ModuleObject>> kept_modules;  // that the driver keeps
  // Destroyed by the program, and still in use; session lock.
  std::vector<std::shared_ptr<struct ArrayObject>> kept_arrays;
  std::map<uint64_t, TextureObject> textures;        // by the driver's name; session lock
  std::shared_ptr<StreamObject> legacy, per_thread;  // CUDA's streams 0/1 and 2
};

struct ModuleObject : HandleObject {
  uint64_t handle = 0;
  CUmodule cu = nullptr;
  CUmodule other = nullptr;          // of FittedModule, while it is not unloaded
  CUmodule clamped_in = nullptr;     // of FittedModule
  bool machine_code = false;         // fixed; its kernels are opaque, whatever the guest says
  std::vector<std::string> clamped;  // of FittedModule
  // Of clones whose original is in another module, until it is known which that is; job thread.
  std::shared_ptr<const struct ClonesText> clones_alone;
  std::shared_ptr<ContextObject> context;
  std::unordered_map<std::string, uint64_t> functions;  // handles by name; session lock
  // Of its kernels' clones, where those came later; session lock. They go with it.
  std::vector<std::shared_ptr<ModuleObject>> of_clones;
  uint64_t charged = 0, charged_host = 0;  // session lock
  uint64_t charged_once = 0;               // of `charged`: what one load of its text takes
};

// Launches of a function with one block size: what was asked of the driver once, and learnt.
struct LaunchVariant {
  uint32_t block_threads = 0;
  uint32_t dynamic_shared = 0;        // as the program asked
  uint32_t clone_dynamic_shared = 0;  // with the broadcast slots
  CUfunction clone = nullptr;         // the form that is launched
  uint32_t resident = 0;              // its blocks on the whole GPU; 0: it does not fit
  CUfunction one_task = nullptr;      // the other clone, if it fits; null where `clone` is that one
  uint32_t one_task_resident = 0;
  CUfunction window = nullptr;  // the clone that is launched in windows, if it fits; or null
  uint32_t window_resident = 0;
  ChunkModel chunks;
  WholeTimes whole = {};    // of the original
  uint32_t seems_long = 0;  // originals in a row that took longer than a turn lets whole; weighed
  FormChoice choice = {};
  uint32_t long_launches = 0;  // originals that took much longer than expected
};

// Where a parameter lies among a function's, in bytes.
struct ParamPlace {
  uint32_t offset = 0, bytes = 0;
};

struct FunctionObject : HandleObject {
  std::shared_ptr<ModuleObject> module;
  std::string name;
  uint32_t kernel = 0;  // hash of the name, for launch records
  CUfunction original = nullptr;
  // The clones, up to `form`: session lock, because they may come when the handle is known already
  // (add_clones); from then on they stay.
  CUfunction clone = nullptr;     // null: opaque
  CUfunction one_task = nullptr;  // beside a loop: the clone that runs one task a block, or null
  CUfunction window = nullptr;    // beside a loop: the clone that is launched in windows, or null
  // The clones again, with fewer registers (launch/plan/register_clamp.h); or null.
  CUfunction clamped = nullptr, one_task_clamped = nullptr;
  // The guest has not made the other forms, but may when they are wanted; session lock.
  bool others_later = false;
  uint64_t loop_ns = 0;  // GPU time that it took in the first form meanwhile; session lock
  bool slot_dynamic = false;
  bool one_row = false;  // other grids take the original
  CloneForm form;
  std::vector<ParamPlace> params;  // of the original, as its driver lays them out
  uint32_t param_bytes = 0;        // all of them
  uint64_t local_bytes = 0;        // per thread, of the form with most
  std::vector<std::byte> reply;    // to SLUICE_CALL_FUNCTION_GET
  // What the program has set of it, for clones that come later; session lock.
  std::map<CUfunction_attribute, int> attributes;
  std::optional<CUfunc_cache> cache_config;
  std::vector<LaunchVariant> variants;  // session lock
  // Blocks of the original that an SM holds, of the shape that was asked for last; session lock.
  uint32_t fits_threads = 0, fits_shared = 0, fits = 0;
};

// A stream of the driver's in which a guest's stream goes on. Of those that a guest's stream has,
// its own, one for each level above it, and one for each green context that it ran in, the tail is
// where the newest of it is; what follows in another waits for that. All under the session lock.
struct Lane {
  CUstream cu = nullptr;
  CUgreenCtx green = nullptr;      // whose stream it is; null: it may run on all SMs
  StreamObject* stream = nullptr;  // of one of GreenContexts: the guest's, which is there as long
  CUstream second = nullptr;       // where second grids and every second window run; null: none yet
  CUevent joined = nullptr;        // after which the stream goes on behind one
  CUevent forked = nullptr;        // after which windows may run in `second`
  CUevent ended[2] = {};           // behind the newest window in the stream and in `second`
  CUevent began = nullptr, over = nullptr;  // around the windows of the launch of this number
  uint64_t timed_launch = 0;
  int priority = 0;   // the driver's, of both
  bool open = false;  // windows are queued in it, and more may follow
};

struct StreamObject : HandleObject, Lane {
  ~StreamObject() override {
    if (counted) context->charged.streams_live.fetch_sub(1);
  }
  bool counted = false;  // among its context's streams_live: the program made it
  StreamId id = 0;
  std::shared_ptr<ContextObject> context;
  unsigned guest_flags = 0;
  std::shared_ptr<GreenObject> of;  // the guest's green context; null: it is of none
  // Where it goes on under grants of level 1 and up; null: none yet; session lock.
  std::array<std::unique_ptr<Lane>, SLUICE_GRANT_LEVELS - 1> above;
  CUdeviceptr left = 0;  // the stream's left-over list; 0: no clone launched yet; session lock
  SmSet barred;          // SMs that are barred in it, once the stream has come so far; session lock
  Lane* tail = this;     // session lock
  uint64_t ended_ns = 0;  // when the newest original that has ended was known to; session lock
  CUevent passed_on =
      nullptr;  // behind what was the tail; null: it has always been this one; session lock
};

// A green context that the guest has made. The driver's goes with the last of its streams.
struct GreenObject : HandleObject {
  GreenObject(const gpu::DriverApi& driver_api, std::shared_ptr<ContextObject> primary)
      : api(driver_api), context(std::move(primary)) {
    context->charged.greens_live.fetch_add(1);
  }
  ~GreenObject() override {
    if (cu) (void)api.cuGreenCtxDestroy(cu);
    context->charged.greens_live.fetch_sub(1);
  }
  const gpu::DriverApi& api;
  const std::shared_ptr<ContextObject> context;
  CUgreenCtx cu = nullptr;
  SmSet sms;  // as sluiced names SMs: its groups by their numbers
  std::shared_ptr<StreamObject> default_stream;  // null once it is destroyed; session lock
};

struct EventObject : HandleObject {
  explicit EventObject(const gpu::DriverApi& driver_api) : api(driver_api) {}
  ~EventObject() override {
    if (cu) api.cuEventDestroy(cu);
  }
  const gpu::DriverApi& api;
  CUevent cu = nullptr;
  unsigned flags = 0;
  std::shared_ptr<ContextObject> context;
  std::shared_ptr<EventRecord> latest;  // null: never recorded; session lock
};

// Physical memory (cuMemCreate). Its handle stays a name as long as anything holds it, so that the
// same one can be asked for again (cuMemRetainAllocationHandle). All under the session lock.
struct MemoryObject : HandleObject {
  uint64_t handle = 0;
  CUmemGenericAllocationHandle cu = 0;  // one reference of the driver's
  uint64_t bytes = 0, charged = 0;
  uint64_t references = 0;  // the program's
  uint64_t mappings = 0;
  int guest_handle_types = 0;  // as asked for; only reported back
};

// An array, a mipmapped array, or a level of one.
struct ArrayObject : HandleObject {
  CUarray cu = nullptr;
  CUmipmappedArray mipmap = nullptr;  // a mipmapped array: has no `cu`
  std::shared_ptr<ContextObject> context;
  uint64_t texel_bytes = 0;
  uint64_t width = 1, height = 1, depth = 1;  // texels; depth: slices, layers or faces
  uint64_t charged = 0;
  bool layered = false;
  bool surface = false;             // surface objects may name it
  std::vector<uint64_t> levels;     // of a mipmapped one: handles, 0 until asked for; session lock
  std::shared_ptr<ArrayObject> of;  // of a level: the mipmapped array, whose memory it is

  uint64_t row_bytes() const { return width * texel_bytes; }
  void begin_use() { (of ? *of : *this).uses_.fetch_add(1); }
  void end_use() { (of ? *of : *this).uses_.fetch_sub(1); }
  bool in_use() const { return uses_.load() != 0; }

 private:
  // Texture and surface objects, and queued copies, that name it or one of its levels.
  std::atomic<uint32_t> uses_{0};
};

// --- what streams queue ---

// A launch's parameters. Those of nearly all kernels lie within, so that they cost no allocation.
class ParamBytes {
 public:
  void assign(std::span<const std::byte> from) {
    bytes_ = from.size();
    if (bytes_ > within_.size()) more_ = std::make_unique<std::byte[]>(bytes_);
    std::copy(from.begin(), from.end(), more_ ? more_.get() : within_.data());
  }
  const std::byte* data() const { return more_ ? more_.get() : within_.data(); }
  size_t size() const { return bytes_; }

 private:
  size_t bytes_ = 0;
  std::unique_ptr<std::byte[]> more_;
  alignas(16) std::array<std::byte, 96> within_;
};

// What the program asked for, checked. Never changes.
struct LaunchRequest {
  std::shared_ptr<FunctionObject> function;
  uint32_t grid[3] = {}, block[3] = {};
  uint32_t dynamic_shared = 0;
  uint64_t flags = 0;        // of sluice_launch; not 0: the original is launched
  ParamBytes params;         // the original's
  uint64_t input_bytes = 0;  // MemoryTable::bytes_behind() of these
  uint64_t ready_ns = 0;     // when it was asked for
};

// How the launch will run. Chosen when it is submitted to its stream (LaunchPlanner::plan), and
// where the GPU is shared by SMs again when it is first issued (LaunchPlanner::fit_to); the same
// for all its submissions from then on.
struct LaunchPlan {
  uint32_t tasks = 0;
  Geometry geometry;           // on the whole GPU
  uint32_t variant = 0;        // of the function
  CUfunction clone = nullptr;  // one of the variant's
  FormKind form = FormKind::kLoop;
  bool one_task = false;     // one task in each hardware block, by admission
  WindowPlan window_plan;    // of form kWindows
  bool timed = false;        // its blocks write down when it begins and ends
  uint64_t expected_ns = 0;  // where turns are priorities: on the whole GPU; 0: not known
  uint32_t per_sm = 1;       // blocks of the clone that an SM holds; where parts are granted
};

// How far the launch has come, over all its submissions.
struct LaunchProgress {
  uint32_t tasks_before = 0;  // done when the newest submission was queued
  uint32_t evictions = 0;
  uint32_t first_tickets = 0;  // the same in all submissions that have passed their predecessor
  uint32_t most_blocks = 0;    // of all submissions
  bool done = false;
  bool begun = false;     // a submission has passed its predecessor: the rest is resumed
  bool in_waves = false;  // it found no room on its part of the SMs for all tasks at once
};

// One submission to the driver (a physical launch). An eviction ends it, and another follows.
struct Submission {
  Lane* lane = nullptr;  // where it is queued
  bool fill = false;     // that is a level's, and others are kept out of the gaps there
  uint32_t generation = 0;
  uint64_t issued_ns = 0;
  uint32_t confined_sms = 0;  // SMs of the green context whose stream `lane` is; 0: of none
  Geometry on_sms;            // its geometry there
  uint32_t workers = 0;       // blocks that stay
  // Confined by its blocks:
  bool part = false;           // it is
  SmSet sms;                   // where they may be
  uint32_t first_workers = 0;  // of the first grid: the second's are numbered behind them
  bool grown = false;          // it has a second grid
  bool moved = false;          // its SMs have changed while it ran
  uint64_t evict_word = 0;     // the newest that was put into its control block
};

// The windows of a submission of form kWindows: windows.h has the table of states.
enum class WindowsState : uint8_t { kNone, kFeeding, kAllQueued, kClosed };
struct LaunchWork;
struct SubmissionWindows {
  WindowsState state = WindowsState::kNone;
  WindowPace pace;                   // when the next one follows
  GridWindows rest;                  // what is not queued yet
  const LaunchWork* pred = nullptr;  // the launch before it, kept by the engine; null: it is done

  // Nothing may be put behind it in its stream yet.
  bool open() const { return state == WindowsState::kFeeding || state == WindowsState::kAllQueued; }
};

struct LaunchWork : Work {
  explicit LaunchWork(LaunchRequest asked) : request(std::move(asked)) {}
  ~LaunchWork() override;

  const LaunchRequest request;
  LaunchPlan plan;
  LaunchProgress progress;
  Submission submission;  // the newest
  SubmissionWindows windows;

  // What it holds until it is done.
  std::atomic<uint64_t>* queued_bytes = nullptr;  // the session's, of which the parameters are part
  std::shared_ptr<LocalGrant> local;              // that it waits for; null: none
  // From plan() on, if it is evictable; asked for again when it is first given to the driver.
  uint64_t launch_id = 0;
  class RecordPool* records = nullptr;
  int record = -1;             // -1: none was free; progress is in the control block
  StatePool::Piece state;      // resumable clones
  ControlPool::Block control;  // from its first submission on
};

// What is one call of the driver's, in one of its streams.
struct StreamCall : Work {
  virtual CUresult issue(const gpu::DriverApi& api, CUstream to) const = 0;
  virtual uint64_t bytes() const = 0;  // that it moves or writes
  // Whether they stay within the GPU's memory.
  virtual bool is_within() const { return false; }
};

template <class Copy>
bool is_within_gpu(const Copy& copy) {
  return copy.srcMemoryType != CU_MEMORYTYPE_HOST && copy.dstMemoryType != CU_MEMORYTYPE_HOST;
}

struct CopyWork : StreamCall {
  CUresult issue(const gpu::DriverApi& api, CUstream to) const override;
  uint64_t bytes() const override { return uint64_t{copy.WidthInBytes} * copy.Height; }
  bool is_within() const override { return is_within_gpu(copy); }
  CUDA_MEMCPY2D copy{};  // both ends checked; height 1 for a plain copy
};

// A copy from or to arrays, which it holds until it is done.
struct BoxWork : StreamCall {
  ~BoxWork() override;
  CUresult issue(const gpu::DriverApi& api, CUstream to) const override;
  uint64_t bytes() const override { return uint64_t{copy.WidthInBytes} * copy.Height * copy.Depth; }
  bool is_within() const override { return is_within_gpu(copy); }
  CUDA_MEMCPY3D copy{};                                // both ends checked
  std::array<std::shared_ptr<ArrayObject>, 2> arrays;  // of its ends; null: memory
};

struct MemsetWork : StreamCall {
  CUresult issue(const gpu::DriverApi& api, CUstream to) const override;
  uint64_t bytes() const override { return args.width * args.element_bytes * args.height; }
  bool is_within() const override { return true; }
  sluice_memset args{};
};

struct RecordWork : Work {
  std::shared_ptr<EventObject> event;
};

struct ValueWork : StreamCall {
  CUresult issue(const gpu::DriverApi& api, CUstream to) const override;
  uint64_t bytes() const override { return 0; }
  CUdeviceptr address = 0;
  uint64_t value = 0;
  unsigned value_bytes = 4;  // or 8
  unsigned flags = 0;
  bool is_wait = false;
};

}  // namespace sluice::worker
