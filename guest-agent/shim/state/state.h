// SPDX-License-Identifier: Apache-2.0
// What the guest knows by itself, so that asking costs no message: current contexts, live objects,
// function layouts, device limits, and what every address is.
//
// Process-wide, made on first use, never destroyed (see worker_link.h). Any thread. The worker has
// the truth about handles and addresses; this is for CUDA's immediate errors and for local answers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "abi/cuda_driver.h"
#include "abi/cuda_memory.h"
#include "abi/cuda_texture.h"
#include "abi/wire.h"
#include "guest-agent/shim/session/worker_link.h"

namespace sluice::guest {

inline constexpr int kMaxDevices = 16;  // a vGPU shows one today

template <class Handle>
uint64_t wire(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

// Objects by wire handle. A handle's low half is an index that the worker reuses with a new
// generation, so a slot per index, looked up without a lock; slots are never freed, and a stale
// handle does not match.
template <class T>
class HandleTable {
 public:
  // The object of a live handle, else null. The object may end meanwhile if the program races with
  // itself; its memory stays valid.
  T* find(uint64_t handle) const {
    const uint32_t index = SLUICE_HANDLE_INDEX(handle);
    if (handle == 0 || index >= kPages * kPerPage) return nullptr;
    Slot* page = pages_[index / kPerPage].load(std::memory_order_acquire);
    if (page == nullptr) return nullptr;
    Slot& slot = page[index % kPerPage];
    return slot.handle.load(std::memory_order_acquire) == handle ? &slot.object : nullptr;
  }
  // Fills the slot in place before it is visible; false: the index is beyond what we keep.
  template <class Fill>
  bool add(uint64_t handle, Fill&& fill) {
    const uint32_t index = SLUICE_HANDLE_INDEX(handle);
    if (handle == 0 || index >= kPages * kPerPage) return false;
    std::lock_guard lock(mutex_);
    Slot* page = pages_[index / kPerPage].load(std::memory_order_relaxed);
    if (page == nullptr) {
      page = new Slot[kPerPage];
      pages_[index / kPerPage].store(page, std::memory_order_release);
    }
    Slot& slot = page[index % kPerPage];
    fill(slot.object);
    slot.handle.store(handle, std::memory_order_release);
    return true;
  }
  // Calls use(handle, object) for each that is live.
  template <class Use>
  void for_each(Use&& use) {
    for (auto& one : pages_) {
      Slot* page = one.load(std::memory_order_acquire);
      for (uint32_t k = 0; page != nullptr && k < kPerPage; ++k)
        if (const uint64_t handle = page[k].handle.load(std::memory_order_acquire); handle != 0)
          use(handle, page[k].object);
    }
  }
  // False: it was not there (any more). Of two racing removals one succeeds.
  bool remove(uint64_t handle) {
    const uint32_t index = SLUICE_HANDLE_INDEX(handle);
    if (handle == 0 || index >= kPages * kPerPage) return false;
    Slot* page = pages_[index / kPerPage].load(std::memory_order_acquire);
    if (page == nullptr) return false;
    uint64_t expected = handle;
    return page[index % kPerPage].handle.compare_exchange_strong(expected, 0);
  }

 private:
  static constexpr uint32_t kPerPage = 128, kPages = 4096;  // half a million objects of a kind
  struct Slot {
    std::atomic<uint64_t> handle{0};
    T object{};
  };
  std::array<std::atomic<Slot*>, kPages> pages_{};
  std::mutex mutex_;
};

struct StreamInfo {
  uint64_t context = 0;
  unsigned flags = 0;
  uint64_t green = 0;  // a green context, which may be gone; 0: it is of none
};
// A green context of the program's. Its handle is that of the context it is made current by, too.
struct GreenInfo {
  uint64_t context = 0;
  CUdevice device = 0;
  sluice_sms sms{};
};
struct EventInfo {
  uint64_t context = 0;
  unsigned flags = 0;
  KnownIdle::Mark mark;  // of its last record; the link's to read and write
};

// A kernel of a loaded module: how to pack its parameters, and its attributes.
// Whether a kernel's clones have to be made before it is launched (modules/clones.h).
//   kAbsent   the module was loaded without clones, and nobody asked for them
//   kAsked    a launch waits for them
//   kLate     they are still not there, and launches no longer wait
//   kSettled  the worker has them, or the kernel has none
enum class ClonesState : uint8_t { kAbsent, kAsked, kLate, kSettled };

// A launch in clusters, as far as whether the GPU takes it hangs on it.
struct ClusterLaunch {
  uint32_t cluster[3]{}, block[3]{};
  uint32_t shared_bytes = 0;
  bool whole = true;  // the grid is a multiple of the cluster
  bool operator==(const ClusterLaunch&) const = default;
};

// How many blocks of a shape the GPU holds at once.
struct HeldShape {
  uint32_t threads, shared_bytes;
  uint64_t blocks;
};
// A kernel that is launched in more shapes gets its clones: each costs a question to the driver.
inline constexpr size_t kMostHeldShapes = 8;

struct FunctionInfo {
  uint64_t handle = 0;
  uint64_t module = 0;
  uint64_t context = 0;
  std::string name;
  std::atomic<ClonesState> clones{ClonesState::kSettled};
  // The worker has the first form of its clones; the others are made once it wants them.
  std::atomic<bool> others_later{false};
  // Launches whose blocks the GPU holds at once need no clones: they are the original, which ends
  // no later than the tasks that a clone would finish before it leaves.
  bool at_once = false;
  std::array<uint32_t, 3> required_block{};  // .reqntid; zeros: none
  uint32_t param_bytes = 0;
  std::vector<std::pair<uint32_t, uint32_t>> params;  // offset, bytes
  std::array<std::atomic<int>, 16> attributes{};      // CUfunction_attribute; INT32_MIN: not known
  std::mutex mutex;
  std::vector<HeldShape> held;         // of launches without clones, as many as kMostHeldShapes;
                                       // under `mutex`
  std::optional<ClusterLaunch> taken;  // the last that the driver said it takes; under `mutex`
};

struct ArrayInfo {
  uint64_t context = 0;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  uint64_t texel_bytes = 1;
  uint64_t mipmap = 0;  // of which it is a level; 0: none
};
struct MipmapInfo {
  uint64_t context = 0;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  unsigned levels = 1;
  std::vector<uint64_t> known;  // the levels' handles, under `mutex`
  std::mutex mutex;
};

struct ContextInfo {
  CUdevice device = 0;
  bool primary = false;
  unsigned attached = 0;  // by cuCtxAttach
  uint64_t resets = 0;    // of a primary context: what was in it has gone as often
};

// What lies at an address.
enum class MemoryKind { kDevice, kPinned, kRegistered, kManaged };
inline bool is_in_window(MemoryKind kind) {  // shared memory, at one address on both sides
  return kind == MemoryKind::kPinned || kind == MemoryKind::kManaged;
}
struct Range {
  uint64_t base = 0, bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t context = 0;
  unsigned flags = 0;           // of cuMemHostAlloc or cuMemHostRegister
  CUmemoryPool pool = nullptr;  // that it was allocated from; a name, never followed
  bool static_global = false;   // a module's variable: known, but nothing to free
  bool mapped = false;          // of cuMemMap: of no context, and as one with those side by side
  unsigned imports = 0;         // of another program: how often it was opened
  int access = 0;               // of mapped ones: CUmemAccess_flags, 0 until cuMemSetAccess
  uint64_t id = 0;              // CU_POINTER_ATTRIBUTE_BUFFER_ID
};
// Whether other programs may have it (cuIpcGetMemHandle).
inline bool may_be_exported(const Range& range) {
  return range.kind == MemoryKind::kDevice && range.pool == nullptr && !range.static_global &&
         !range.mapped;
}

class PointerMap {
 public:
  void add(Range range);
  bool remove(uint64_t base);  // only the base address counts
  std::optional<Range> find(uint64_t address) const;
  // The range that holds all of [address, address + bytes), or the first of mapped ones that do
  // together; else nothing.
  std::optional<Range> find(uint64_t address, uint64_t bytes) const;
  // Whether anything lies in [address, address + bytes); bytes beyond the last address do not
  // count.
  bool overlaps(uint64_t address, uint64_t bytes) const;
  std::optional<Range> take(uint64_t base, MemoryKind kind);
  std::vector<Range> remove_context(uint64_t context);  // those that were in it
  // Takes out the mapped ranges that lie in [base, base + bytes).
  std::vector<Range> take_mapped(uint64_t base, uint64_t bytes);
  // For the mapped ranges that lie in [base, base + bytes).
  void set_access(uint64_t base, uint64_t bytes, int access);
  // False: part of [address, address + bytes) is mapped, and may not be read (or written). What
  // else lies there is for find() to say.
  bool may_touch(uint64_t address, uint64_t bytes, bool write) const;
  // Addresses that are the GPU's, whether or not anything is mapped there.
  void add_reserved(uint64_t base, uint64_t bytes);
  uint64_t take_reserved(uint64_t base);  // its bytes; 0: none begins there
  bool is_reserved(uint64_t address) const;
  // Offset in the window and bytes of all pinned memory.
  std::vector<std::pair<uint64_t, uint64_t>> pinned() const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
  std::map<uint64_t, uint64_t> reserved_;
  uint64_t next_id_ = 1;
};

struct State {
  HandleTable<StreamInfo> streams;
  HandleTable<EventInfo> events;
  HandleTable<GreenInfo> greens;
  HandleTable<FunctionInfo> functions;
  HandleTable<ArrayInfo> arrays;
  HandleTable<MipmapInfo> mipmaps;
  PointerMap pointers;

  std::mutex contexts_mutex;
  std::unordered_map<uint64_t, ContextInfo> contexts;
  struct Primary {
    uint64_t handle = 0;
    unsigned users = 0;
  };
  std::array<Primary, kMaxDevices> primaries;  // under contexts_mutex

  // Of a green context: the one it is a part of.
  std::optional<ContextInfo> context(uint64_t handle) {
    if (const GreenInfo* green = greens.find(handle)) handle = green->context;
    std::lock_guard lock(contexts_mutex);
    const auto it = contexts.find(handle);
    if (it == contexts.end()) return std::nullopt;
    return it->second;
  }
};
State& state();

// The calling thread's stack of contexts; the last is current. Plain memory, so that calls from a
// dying thread's last destructors still find it.
struct ContextStack {
  static constexpr uint32_t kDepth = 128;  // pushes beyond fail with OUT_OF_MEMORY
  GreenScope items[kDepth];
  uint32_t depth;
};
ContextStack& context_stack();
inline uint64_t current_context() { return green_scope().context; }
// The context or green context that is current, which may be gone; 0: none.
inline uint64_t current_handle() {
  const ContextStack& stack = context_stack();
  return stack.depth == 0 ? 0 : stack.items[stack.depth - 1].green;
}
// 0: none, or a context is.
inline uint64_t current_green() {
  const uint64_t handle = current_handle();
  return handle == current_context() ? 0 : handle;
}
// The green context that the stream is of, in the current one.
uint64_t green_of(CUstream stream);
// How many SMs launches in a stream of that green context have; 0: in one of none.
CUresult sms_of(WorkerLink& link, uint64_t green, int* sms);

// Entering a driver call: the session, and the current context.
struct Entered {
  WorkerLink* link = nullptr;
  uint64_t context = 0;
  CUresult status = CUDA_SUCCESS;
  explicit operator bool() const { return status == CUDA_SUCCESS; }
};
Entered enter();          // initialised and alive
Entered enter_context();  // and there is a current context

// A device attribute, asked for once. Some are always ours: what this library does not offer.
// Whether the vGPU shows such a device.
bool is_device(WorkerLink& link, CUdevice device);
CUresult device_attribute(WorkerLink& link, CUdevice device, CUdevice_attribute attribute,
                          int* value);
// The device of the current context, 0 if there is none.
CUdevice current_device();

}  // namespace sluice::guest
