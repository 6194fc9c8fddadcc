// SPDX-License-Identifier: Apache-2.0
// What nodes do: their works, made from a program's parameters and queued as plain calls.
#include <algorithm>
#include <cstring>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/graphs/in_context.h"
#include "guest-agent/graphs/works.h"

namespace sluice::graphs {

namespace {

struct TypeOf {
  CUgraphNodeType operator()(const EmptyWork&) const { return CU_GRAPH_NODE_TYPE_EMPTY; }
  CUgraphNodeType operator()(const KernelWork&) const { return CU_GRAPH_NODE_TYPE_KERNEL; }
  CUgraphNodeType operator()(const CopyWork&) const { return CU_GRAPH_NODE_TYPE_MEMCPY; }
  CUgraphNodeType operator()(const FillWork&) const { return CU_GRAPH_NODE_TYPE_MEMSET; }
  CUgraphNodeType operator()(const HostWork&) const { return CU_GRAPH_NODE_TYPE_HOST; }
  CUgraphNodeType operator()(const EventWork& w) const {
    return w.wait ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  }
  CUgraphNodeType operator()(const ValuesWork&) const { return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP; }
  CUgraphNodeType operator()(const AllocWork&) const { return CU_GRAPH_NODE_TYPE_MEM_ALLOC; }
  CUgraphNodeType operator()(const FreeWork&) const { return CU_GRAPH_NODE_TYPE_MEM_FREE; }
  CUgraphNodeType operator()(const ChildWork&) const { return CU_GRAPH_NODE_TYPE_GRAPH; }
  CUgraphNodeType operator()(const ConditionalWork&) const {
    return CU_GRAPH_NODE_TYPE_CONDITIONAL;
  }
};

template <class W>
WorkPtr made(W work) {
  return std::make_shared<const Work>(std::move(work));
}

struct Run {
  CUstream stream;

  CUresult operator()(const EmptyWork&) const { return CUDA_SUCCESS; }
  // What they have inside is run instead.
  CUresult operator()(const ChildWork&) const { return CUDA_ERROR_UNKNOWN; }
  CUresult operator()(const ConditionalWork&) const { return CUDA_ERROR_UNKNOWN; }
  CUresult operator()(const KernelWork& w) const { return driver().run(w.launch, stream); }
  CUresult operator()(const CopyWork& w) const { return driver().run_box(w.copy, stream); }
  CUresult operator()(const FillWork& w) const {
    const CUDA_MEMSET_NODE_PARAMS& f = w.fill;
    switch (f.elementSize) {
      case 1:
        return cuMemsetD2D8Async(f.dst, f.pitch, static_cast<unsigned char>(f.value), f.width,
                                 f.height, stream);
      case 2:
        return cuMemsetD2D16Async(f.dst, f.pitch, static_cast<unsigned short>(f.value), f.width,
                                  f.height, stream);
      default:
        return cuMemsetD2D32Async(f.dst, f.pitch, f.value, f.width, f.height, stream);
    }
  }
  CUresult operator()(const HostWork& w) const {
    return cuLaunchHostFunc(stream, w.host.fn, w.host.userData);
  }
  CUresult operator()(const EventWork& w) const {
    return w.wait ? cuStreamWaitEvent(stream, w.event, 0) : cuEventRecord(w.event, stream);
  }
  CUresult operator()(const ValuesWork& w) const {
    for (const CUstreamBatchMemOpParams& v : w.values) {
      if (const CUresult r = run_value(v, stream); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  }
  CUresult operator()(const AllocWork& w) const {
    if (w.memory->lost()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    w.memory->set_allocated(true);
    return CUDA_SUCCESS;
  }
  CUresult operator()(const FreeWork& w) const {
    if (w.memory->lost()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return w.memory->set_allocated(false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
};

struct ContextOf {
  uint64_t operator()(const KernelWork& w) const { return w.launch.context; }
  uint64_t operator()(const CopyWork& w) const { return w.context; }
  uint64_t operator()(const FillWork& w) const { return w.context; }
  uint64_t operator()(const HostWork& w) const { return w.context; }
  uint64_t operator()(const ValuesWork& w) const { return w.context; }
  template <class W>
  uint64_t operator()(const W&) const {
    return 0;
  }
};

// A program's context, or the current one.
CUresult context_of(CUcontext ctx, uint64_t* to) {
  const Caller e = ctx == nullptr ? enter_context() : enter();
  if (!e) return e.status;
  *to = ctx == nullptr ? e.context : number(ctx);
  return driver().has_context(*to) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& p, const Work* before, WorkPtr* to) {
  uint64_t context = 0;
  CUresult r = context_of(p.ctx, &context);
  if (r != CUDA_SUCCESS) return r;
  const InContext here(context);
  if (here.status != CUDA_SUCCESS) return here.status;
  KernelLaunch launch;
  launch.function = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  const uint32_t grid[3] = {p.gridDimX, p.gridDimY, p.gridDimZ},
                 block[3] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  std::copy_n(grid, 3, launch.grid);
  std::copy_n(block, 3, launch.block);
  launch.shared_bytes = p.sharedMemBytes;
  // What a node's attributes are survives a change of its parameters.
  if (const auto* kernel = before == nullptr ? nullptr : std::get_if<KernelWork>(before)) {
    launch.attributes = kernel->launch.attributes;
    r = driver().read_attributes(&launch);
    if (r != CUDA_SUCCESS) return r;
  }
  r = driver().pack(&launch, p.kernelParams, p.extra);
  if (r == CUDA_SUCCESS)
    *to = kernel_work(std::move(launch), p.func, p.func != nullptr ? nullptr : p.kern);
  return r;
}

CUresult make_copy(const CUDA_MEMCPY3D& box, CUcontext ctx, WorkPtr* to) {
  CopyWork work{box, 0};
  CUresult r = context_of(ctx, &work.context);
  if (r != CUDA_SUCCESS) return r;
  if (box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  r = driver().check_box(box);
  if (r == CUDA_SUCCESS) *to = made(work);
  return r;
}

CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext ctx, WorkPtr* to) {
  FillWork work{fill, 0};
  if (const CUresult r = context_of(ctx, &work.context); r != CUDA_SUCCESS) return r;
  const unsigned element = fill.elementSize;
  if ((element != 1 && element != 2 && element != 4) || fill.width == 0 || fill.height == 0 ||
      !driver().is_fill(fill))
    return CUDA_ERROR_INVALID_VALUE;
  *to = made(work);
  return CUDA_SUCCESS;
}

CUresult make_host(const CUDA_HOST_NODE_PARAMS& host, WorkPtr* to) {
  HostWork work{host, 0};
  if (host.fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult r = context_of(nullptr, &work.context); r != CUDA_SUCCESS) return r;
  *to = made(work);
  return CUDA_SUCCESS;
}

CUresult make_event(CUevent event, bool wait, WorkPtr* to) {
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!driver().has_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  *to = made(EventWork{event, wait});
  return CUDA_SUCCESS;
}

CUresult make_values(const CUDA_BATCH_MEM_OP_NODE_PARAMS& p, WorkPtr* to) {
  ValuesWork work{{}, p.flags, 0};
  if (const CUresult r = context_of(p.ctx, &work.context); r != CUDA_SUCCESS) return r;
  if (p.count > 256 || (p.count != 0 && p.paramArray == nullptr) || p.flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < p.count; ++i) {
    const CUstreamBatchMemOpParams& v = p.paramArray[i];
    const unsigned bytes = value_bytes(v.operation);
    if (bytes == 0)
      return driver().refuse("cuGraphAddBatchMemOpNode", "barriers, flushes of remote writes");
    if (v.waitValue.address % bytes != 0 || !driver().is_memory(v.waitValue.address, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    work.values.push_back(v);
  }
  *to = made(std::move(work));
  return CUDA_SUCCESS;
}

CUresult make_alloc(CUDA_MEM_ALLOC_NODE_PARAMS& p, WorkPtr* to) {
  constexpr int kDevice = 1, kPinned = 1;
  if (p.bytesize == 0 || p.poolProps.allocType != kPinned || p.poolProps.location.type != kDevice ||
      (p.accessDescCount != 0 && p.accessDescs == nullptr) || p.poolProps.location.id != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (p.poolProps.handleTypes != 0)
    return driver().refuse("cuGraphAddMemAllocNode", "memory to share between processes");
  AllocWork work{nullptr, p, {}};
  if (p.accessDescCount != 0) work.access.assign(p.accessDescs, p.accessDescs + p.accessDescCount);
  if (const CUresult r = GraphMemory::make(p.bytesize, &work.memory); r != CUDA_SUCCESS) return r;
  p.dptr = work.params.dptr = work.memory->address();
  const auto kept = std::make_shared<Work>(std::move(work));
  auto& alloc = std::get<AllocWork>(*kept);
  alloc.params.accessDescs = alloc.access.empty() ? nullptr : alloc.access.data();
  *to = kept;
  return CUDA_SUCCESS;
}

}  // namespace

CUgraphNodeType type_of(const Work& work) { return std::visit(TypeOf{}, work); }

WorkPtr kernel_work(KernelLaunch launch, CUfunction func, CUkernel kern) {
  KernelWork work{std::move(launch), func, kern, {}};
  if (func == nullptr && kern == nullptr) {
    if (driver().is_kernel(work.launch.function))
      work.kern = reinterpret_cast<CUkernel>(work.launch.function);
    else
      work.func = work.launch.function;
  }
  work.pointers = driver().parameter_pointers(
      work.launch);  // a vector's bytes stay where they are when it is moved
  return made(std::move(work));
}

WorkPtr box_work(const CUDA_MEMCPY3D& box, uint64_t context) {
  return made(CopyWork{box, context});
}
WorkPtr fill_work(const CUDA_MEMSET_NODE_PARAMS& fill, uint64_t context) {
  return made(FillWork{fill, context});
}
WorkPtr host_work(CUhostFn function, void* data, uint64_t context) {
  return made(HostWork{{function, data}, context});
}
WorkPtr event_work(CUevent event, bool wait) { return made(EventWork{event, wait}); }
WorkPtr value_work(const CUstreamBatchMemOpParams& value, uint64_t context) {
  return made(ValuesWork{{value}, 0, context});
}
CUresult run_value(const CUstreamBatchMemOpParams& value, CUstream stream) {
  const auto& v = value.waitValue;
  switch (v.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return cuStreamWaitValue32(stream, v.address, v.value, v.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return cuStreamWriteValue32(stream, v.address, v.value, v.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return cuStreamWaitValue64(stream, v.address, v.value64, v.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return cuStreamWriteValue64(stream, v.address, v.value64, v.flags);
    case CU_STREAM_MEM_OP_BARRIER:  // what a stream does is in order for the memory, too
      return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      break;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
unsigned value_bytes(CUstreamBatchMemOpType operation) {
  switch (operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return 4;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return 8;
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      break;
  }
  return 0;
}
WorkPtr alloc_work(std::shared_ptr<GraphMemory> memory, size_t bytes) {
  AllocWork work{std::move(memory), {}, {}};
  work.params.poolProps.allocType = 1;
  work.params.poolProps.location = {1, 0};
  work.params.bytesize = bytes;
  work.params.dptr = work.memory->address();
  return made(std::move(work));
}
WorkPtr free_work(std::shared_ptr<GraphMemory> memory) { return made(FreeWork{std::move(memory)}); }

CUresult make_work(CUgraphNodeParams& p, const Work* before, WorkPtr* to) {
  switch (p.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return make_kernel(p.kernel, before, to);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (p.memcpy.flags != 0 || p.memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return make_copy(p.memcpy.copyParams, p.memcpy.copyCtx, to);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& m = p.memset;
      return make_fill({m.dst, m.pitch, m.value, m.elementSize, m.width, m.height}, m.ctx, to);
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      return make_host(p.host, to);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      *to = made(EmptyWork{});
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return make_event(p.eventWait.event, true, to);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return make_event(p.eventRecord.event, false, to);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return make_values(p.memOp, to);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return make_alloc(p.alloc, to);
    case CU_GRAPH_NODE_TYPE_MEM_FREE: {
      auto memory = GraphMemory::find(p.free.dptr);
      if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *to = free_work(std::move(memory));
      return CUDA_SUCCESS;
    }
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return driver().refuse("cuGraphAddNode", "external semaphores");
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult run_work(const Work& work, CUstream stream) {
  const uint64_t context = std::visit(ContextOf{}, work);
  if (context == 0 || context == enter().context) return std::visit(Run{stream}, work);
  const InContext here(context);
  return here.status != CUDA_SUCCESS ? here.status : std::visit(Run{stream}, work);
}

}  // namespace sluice::graphs
