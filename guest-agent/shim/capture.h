// Stream capture and graphs, in the guest alone. What a program queues in a capturing stream is kept as a
// node: a function that queues the same in whatever stream it is given. A graph's nodes stand in the order
// in which they were captured, which is an order that their dependencies allow; launching a graph queues
// them in this order into the launch's stream. So what CUDA may run at one time runs one after another,
// and everything else is as CUDA has it: parameters as they were at the capture, memory as it is when the
// node runs. Rules of capture: NVIDIA, CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture".
//
// Any thread; state is the process's, under one lock that is never held while a node runs. With no capture
// under way every hook costs one load.
#pragma once

#include <functional>
#include <optional>

#include "abi/cuda_driver.h"

namespace sluice::guest {

enum class NodeKind { kKernel, kCopy, kFill, kHostFunc, kValue };
using NodeRun = std::function<CUresult(CUstream)>;

// Whether any capture is under way.
bool capturing();
// For each call that queues something in `stream`. Nothing: do it. A result: return it; the node was kept,
// or refused. `run` must not look at the program's memory that the call's arguments point to.
std::optional<CUresult> capture_node(CUstream stream, NodeKind kind, NodeRun run);
std::optional<CUresult> capture_record(CUstream stream, CUevent event, unsigned flags);
std::optional<CUresult> capture_wait(CUstream stream, CUevent event, unsigned flags);
// For calls that wait for, or ask about, work that is only being captured, and for what cannot be a node:
// refused, and the capture is spoilt. CUDA_SUCCESS: go on.
CUresult refuse_in_capture(CUstream stream);
CUresult refuse_for_event(CUevent event);
CUresult refuse_for_context(uint64_t context);
// The calling thread's current context is this one for a while.
class InContext {
 public:
  explicit InContext(uint64_t context) : status(cuCtxPushCurrent(reinterpret_cast<CUcontext>(context))) {}
  ~InContext() {
    CUcontext popped = nullptr;
    if (status == CUDA_SUCCESS) (void)cuCtxPopCurrent(&popped);
  }
  InContext(const InContext&) = delete;
  const CUresult status;
};

// A stream, or a context with all of its streams, is destroyed: captures that began there are over, and what
// they kept is gone.
void end_captures_of_stream(CUstream stream);
void end_captures_of_context(uint64_t context);

CUstreamCaptureStatus capture_status(CUstream stream, cuuint64_t* id);

}  // namespace sluice::guest
