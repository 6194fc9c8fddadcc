// SPDX-License-Identifier: Apache-2.0
// Stream capture: what a program queues in a capturing stream becomes nodes of a graph (graph.h),
// which depend on what the stream had behind it. Rules of capture: NVIDIA, CUDA C++ Programming
// Guide, "Creating a Graph Using Stream Capture".
//
// Any thread; captures are under the graphs' lock. With none under way every hook costs one load.
#pragma once

#include <optional>

#include "guest-agent/graphs/works.h"

namespace sluice::graphs {

// Whether any capture is under way.
bool capturing();

// For each call that queues something in `stream`. Nothing: do it. A result: return it; the node
// was kept, or refused. `make()` gives the work (null: the call is refused, the capture goes on);
// it is called without the lock, and only if the stream captures. The work must not look at the
// program's memory that the call's arguments point to.
std::optional<CUresult> capture_status_for_work(CUstream stream);  // SUCCESS: it captures
std::optional<CUresult> capture_work(CUstream stream, const WorkPtr& work);
template <class Make>
std::optional<CUresult> capture_node(CUstream stream, Make&& make) {
  if (!capturing()) return std::nullopt;
  const auto captures = capture_status_for_work(stream);
  if (!captures || *captures != CUDA_SUCCESS) return captures;
  return capture_work(stream, make());
}
std::optional<CUresult> capture_record(CUstream stream, CUevent event, unsigned flags);
std::optional<CUresult> capture_wait(CUstream stream, CUevent event, unsigned flags);
// For calls that wait for, or ask about, work that is only being captured, and for what cannot be a
// node: refused, and the capture is invalidated. CUDA_SUCCESS: go on.
CUresult refuse_in_capture(CUstream stream);
CUresult refuse_for_event(CUevent event);
CUresult refuse_for_context(uint64_t context);
// For calls that CUDA calls unsafe while anything is captured, whatever they are about: refused,
// and the capture is invalidated, as far as the capture's mode and this thread's
// (cuThreadExchangeStreamCaptureMode) forbid them.
CUresult refuse_unsafe();
CUstreamCaptureMode& thread_capture_mode();
// Calls of our own within one of the program's: this thread may.
class RelaxedHere {
 public:
  RelaxedHere() : before_(thread_capture_mode()) {
    thread_capture_mode() = CU_STREAM_CAPTURE_MODE_RELAXED;
  }
  ~RelaxedHere() { thread_capture_mode() = before_; }
  RelaxedHere(const RelaxedHere&) = delete;
  RelaxedHere& operator=(const RelaxedHere&) = delete;

 private:
  const CUstreamCaptureMode before_;
};

// A stream, or a context with all of its streams, is destroyed: captures that began there are over,
// and what they kept is gone.
void end_captures_of_stream(CUstream stream);
void end_captures_of_context(uint64_t context);

CUstreamCaptureStatus capture_status(CUstream stream, cuuint64_t* id);

}  // namespace sluice::graphs
