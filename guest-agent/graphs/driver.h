// SPDX-License-Identifier: Apache-2.0
// What CUDA graphs need of the driver below them: the calling thread's state, checks, and ways to
// queue work that no stream capture sees. Everything else they do by the public driver API.
//
// The user of this library defines driver(); the guest's libcuda.so.1 does so in
// guest-agent/shim/calls/graph_driver.cc. Any thread, also several at once. Nothing here is called
// with a lock of this library held, except where a function says so. Errors are CUDA's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/cuda_driver.h"
#include "abi/cuda_graph.h"
#include "abi/cuda_texture.h"

namespace sluice::graphs {

template <class Handle>
uint64_t number(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

// The calling thread, at the start of a call.
struct Caller {
  bool initialised = false;        // cuInit has succeeded, whatever became of the driver since
  CUresult status = CUDA_SUCCESS;  // what the call returns unless it is CUDA_SUCCESS
  uint64_t context = 0;            // the current context, 0: none
  explicit operator bool() const { return status == CUDA_SUCCESS; }
};

// A stream that the program names. The legacy stream is live, blocking and of no context.
struct StreamFacts {
  CUstream stream = nullptr;  // what it stands for: a thread's own stream has a name of its own
  bool live = false;
  bool blocking = true;
  uint64_t context = 0;
};

// A launch that runs later, and as often as wanted: checked and packed when it is made.
struct KernelLaunch {
  CUfunction function = nullptr;  // or a CUkernel
  uint32_t grid[3] = {}, block[3] = {}, shared_bytes = 0;
  uint64_t flags = 0;    // the driver's own, of the attributes
  uint64_t context = 0;  // where it runs, whichever is current then
  std::vector<std::byte> params;
  std::vector<CUlaunchAttribute> attributes;  // as the program gave them
};

class Driver {
 public:
  virtual ~Driver() = default;

  // ---- state; may be called with this library's locks held ----
  virtual Caller caller() = 0;
  virtual bool has_device(CUdevice device) = 0;
  virtual bool has_context(uint64_t context) = 0;
  virtual bool has_event(CUevent event) = 0;
  virtual StreamFacts stream(CUstream stream) = 0;
  // Whether what a launch names is a CUkernel, and not a CUfunction.
  virtual bool is_kernel(CUfunction function) = 0;
  // Reports that something is not offered; returns CUDA_ERROR_NOT_SUPPORTED.
  virtual CUresult refuse(const char* function, const char* what) = 0;

  // ---- memory ----
  // Device memory in the current context, although a stream captures; release() in `context`.
  virtual CUresult allocate(size_t bytes, CUdeviceptr* address) = 0;
  virtual void release(uint64_t context, CUdeviceptr address) = 0;
  virtual bool is_memory(CUdeviceptr address, size_t bytes) = 0;
  virtual bool is_fill(
      const CUDA_MEMSET_NODE_PARAMS& fill) = 0;  // in the program's memory, aligned
  // A copy is checked when its node is made and again when it runs. Pageable memory is read when
  // the stream has come there, not when the copy is queued.
  virtual CUresult check_box(const CUDA_MEMCPY3D& box) = 0;
  virtual CUresult run_box(const CUDA_MEMCPY3D& box, CUstream stream) = 0;
  // Waits for the stream, then reads.
  virtual CUresult read_word(CUdeviceptr address, CUstream stream, uint32_t* value) = 0;

  // ---- launches ----
  // Fills in the rest of `launch` (its function, sizes and flags are set) from a program's
  // arguments, in the current context; what CUDA refuses at a launch is refused here.
  virtual CUresult pack(KernelLaunch* launch, void** params, void** extra) = 0;
  // Sets `launch->flags` from its attributes.
  virtual CUresult read_attributes(KernelLaunch* launch) = 0;
  virtual CUresult check(const KernelLaunch& launch) = 0;  // the same refusals once more
  // Where each parameter lies in the packed ones, as CUDA's parameter arrays have them. Holds as
  // long as `launch.params` stays where it is.
  virtual std::vector<void*> parameter_pointers(const KernelLaunch& launch) = 0;
  virtual CUresult run(const KernelLaunch& launch, CUstream stream) = 0;  // its context is current

  // ---- order, beside captures ----
  // `stream` waits for what `before` has queued so far; `event` is used for it.
  virtual CUresult order(CUstream before, CUevent event, CUstream stream) = 0;
  // As cuStreamAddCallback. Once it has succeeded, the callback runs whatever becomes of the work.
  virtual CUresult call_back(CUstream stream, CUstreamCallback callback, void* data) = 0;
  virtual void synchronize() = 0;  // waits for all work of the current context
};
Driver& driver();

// Entering a call: CUDA is initialised; and there is a current context.
inline Caller enter() { return driver().caller(); }
inline Caller enter_context() {
  Caller caller = enter();
  if (caller && caller.context == 0) caller.status = CUDA_ERROR_INVALID_CONTEXT;
  return caller;
}
// Puts what a stream's name stands for in its place. False: it is no stream.
inline bool valid_stream(CUstream& stream) {
  const StreamFacts facts = driver().stream(stream);
  if (facts.live) stream = facts.stream;
  return facts.live;
}

}  // namespace sluice::graphs
