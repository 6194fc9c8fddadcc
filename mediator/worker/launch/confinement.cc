// SPDX-License-Identifier: Apache-2.0
// Launches that the hardware keeps to the SMs of their grant, in streams of green contexts; the
// rest of the driver is in launch/cuda_streams.cc.
//
// A guest's stream goes on in one stream of the driver's after the other: its own, for copies,
// fills and waits, and one for each green context that its launches run in. Where the newest of it
// is not where the next of it goes, the latter waits for an event behind the former (go_to());
// launch upon launch under the same set none does.
//
// Such a launch is planned for a GPU of as many SMs as its set has. No block of it comes elsewhere,
// so there is no quota and nothing is barred, and every form will do. Until it has ended it stays
// where it is: another set is an eviction.
#include <algorithm>

#include "mediator/worker/launch/cuda_streams.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

// The stream in which s goes on under grants of a level from 1 on; null: the driver refuses one.
Lane* CudaStreams::lane_at(StreamObject& s, uint32_t level) {
  std::unique_ptr<Lane>& there = s.above[std::min(level, SLUICE_GRANT_LEVELS - 1u) - 1];
  if (there) return there.get();
  if (make_current(api_, s.context->cu) != CUDA_SUCCESS) return nullptr;
  auto lane = std::make_unique<Lane>();
  lane->priority = s.priority - static_cast<int>(level) * kTurnLevels;
  CUresult r = api_.cuStreamCreateWithPriority(&lane->cu, CU_STREAM_NON_BLOCKING, lane->priority);
  if (r == CUDA_SUCCESS && !s.passed_on)
    r = api_.cuEventCreate(&s.passed_on, CU_EVENT_DISABLE_TIMING);
  if (r != CUDA_SUCCESS) {
    destroy(*lane);
    return nullptr;
  }
  there = std::move(lane);
  return there.get();
}

CUresult CudaStreams::go_to(StreamObject& s, Lane& lane) {
  if (s.tail == &lane) return CUDA_SUCCESS;
  if (CUresult r = api_.cuEventRecord(s.passed_on, s.tail->cu); r != CUDA_SUCCESS) return r;
  if (CUresult r = api_.cuStreamWaitEvent(lane.cu, s.passed_on, 0); r != CUDA_SUCCESS) return r;
  s.tail = &lane;
  return CUDA_SUCCESS;
}

Confinement CudaStreams::confine(StreamId stream, OpKind kind, Work& work, const Grant& grant,
                                 uint64_t now_ns) {
  auto& w = static_cast<LaunchWork&>(work);
  StreamObject& s = *streams_.at(stream);
  w.submission.lane = &s;
  w.submission.confined_sms = 0;
  // The level of visits is for short launches: a long one that nobody can evict would keep it.
  const bool keeps_level = kind == OpKind::kOpaque && w.plan.expected_ns > kVisitNs;
  const uint32_t level = keeps_level ? std::min(grant.level, 1u) : grant.level;
  if (level != 0)
    if (Lane* lane = lane_at(s, level)) w.submission.lane = lane;
  if (grant.part) {
    ++green.parts;
    const SmSet sms = grant.sms & SmSet(0, static_cast<uint32_t>(s.context->multiprocessors));
    const uint32_t count = sms.count();
    GreenContext* g = green_context(s, sms, now_ns);
    if (Lane* lane = g ? s.context->greens->lane(*g, s) : nullptr;
        lane && (kind == OpKind::kLaunch ? fit_to(w, count) : may_confine_original(w, count))) {
      w.submission.lane = lane;
      w.submission.confined_sms = count;
      ++green.launches;
      return Confinement::kHardware;
    }
  }
  // In the prologue form a block's task is its own number: one that returns because its
  // SM is another vGPU's would take the task with it. A resumable clone's blocks draw theirs when
  // they have come to an SM that is theirs. One that has begun in another form in a green context
  // goes on in that.
  const bool by_blocks =
      kind == OpKind::kLaunch && !w.plan.one_task && w.plan.form == FormKind::kLoop;
  return by_blocks ? Confinement::kBlocks : Confinement::kNone;
}

// Where the set's is not there yet, it is made meanwhile. Launches that went without would be kept
// to SMs by numbers that say nothing of whose they are (docs/decisions/0008-green-contexts.md), and
// what of them finds no room beside others' launches cannot leave either.
bool CudaStreams::wait_for_hardware(StreamId stream, const Grant& grant, uint64_t now_ns) {
  StreamObject& s = *streams_.at(stream);
  const SmSet sms = grant.sms & SmSet(0, static_cast<uint32_t>(s.context->multiprocessors));
  return s.context->greens && !green_context(s, sms, now_ns) &&
         s.context->greens->worth_waiting(sms, now_ns);
}

GreenContext* CudaStreams::green_context(StreamObject& s, const SmSet& sms, uint64_t now_ns) {
  ContextObject& c = *s.context;
  if (!c.greens || make_current(api_, c.cu) != CUDA_SUCCESS) return nullptr;
  GreenContext* g = c.greens->find(sms, now_ns);
  if (!g && c.greens->due(now_ns)) make_green(s.context);
  return g;
}

// Plans the next physical launch for so many SMs. False: it needs more.
bool CudaStreams::fit_to(LaunchWork& w, uint32_t sms) {
  FunctionObject& f = *w.request.function;
  const uint32_t proxy = proxies_of(w);
  if (w.plan.per_sm * sms <= proxy) return false;
  if (f.form.once || f.form.resumable) {
    w.submission.on_sms = w.plan.geometry;
    w.submission.workers = std::min(w.plan.tasks, w.plan.per_sm * sms);
    return true;
  }
  uint32_t chunk = w.plan.geometry.chunk;
  // Its form is that of its first physical launch.
  if (w.control.address == 0) {
    w.plan.variant = variant_of(f, w.request.block[0] * w.request.block[1] * w.request.block[2],
                                w.request.dynamic_shared);
    LaunchVariant& v = f.variants[w.plan.variant];
    chunk = v.chunks.chunk();
    w.plan.form = FormKind::kLoop;
    // Also while others wait for the GPU: sets change seldom, and no window is wasted then.
    const bool whole_at_once = w.plan.tasks <= w.plan.per_sm * sms;
    const WindowPlan windows = whole_at_once ? WindowPlan{} : take_form(w, v, sms, true);
    w.submission.on_sms = form_geometry(w, v, sms);
    if (w.plan.form == FormKind::kOneTask && !w.submission.on_sms.evictable) {
      w.plan.form = FormKind::kLoop;
      w.submission.on_sms = form_geometry(w, v, sms);
    }
    if (w.plan.form == FormKind::kWindows) take_windows(w, v, windows, sms, true);
  }
  if (w.plan.form != FormKind::kLoop) return true;
  const uint32_t resident = w.plan.per_sm * sms;
  w.submission.on_sms = plan_launch(w.plan.tasks, resident, chunk, proxy_, settings_, f.form);
  if (!w.submission.on_sms.evictable) {  // it is whole there at once
    w.submission.on_sms.evictable = true;
    w.submission.on_sms.chunk = settings_.fixed_chunk != 0 ? settings_.fixed_chunk : 1;
    const uint32_t chunks =
        (w.plan.tasks + w.submission.on_sms.chunk - 1) / w.submission.on_sms.chunk;
    w.submission.on_sms.blocks = std::min(resident - proxy, chunks) + proxy;
  }
  return true;
}

// Blocks of an original that the GPU holds at once may wait for each other, though nothing says
// that they do; where its part does not hold them, some of them would never come. Those of a larger
// grid cannot, but for earlier ones. Clusters need SMs that lie together, which groups of the
// smallest size do not promise.
bool CudaStreams::may_confine_original(LaunchWork& w, uint32_t sms) {
  if (SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 0) != 0) return false;
  FunctionObject& f = *w.request.function;
  const uint32_t threads = w.request.block[0] * w.request.block[1] * w.request.block[2];
  if (f.fits == 0 || f.fits_threads != threads || f.fits_shared != w.request.dynamic_shared) {
    int blocks = 0;
    if (api_.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, f.original, static_cast<int>(threads), w.request.dynamic_shared) !=
            CUDA_SUCCESS ||
        blocks <= 0)
      return false;
    f.fits = static_cast<uint32_t>(blocks);
    f.fits_threads = threads;
    f.fits_shared = w.request.dynamic_shared;
  }
  const uint64_t tasks = uint64_t{w.request.grid[0]} * w.request.grid[1] * w.request.grid[2];
  if (tasks <= uint64_t{f.fits} * sms) return true;
  return !(w.request.flags & SLUICE_LAUNCHED_COOPERATIVE) &&
         tasks > uint64_t{f.fits} * static_cast<uint32_t>(f.module->context->multiprocessors);
}

}  // namespace sluice::worker
