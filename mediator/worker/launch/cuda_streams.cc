// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/cuda_streams.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "mediator/base/check.h"

namespace sluice::worker {

namespace {
LaunchWork& launch_of(Work& work) { return static_cast<LaunchWork&>(work); }
const LaunchWork& launch_of(const Work& work) { return static_cast<const LaunchWork&>(work); }
}  // namespace

LaunchWork::~LaunchWork() {
  if (control.pool) control.pool->give_back(control);
  if (state.pool) state.pool->give_back(state);
  if (record >= 0) records->give_back(record);
  if (queued_bytes) *queued_bytes -= request.params.size();
}

CudaStreams::CudaStreams(const gpu::DriverApi& api, bool proxy, LoopSettings settings,
                         const sluice_signal_page* signal, sluice_launch_records* records,
                         Callbacks callbacks)
    : services_{api, proxy, settings, signal, RecordPool(records)},
      callbacks_(std::move(callbacks)),
      lanes_(api),
      launcher_(services_, lanes_),
      markers_(api),
      filler_(api) {}

void CudaStreams::add(StreamId id, std::shared_ptr<StreamObject> stream) {
  streams_[id] = std::move(stream);
}

void CudaStreams::drained(StreamId id) {
  auto it = streams_.find(id);
  SLUICE_CHECK(it != streams_.end());
  StreamObject& s = *it->second;
  lanes_.destroy(s);
  if (s.context->pools.greens) s.context->pools.greens->remove(id);
  if (s.left != 0 && s.context->pools.lefts) {
    s.context->pools.lefts->give_back(s.left, s.barred);
    s.left = 0;
  }
  streams_.erase(it);
}

// ---- launches ----------------------------------------------------------------------------------

Confinement CudaStreams::confine(StreamId stream, OpKind kind, Work& work, const Grant& grant,
                                 uint64_t now_ns) {
  if (kind == OpKind::kBulk) return Confinement::kNone;
  return launcher_.confinement.choose(at(stream), kind, launch_of(work), grant, now_ns);
}

bool CudaStreams::wait_for_hardware(StreamId stream, const Grant& grant, uint64_t now_ns) {
  return launcher_.confinement.worth_waiting(at(stream), grant, now_ns);
}

CUresult CudaStreams::launch(StreamId stream, Work& work, const Grant& grant, const Work* pred,
                             bool again, uint64_t now_ns) {
  StreamObject& s = at(stream);
  LaunchWork& w = launch_of(work);
  return submitted(s, w, launcher_.launch(s, w, grant, pred, again, now_ns));
}

// A launch has been queued, or not.
CUresult CudaStreams::submitted(StreamObject& s, const LaunchWork& w, CUresult status) {
  const Lane& lane = *w.submission.lane;
  if (status != CUDA_SUCCESS || lane.green) return status;
  if (lane.priority < s.priority && w.submission.fill) {
    filler_.launched_above(*s.context, lane.priority);
    return status;
  }
  filler_.launched_below(*s.context);
  if (w.submission.fill) filler_.prepare(*s.context);
  return status;
}

bool CudaStreams::comes_in_pieces(const Work& work) const {
  return launch_of(work).plan.form == FormKind::kWindows;
}

CUresult CudaStreams::more(StreamId stream, Work& work, bool stop, uint64_t now_ns, bool* whole) {
  LaunchWork& w = launch_of(work);
  *whole = true;
  if (!w.windows.open()) return CUDA_SUCCESS;
  if (CUresult r = make_current(services_.api, at(stream).context->cu); r != CUDA_SUCCESS) return r;
  return launcher_.windows.advance(w, stop, now_ns, whole);
}

CUresult CudaStreams::narrow(std::span<const Running> running, const SmSet& lost, bool* left) {
  std::vector<BlockConfinement::Running> launches;
  launches.reserve(running.size());
  for (const Running& l : running) launches.push_back({&at(l.stream), &launch_of(*l.work)});
  return launcher_.blocks.narrow(launches, lost, left);
}

CUresult CudaStreams::grow(StreamId stream, Work& work, const Grant& grant, uint64_t now_ns) {
  return launcher_.grow(at(stream), launch_of(work), grant, now_ns);
}

LaunchEnd CudaStreams::launch_end(Work& work) { return launcher_.end(launch_of(work)); }

bool CudaStreams::stays_on_sms(const Work& work) const {
  return launcher_.planner.stays_on_sms(launch_of(work));
}
uint64_t CudaStreams::expected_ns(const Work& work) const {
  return launch_of(work).plan.expected_ns;
}
uint64_t CudaStreams::issued_ns(const Work& work) const {
  return launch_of(work).submission.issued_ns;
}
// The first of a chain's began when it was issued, or when what was before it in the stream had
// ended. How they share the time until now is known only from what is expected of them now (what
// was when they were planned may differ for the same kernel); those of which nothing is have as
// much as the others have on average.
void CudaStreams::opaque_ended(StreamId stream, std::span<Work* const> works, bool contended,
                               uint64_t now_ns) {
  LaunchPlanner& planner = launcher_.planner;
  if (!planner.learns_originals()) return;
  StreamObject& s = at(stream);
  const uint64_t before_ns = std::exchange(s.ended_ns, now_ns);
  ended_parts_.clear();
  double sum = 0, known = 0;
  for (Work* work : works) {
    const auto ns = static_cast<double>(planner.original_ns(launch_of(*work)));
    ended_parts_.push_back(ns);
    sum += ns;
    known += ns != 0;
  }
  const double mean = known == 0 ? 1 : sum / known;
  for (double& part : ended_parts_)
    if (part == 0) part = mean;
  const double parts = std::reduce(ended_parts_.begin(), ended_parts_.end());
  uint64_t from_ns = std::min(now_ns, std::max(issued_ns(*works.front()), before_ns));
  const double pace = static_cast<double>(now_ns - from_ns) / parts;
  for (size_t i = 0; i < works.size(); ++i) {
    const auto took_ns = static_cast<uint64_t>(pace * ended_parts_[i]);
    planner.original_ended(launch_of(*works[i]), contended, from_ns, took_ns);
    from_ns += took_ns;
  }
}

// ---- everything else ---------------------------------------------------------------------------

CUresult CudaStreams::issue(StreamId stream, OpKind kind, Work& work, uint64_t now_ns) {
  StreamObject& s = at(stream);
  if (CUresult r = make_current(services_.api, s.context->cu); r != CUDA_SUCCESS) return r;
  switch (kind) {
    case OpKind::kOpaque:
      return submitted(s, launch_of(work), launcher_.launch_whole(s, launch_of(work), now_ns));
    case OpKind::kRecord: {
      EventObject& e = *static_cast<RecordWork&>(work).event;
      // Where it only orders, the engine's own marker behind it is all that is needed.
      return e.flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS
                                               : services_.api.cuEventRecord(e.cu, s.tail->cu);
    }
    case OpKind::kValueWait: {
      if (CUresult r = lanes_.move_to(s, s); r != CUDA_SUCCESS) return r;
      return static_cast<ValueWork&>(work).issue(services_.api, s.cu);
    }
    case OpKind::kWork:
    case OpKind::kBulk: {
      const auto& call = static_cast<const StreamCall&>(work);
      Lane& lane = lane_for(s, call);
      if (CUresult r = lanes_.move_to(s, lane); r != CUDA_SUCCESS) return r;
      return call.issue(services_.api, lane.cu);
    }
    default:
      SLUICE_CHECK(!"an operation that the driver never sees");
  }
  return CUDA_ERROR_UNKNOWN;
}

// Small work stays in the tail: another lane costs more than it takes. What takes longer is not to
// run at a level above the stream's own, which nobody granted.
Lane& CudaStreams::lane_for(StreamObject& s, const StreamCall& work) {
  constexpr uint64_t kSmallBytes = 64 << 10;
  return work.bytes() <= kSmallBytes && !s.tail->green ? *s.tail : s;
}

CUresult CudaStreams::mark(StreamId stream, uint64_t* marker) {
  const StreamObject& s = at(stream);
  return markers_.mark(*s.context, s.tail->cu, marker);
}

bool CudaStreams::write_end_word(StreamId stream, uint64_t address, uint32_t value) {
  const StreamObject& s = at(stream);
  if (!end_words_ || make_current(services_.api, s.context->cu) != CUDA_SUCCESS) return false;
  // Not every driver's streams write words under MPS. The program then waits for the answer.
  end_words_ = services_.api.cuStreamWriteValue32(s.tail->cu, address, value, 0) == CUDA_SUCCESS;
  return end_words_;
}

CUresult CudaStreams::idle(StreamId stream) {
  StreamObject& s = at(stream);
  if (CUresult r = make_current(services_.api, s.context->cu); r != CUDA_SUCCESS) return r;
  return lanes_.idle(s);
}

}  // namespace sluice::worker
