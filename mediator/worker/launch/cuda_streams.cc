// SPDX-License-Identifier: Apache-2.0
#include "mediator/worker/launch/cuda_streams.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"

namespace sluice::worker {

namespace {
// No context has this address: makes the next make_current() ask the driver.
CUcontext const kUnknown = reinterpret_cast<CUcontext>(~uintptr_t{0});
thread_local CUcontext t_current = nullptr;
// Contexts that went, or may have. The driver gives a device's primary context the same handle each
// time, and to a thread that had the former one current it is still that one, destroyed: so what a
// thread knows counts only as long as none has gone.
std::atomic<uint64_t> g_gone{0};
thread_local uint64_t t_gone = 0;

bool is_plain(const CUDA_MEMCPY2D& c) { return c.Height == 1; }

// A launch's parameters one by one, so that the driver puts each where the compiled kernel reads
// it. In one buffer they would have to lie as the driver's own buffer does, which is not as PTX
// lays them out: where one is aligned to more than 16 bytes (a tensor map: 64) the first need not
// be at 0. Points into the work.
class ParamPointers {
 public:
  explicit ParamPointers(LaunchWork& w) {
    SLUICE_CHECK(w.request.function->params.size() <= SLUICE_MAX_PARAMS &&
                 w.request.params.size() == w.request.function->param_bytes);
    for (const ParamPlace& place : w.request.function->params)
      add(const_cast<std::byte*>(w.request.params.data()) + place.offset);
  }
  void add(void* at) { pointers_[count_++] = at; }
  void** get() { return count_ == 0 ? nullptr : pointers_; }

 private:
  void* pointers_[SLUICE_MAX_PARAMS + 1];  // a clone's block too
  size_t count_ = 0;
};
}  // namespace

CUresult make_current(const gpu::DriverApi& api, CUcontext context) {
  const uint64_t gone = g_gone.load();
  if (t_current == context && t_gone == gone) return CUDA_SUCCESS;
  CUresult r = api.cuCtxSetCurrent(context);
  t_gone = gone;
  t_current = r == CUDA_SUCCESS ? context : kUnknown;
  return r;
}
void forget_current() { g_gone.fetch_add(1); }

LaunchWork::~LaunchWork() {
  if (control.pool) control.pool->give_back(control);
  if (state.pool) state.pool->give_back(state);
  if (record >= 0) records->give_back(record);
  if (queued_bytes) *queued_bytes -= request.params.size();
}

CudaStreams::CudaStreams(const gpu::DriverApi& api, bool proxy, LoopSettings settings,
                         const sluice_signal_page* signal, sluice_launch_records* records,
                         Callbacks callbacks)
    : api_(api),
      proxy_(proxy),
      settings_(settings),
      signal_(signal),
      records_(records),
      callbacks_(std::move(callbacks)),
      markers_(api) {}

void CudaStreams::add(StreamId id, std::shared_ptr<StreamObject> stream) {
  streams_[id] = std::move(stream);
}

// An error means that the context is gone, and the stream with it.
void CudaStreams::destroy(Lane& lane) {
  for (const CUstream stream : {lane.cu, lane.second})
    if (stream) (void)api_.cuStreamDestroy(stream);
  for (const CUevent event :
       {lane.joined, lane.forked, lane.ended[0], lane.ended[1], lane.began, lane.over})
    if (event) (void)api_.cuEventDestroy(event);
}

void CudaStreams::drained(StreamId id) {
  auto it = streams_.find(id);
  SLUICE_CHECK(it != streams_.end());
  destroy(*it->second);
  for (const auto& lane : it->second->above)
    if (lane) destroy(*lane);
  if (it->second->passed_on) (void)api_.cuEventDestroy(it->second->passed_on);
  if (it->second->context->greens) it->second->context->greens->remove(id);
  if (StreamObject& s = *it->second; s.left != 0 && s.context->lefts) {
    s.context->lefts->give_back(s.left, s.barred);
    s.left = 0;
  }
  streams_.erase(it);
}

void CudaStreams::take_record(LaunchWork& w, bool early) {
  w.launch_id = next_launch_id_++;
  w.records = &records_;
  w.record = records_.take(w.launch_id, w.plan.tasks, w.request.function->kernel,
                           w.request.ready_ns, early);
}

CUresult CudaStreams::launch(StreamId stream, Work& work, const Grant& grant, const Work* pred,
                             bool again, uint64_t now_ns) {
  auto& w = static_cast<LaunchWork&>(work);
  StreamObject& s = *streams_.at(stream);
  ContextObject& c = *s.context;
  if (w.local && w.local->refused) return CUDA_ERROR_OUT_OF_MEMORY;
  if (CUresult r = make_current(api_, c.cu); r != CUDA_SUCCESS) return r;
  if (!again) {
    if (CUresult r = c.controls->take(&w.control); r != CUDA_SUCCESS) return r;
    if (w.record < 0) take_record(w, false);
  }

  return on_lane(s, w, [&] { return launch_there(s, w, grant, pred, now_ns); });
}

// In the stream's tail.
CUresult CudaStreams::launch_there(StreamObject& s, LaunchWork& w, const Grant& grant,
                                   const Work* pred, uint64_t now_ns) {
  FunctionObject& f = *w.request.function;
  ContextObject& c = *s.context;
  if (w.plan.form == FormKind::kWindows) {
    w.submission.generation = grant.generation;
    w.submission.issued_ns = now_ns;
    records_.set_state(w.record, SLUICE_LAUNCH_TORUN);
    return launch_windows(s, w, pred);
  }
  const Geometry& geometry = w.submission.confined_sms != 0 ? w.submission.on_sms : w.plan.geometry;
  if (!w.progress.begun) w.progress.first_tickets = geometry.first_tickets;
  if (s.left == 0) {
    if (CUresult r = c.lefts->take(&s.left, &s.barred); r != CUDA_SUCCESS) return r;
  }
  sluice_preempt_params p = params_of(s, w, grant);
  p.pred = to_pass(pred);
  const bool one_task = w.plan.one_task || f.form.resumable;  // in each hardware block
  if (w.plan.one_task) p.worker_base = w.progress.tasks_before;
  if (w.progress.begun) p.flags |= SLUICE_LAUNCH_RESUME;
  uint32_t blocks = geometry.blocks;
  if (one_task)
    blocks = once_blocks(w.plan.tasks - std::min(w.progress.tasks_before, w.plan.tasks),
                         proxy_ && !f.form.resumable);
  if (!w.plan.one_task)
    w.submission.workers = geometry.blocks - (proxy_ && !f.form.resumable ? 1 : 0);
  w.submission.part = grant.part && !w.plan.one_task && w.submission.confined_sms == 0;
  if (w.submission.part) {
    if (CUresult r = keep_to_part(s, w, grant.sms, &p, &blocks); r != CUDA_SUCCESS) return r;
  }
  // An earlier physical launch may have had more workers, and what they left is in their slots.
  w.progress.most_blocks =
      std::max(w.progress.most_blocks, one_task ? w.plan.geometry.blocks : blocks);
  p.left_slots = std::min(w.progress.most_blocks, c.lefts->slots());

  w.submission.generation = grant.generation;
  w.submission.issued_ns = now_ns;
  if (w.record >= 0) {
    records_.set_state(w.record, SLUICE_LAUNCH_TORUN);
  }
  w.submission.first_workers = blocks - (p.flags & SLUICE_LAUNCH_PROXY ? 1 : 0);
  w.submission.grown = w.submission.moved = false;
  w.submission.evict_word = 0;
  return launch_clone(w.submission.lane->cu, w, p, blocks);
}

// Where it stands whether `pred`, which is before a launch in its stream, is done; 0: it will be,
// or there is none.
CUdeviceptr CudaStreams::to_pass(const Work* pred) {
  if (!pred) return 0;
  const auto& before = static_cast<const LaunchWork&>(*pred);
  // Nothing was put behind it before all of it was queued, or will not be.
  if (before.plan.form == FormKind::kWindows && !before.windows.pred && !before.windows.rest.left())
    return 0;
  return before.control.address;
}

// What the parameters of any physical launch of `w` have in common.
sluice_preempt_params CudaStreams::params_of(const StreamObject& s, const LaunchWork& w,
                                             const Grant& grant) const {
  const ContextObject& c = *s.context;
  const CloneForm& form = w.request.function->form;
  LoopSettings settings = settings_;
  settings.clock_khz = static_cast<uint32_t>(std::max(c.clock_khz, 1));
  sluice_preempt_params p =
      make_params(w.request.grid, w.plan.tasks,
                  w.submission.confined_sms != 0 ? w.submission.on_sms : w.plan.geometry, settings);
  p.first_tickets = w.progress.first_tickets;
  p.control = w.control.address;
  p.signal = c.evict_word ? c.evict_word : c.signal;
  p.record = record_address(c, w);
  p.left = s.left;
  p.generation = grant.generation;
  if (proxy_) p.flags |= form.resumable ? SLUICE_LAUNCH_DUTY : SLUICE_LAUNCH_PROXY;
  if (form.resumable) {
    p.state = w.state.address;
    p.state_stride = static_cast<uint32_t>(SLUICE_RESUME_STRIDE(
        w.request.block[0] * w.request.block[1] * w.request.block[2], form.state_bytes));
  }
  return p;
}

CUdeviceptr CudaStreams::record_address(const ContextObject& c, const LaunchWork& w) const {
  if (w.record < 0) return 0;
  return c.records + static_cast<uint64_t>(w.record) * sizeof(sluice_launch_record);
}

CUresult CudaStreams::launch_clone(CUstream to, LaunchWork& w, const sluice_preempt_params& p,
                                   uint32_t blocks) {
  sluice_preempt_params block = p;
  const uint32_t grid[3] = {blocks, 1, 1};
  // The variant may have been given to another shape meanwhile; the launch's own numbers stand.
  const bool slots = w.request.function->slot_dynamic && !w.plan.one_task;
  return launch_form(to, w, w.plan.clone, &block, grid,
                     w.request.dynamic_shared + (slots ? SLUICE_PREEMPT_DYNAMIC_BYTES : 0));
}

// `block`: what the clone has appended to the original's parameters.
CUresult CudaStreams::launch_form(CUstream to, LaunchWork& w, CUfunction clone, void* block,
                                  const uint32_t grid[3], uint32_t shared) {
  ParamPointers params(w);
  params.add(block);
  return api_.cuLaunchKernel(clone, grid[0], grid[1], grid[2], w.request.block[0],
                             w.request.block[1], w.request.block[2], shared, to, params.get(),
                             nullptr);
}

CUresult CudaStreams::launch_original(LaunchWork& w, uint64_t now_ns) {
  ParamPointers params(w);
  w.submission.issued_ns = now_ns;
  if (w.request.flags == 0) {
    return api_.cuLaunchKernel(w.request.function->original, w.request.grid[0], w.request.grid[1],
                               w.request.grid[2], w.request.block[0], w.request.block[1],
                               w.request.block[2], w.request.dynamic_shared, w.submission.lane->cu,
                               params.get(), nullptr);
  }
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{};
  config.gridDimX = w.request.grid[0];
  config.gridDimY = w.request.grid[1];
  config.gridDimZ = w.request.grid[2];
  config.blockDimX = w.request.block[0];
  config.blockDimY = w.request.block[1];
  config.blockDimZ = w.request.block[2];
  config.sharedMemBytes = w.request.dynamic_shared;
  config.hStream = w.submission.lane->cu;
  config.attrs = attributes;
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& a = attributes[config.numAttrs++];
    a.id = id;
    return a.value;
  };
  if (w.request.flags & SLUICE_LAUNCHED_COOPERATIVE)
    add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  if (SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 0) != 0) {
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {
        SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 0),
        SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 1),
        SLUICE_LAUNCHED_CLUSTER_DIM(w.request.flags, 2)};
  }
  return api_.cuLaunchKernelEx(&config, w.request.function->original, params.get(), nullptr);
}

CUresult CudaStreams::copy(StreamObject& s, const CUDA_MEMCPY2D& c) {
  if (!is_plain(c)) return api_.cuMemcpy2DAsync(&c, s.cu);
  if (c.srcMemoryType == CU_MEMORYTYPE_HOST)
    return api_.cuMemcpyHtoDAsync(c.dstDevice, c.srcHost, c.WidthInBytes, s.cu);
  if (c.dstMemoryType == CU_MEMORYTYPE_HOST)
    return api_.cuMemcpyDtoHAsync(c.dstHost, c.srcDevice, c.WidthInBytes, s.cu);
  return api_.cuMemcpyDtoDAsync(c.dstDevice, c.srcDevice, c.WidthInBytes, s.cu);
}

CUresult CudaStreams::fill(StreamObject& s, const sluice_memset& m) {
  const auto u8 = static_cast<unsigned char>(m.value);
  const auto u16 = static_cast<unsigned short>(m.value);
  if (m.height == 1) {
    switch (m.element_bytes) {
      case 1:
        return api_.cuMemsetD8Async(m.dst, u8, m.width, s.cu);
      case 2:
        return api_.cuMemsetD16Async(m.dst, u16, m.width, s.cu);
      default:
        return api_.cuMemsetD32Async(m.dst, m.value, m.width, s.cu);
    }
  }
  switch (m.element_bytes) {
    case 1:
      return api_.cuMemsetD2D8Async(m.dst, m.pitch, u8, m.width, m.height, s.cu);
    case 2:
      return api_.cuMemsetD2D16Async(m.dst, m.pitch, u16, m.width, m.height, s.cu);
    default:
      return api_.cuMemsetD2D32Async(m.dst, m.pitch, m.value, m.width, m.height, s.cu);
  }
}

CUresult CudaStreams::issue(StreamId stream, OpKind kind, Work& work, uint64_t now_ns) {
  StreamObject& s = *streams_.at(stream);
  if (CUresult r = make_current(api_, s.context->cu); r != CUDA_SUCCESS) return r;
  switch (kind) {
    case OpKind::kOpaque: {
      auto& w = static_cast<LaunchWork&>(work);
      if (w.local && w.local->refused) return CUDA_ERROR_OUT_OF_MEMORY;
      return on_lane(s, w, [&] { return launch_original(w, now_ns); });
    }
    case OpKind::kRecord: {
      EventObject& e = *static_cast<RecordWork&>(work).event;
      // Where it only orders, the engine's own marker behind it is all that is needed.
      return e.flags & CU_EVENT_DISABLE_TIMING ? CUDA_SUCCESS
                                               : api_.cuEventRecord(e.cu, s.tail->cu);
    }
    case OpKind::kValueWait: {
      if (CUresult r = go_to(s, s); r != CUDA_SUCCESS) return r;
      auto& v = static_cast<ValueWork&>(work);
      return api_.cuStreamWaitValue32(s.cu, v.address, v.value, v.flags);
    }
    case OpKind::kWork:
      break;
    default:
      SLUICE_CHECK(!"an operation that the driver never sees");
  }
  if (CUresult r = go_to(s, s); r != CUDA_SUCCESS) return r;
  if (auto* c = dynamic_cast<CopyWork*>(&work)) return copy(s, c->copy);
  if (auto* b = dynamic_cast<BoxWork*>(&work)) return api_.cuMemcpy3DAsync_v2(&b->copy, s.cu);
  if (auto* m = dynamic_cast<MemsetWork*>(&work)) return fill(s, m->args);
  auto& v = dynamic_cast<ValueWork&>(work);
  return api_.cuStreamWriteValue32(s.cu, v.address, v.value, v.flags);
}

CUresult CudaStreams::mark(StreamId stream, uint64_t* marker) {
  const StreamObject& s = *streams_.at(stream);
  return markers_.mark(*s.context, s.tail->cu, marker);
}

void CudaStreams::forget(const ContextObject& c) { markers_.forget(c); }

CUresult CudaStreams::query(uint64_t marker) { return markers_.query(marker); }

// Whatever went before in other lanes, the tail waits for it; but a lane's second stream may not
// have been joined.
CUresult CudaStreams::idle(StreamId stream) {
  StreamObject& s = *streams_.at(stream);
  if (CUresult r = make_current(api_, s.context->cu); r != CUDA_SUCCESS) return r;
  CUresult status = CUDA_SUCCESS;
  const auto ask = [&](CUstream in) {
    const CUresult r = in ? api_.cuStreamQuery(in) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) status = r;
  };
  for (const CUstream in : {s.tail->cu, s.tail->second, s.second}) ask(in);
  for (const auto& lane : s.above)
    if (lane) ask(lane->second);
  return status;
}

LaunchEnd CudaStreams::launch_end(Work& work) {
  auto& w = static_cast<LaunchWork&>(work);
  bool known = false, done = false;
  uint32_t tasks_done = 0;
  RecordPool::Snapshot record{};
  if (w.plan.form == FormKind::kWindows) {
    // The engine asks only when all before it are done, so what was queued has run.
    known = true;
    tasks_done = w.windows.rest.end();
    done = !w.windows.rest.left();
    record = records_.read(w.record);
    records_.set_done(w.record, w.submission.generation, tasks_done);
  } else if (w.record >= 0 && !w.submission.grown) {
    // The stream has passed the launch, so what the last block out wrote is there. It is a hint:
    // who forges it runs into its own unfinished work, nobody else's.
    record = records_.read(w.record);
    known = record.generation == w.submission.generation && record.tasks_total == w.plan.tasks &&
            ((record.state == SLUICE_LAUNCH_DONE && record.tasks_done == w.plan.tasks) ||
             (record.state == SLUICE_LAUNCH_TOEVICT && record.tasks_done < w.plan.tasks));
    done = record.state == SLUICE_LAUNCH_DONE;
    tasks_done = record.tasks_done;
  }
  if (!known) {
    ContextObject& c = *w.request.function->module->context;
    sluice_launch_control control;
    CUresult r = make_current(api_, c.cu);
    if (r == CUDA_SUCCESS)
      r = api_.cuMemcpyDtoHAsync(&control, w.control.address, sizeof control, c.transfers);
    if (r == CUDA_SUCCESS) r = api_.cuStreamSynchronize(c.transfers);
    if (r != CUDA_SUCCESS) return LaunchEnd::kFault;
    tasks_done =
        w.plan.one_task
            ? std::min(sluice_admitted(&control, w.submission.generation, w.progress.tasks_before),
                       w.plan.tasks)
            : control.finished;
    done = control.done == 1 && tasks_done == w.plan.tasks;
  }
  w.progress.done = done;
  if (done) {
    learn(w, w.record >= 0 ? &record : nullptr);
    if (w.record >= 0) records_.set_state(w.record, SLUICE_LAUNCH_DONE);
    return LaunchEnd::kDone;
  }
  // The engine asks about a launch only when all before it are done, so it has passed its
  // predecessor.
  w.progress.begun = true;
  if (evicted() < w.submission.generation && tasks_done == w.progress.tasks_before)
    return w.submission.part ? LaunchEnd::kNoRoom : LaunchEnd::kStuck;
  w.progress.tasks_before = tasks_done;
  if (w.record >= 0) records_.set_state(w.record, SLUICE_LAUNCH_READY);
  if (evicted() < w.submission.generation && w.submission.part &&
      w.request.function->form.resumable) {
    w.progress.in_waves = true;
    return LaunchEnd::kWave;
  }
  ++w.progress.evictions;
  if (w.record >= 0) records_.set_evictions(w.record, w.progress.evictions);
  return LaunchEnd::kLeft;
}

// What a launch in windows took, by the events around them; 0: it was not timed.
uint64_t CudaStreams::measured_ns(LaunchWork& w) {
  Lane& lane = *w.submission.lane;
  if (lane.timed_launch != w.launch_id) return 0;
  lane.timed_launch = 0;
  float ms = 0;
  if (api_.cuEventElapsedTime(&ms, lane.began, lane.over) != CUDA_SUCCESS || ms <= 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
}

void CudaStreams::learn(LaunchWork& w, const RecordPool::Snapshot* record) {
  if (w.progress.evictions != 0 || w.progress.in_waves || w.submission.moved ||
      w.plan.variant >= w.request.function->variants.size())
    return;
  // Only the GPU's own times: seen from here, a launch takes also what it waited behind.
  const bool windows = w.plan.form == FormKind::kWindows;
  uint64_t ns = 0;
  if (windows)
    ns = measured_ns(w);
  else if (record && record->start_ns != 0 && record->left_ns > record->start_ns)
    ns = record->left_ns - record->start_ns;
  if (ns == 0) return;
  LaunchVariant& v = w.request.function->variants[w.plan.variant];
  // Where a block runs one task, the only form of some kernels, the time ends when the last one
  // begins.
  const uint32_t tasks = w.plan.one_task
                             ? w.plan.tasks - std::min(w.submission.workers, w.plan.tasks - 1)
                             : w.plan.tasks;
  v.chunks.observe(tasks, w.submission.workers, ns);
  // As if it had had the whole GPU, so that those of different parts can be compared.
  const auto sms = static_cast<uint32_t>(w.request.function->module->context->multiprocessors);
  const uint32_t had = w.submission.confined_sms != 0 ? w.submission.confined_sms
                       : w.submission.part            ? w.submission.sms.count()
                                                      : sms;
  v.choice.observe(w.plan.form, tasks, ns * had / sms);
}

}  // namespace sluice::worker
