// What nodes do: their works, made from a program's parameters and queued as plain calls. Also copies of boxes
// outside of graphs.
#include <algorithm>
#include <cstring>

#include "guest-agent/shim/api.h"
#include "guest-agent/shim/capture.h"
#include "guest-agent/shim/copy.h"
#include "guest-agent/shim/graph_nodes.h"

namespace sluice::guest {

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
  CUgraphNodeType operator()(const ConditionalWork&) const { return CU_GRAPH_NODE_TYPE_CONDITIONAL; }
};

template <class W>
WorkPtr made(W work) {
  return std::make_shared<const Work>(std::move(work));
}

// One end of a box, with its pitch and the rows of a slice.
struct BoxEnd {
  uint64_t at = 0, pitch = 0, rows = 0;
  End end = End::kAny;
};
CUresult box_end(CUmemorytype type, const void* host, CUdeviceptr device, size_t x, size_t y, size_t z, size_t pitch,
                 size_t rows, const CUDA_MEMCPY3D& box, BoxEnd* to) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      to->end = End::kHost;
      break;
    case CU_MEMORYTYPE_DEVICE:
      to->end = End::kDevice;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      break;
    case CU_MEMORYTYPE_ARRAY:
      return static_cast<CUresult>(not_supported("copies of boxes", "arrays"));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  to->at = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(host) : device;
  // Sums that wrap around would name a place that may be copied to.
  const auto beyond = [](uint64_t a, uint64_t b) { return a > UINT64_MAX - b; };
  if (beyond(x, box.WidthInBytes) || beyond(y, box.Height) || beyond(z, box.Depth)) return CUDA_ERROR_INVALID_VALUE;
  to->pitch = pitch != 0 ? pitch : box.WidthInBytes + x;  // 0: rows without gaps
  to->rows = rows != 0 ? rows : box.Height + y;
  if (to->at == 0 || to->pitch < box.WidthInBytes + x || (box.Depth > 1 && to->rows < box.Height + y))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t rows_before = 0, bytes = 0;  // before the last row; to its end
  if (__builtin_mul_overflow(z + box.Depth - 1, to->rows, &rows_before) ||
      __builtin_add_overflow(rows_before, y + box.Height - 1, &rows_before) ||
      __builtin_mul_overflow(rows_before, to->pitch, &bytes) ||
      __builtin_add_overflow(bytes, x + box.WidthInBytes, &bytes) || beyond(to->at, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  to->at += x + (y + z * to->rows) * to->pitch;
  return CUDA_SUCCESS;
}
CUresult box_ends(const CUDA_MEMCPY3D& c, BoxEnd* dst, BoxEnd* src) {
  if (c.srcLOD != 0 || c.dstLOD != 0 || c.reserved0 != nullptr || c.reserved1 != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  const CUresult r = box_end(c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch,
                             c.dstHeight, c, dst);
  if (r != CUDA_SUCCESS) return r;
  return box_end(c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch, c.srcHeight, c,
                 src);
}

template <class Each>
CUresult each_slice(const CUDA_MEMCPY3D& box, Each&& each) {
  BoxEnd dst, src;
  if (const CUresult r = box_ends(box, &dst, &src); r != CUDA_SUCCESS) return r;
  for (size_t z = 0; z < box.Depth; ++z) {
    Copy copy;
    copy.dst = dst.at + z * dst.rows * dst.pitch;
    copy.src = src.at + z * src.rows * src.pitch;
    copy.dst_pitch = dst.pitch;
    copy.src_pitch = src.pitch;
    copy.width = box.WidthInBytes;
    copy.height = box.Height;
    if (const CUresult r = each(copy, dst.end, src.end); r != CUDA_SUCCESS) return r;
  }
  return CUDA_SUCCESS;
}

struct Run {
  CUstream stream;

  CUresult operator()(const EmptyWork&) const { return CUDA_SUCCESS; }
  // What they have inside is run instead.
  CUresult operator()(const ChildWork&) const { return CUDA_ERROR_UNKNOWN; }
  CUresult operator()(const ConditionalWork&) const { return CUDA_ERROR_UNKNOWN; }
  CUresult operator()(const KernelWork& w) const { return run_launch(w.launch, stream); }
  CUresult operator()(const CopyWork& w) const {
    const Entered e = enter_context();
    if (!e) return e.status;
    return each_slice(w.copy, [&](Copy copy, End dst, End src) {
      copy.stream = stream;
      copy.in_graph = true;
      return run_copy(e, copy, dst, src);
    });
  }
  CUresult operator()(const FillWork& w) const {
    const CUDA_MEMSET_NODE_PARAMS& f = w.fill;
    switch (f.elementSize) {
      case 1:
        return cuMemsetD2D8Async(f.dst, f.pitch, static_cast<unsigned char>(f.value), f.width, f.height, stream);
      case 2:
        return cuMemsetD2D16Async(f.dst, f.pitch, static_cast<unsigned short>(f.value), f.width, f.height, stream);
      default:
        return cuMemsetD2D32Async(f.dst, f.pitch, f.value, f.width, f.height, stream);
    }
  }
  CUresult operator()(const HostWork& w) const { return cuLaunchHostFunc(stream, w.host.fn, w.host.userData); }
  CUresult operator()(const EventWork& w) const {
    return w.wait ? cuStreamWaitEvent(stream, w.event, 0) : cuEventRecord(w.event, stream);
  }
  CUresult operator()(const ValuesWork& w) const {
    for (const CUstreamBatchMemOpParams& v : w.values) {
      const CUresult r = v.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32
                             ? cuStreamWaitValue32(stream, v.waitValue.address, v.waitValue.value, v.waitValue.flags)
                             : cuStreamWriteValue32(stream, v.writeValue.address, v.writeValue.value,
                                                    v.writeValue.flags);
      if (r != CUDA_SUCCESS) return r;
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
  const Entered e = ctx == nullptr ? enter_context() : enter();
  if (!e) return e.status;
  *to = ctx == nullptr ? e.context : wire(ctx);
  return state().context(*to) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult make_kernel(const CUDA_KERNEL_NODE_PARAMS& p, const Work* before, WorkPtr* to) {
  uint64_t context = 0;
  CUresult r = context_of(p.ctx, &context);
  if (r != CUDA_SUCCESS) return r;
  const InContext here(context);
  if (here.status != CUDA_SUCCESS) return here.status;
  KernelLaunch launch;
  launch.function = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  const uint32_t grid[3] = {p.gridDimX, p.gridDimY, p.gridDimZ}, block[3] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  std::copy_n(grid, 3, launch.grid);
  std::copy_n(block, 3, launch.block);
  launch.shared_bytes = p.sharedMemBytes;
  // What a node's attributes are survives a change of its parameters.
  if (const auto* kernel = before == nullptr ? nullptr : std::get_if<KernelWork>(before)) {
    launch.attributes = kernel->launch.attributes;
    r = flags_of_attributes(launch.grid, launch.attributes.data(), launch.attributes.size(), &launch.flags, nullptr);
    if (r != CUDA_SUCCESS) return r;
  }
  r = keep_launch(&launch, p.kernelParams, p.extra);
  if (r == CUDA_SUCCESS) *to = kernel_work(std::move(launch), p.func, p.func != nullptr ? nullptr : p.kern);
  return r;
}

CUresult make_copy(const CUDA_MEMCPY3D& box, CUcontext ctx, WorkPtr* to) {
  CopyWork work{box, 0};
  CUresult r = context_of(ctx, &work.context);
  if (r != CUDA_SUCCESS) return r;
  if (box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  r = each_slice(box, [](const Copy& copy, End dst, End src) { return check_copy(copy, dst, src); });
  if (r == CUDA_SUCCESS) *to = made(work);
  return r;
}

CUresult make_fill(const CUDA_MEMSET_NODE_PARAMS& fill, CUcontext ctx, WorkPtr* to) {
  FillWork work{fill, 0};
  if (const CUresult r = context_of(ctx, &work.context); r != CUDA_SUCCESS) return r;
  const unsigned element = fill.elementSize;
  if ((element != 1 && element != 2 && element != 4) || fill.width == 0 || fill.height == 0 ||
      !valid_fill(fill.dst, fill.pitch, element, fill.width, fill.height))
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
  if (state().events.find(wire(event)) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *to = made(EventWork{event, wait});
  return CUDA_SUCCESS;
}

CUresult make_values(const CUDA_BATCH_MEM_OP_NODE_PARAMS& p, WorkPtr* to) {
  ValuesWork work{{}, p.flags, 0};
  if (const CUresult r = context_of(p.ctx, &work.context); r != CUDA_SUCCESS) return r;
  if (p.count > 256 || (p.count != 0 && p.paramArray == nullptr) || p.flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < p.count; ++i) {
    const CUstreamBatchMemOpParams& v = p.paramArray[i];
    if (v.operation != CU_STREAM_MEM_OP_WAIT_VALUE_32 && v.operation != CU_STREAM_MEM_OP_WRITE_VALUE_32)
      return static_cast<CUresult>(not_supported("cuGraphAddBatchMemOpNode", "values of 64 bits, barriers, flushes"));
    if (v.waitValue.address % 4 != 0 || !state().pointers.find(v.waitValue.address, 4))
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
    return static_cast<CUresult>(not_supported("cuGraphAddMemAllocNode", "memory to share between processes"));
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
    if (SLUICE_HANDLE_KIND(wire(work.launch.function)) == SLUICE_HANDLE_KERNEL)
      work.kern = reinterpret_cast<CUkernel>(work.launch.function);
    else
      work.func = work.launch.function;
  }
  work.pointers = parameter_pointers(work.launch);  // a vector's bytes stay where they are when it is moved
  return made(std::move(work));
}

WorkPtr copy_work(const Copy& copy, End dst, End src, uint64_t context) {
  const auto type = [](End end) {
    return end == End::kHost ? CU_MEMORYTYPE_HOST : end == End::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
  };
  CopyWork work{{}, context};
  CUDA_MEMCPY3D& c = work.copy;
  c.dstMemoryType = type(dst);
  c.srcMemoryType = type(src);
  (dst == End::kHost ? reinterpret_cast<uint64_t&>(c.dstHost) : reinterpret_cast<uint64_t&>(c.dstDevice)) = copy.dst;
  (src == End::kHost ? reinterpret_cast<uint64_t&>(c.srcHost) : reinterpret_cast<uint64_t&>(c.srcDevice)) = copy.src;
  c.dstPitch = copy.dst_pitch;
  c.srcPitch = copy.src_pitch;
  c.WidthInBytes = copy.width;
  c.Height = copy.height;
  c.Depth = 1;
  return made(work);
}
WorkPtr fill_work(const CUDA_MEMSET_NODE_PARAMS& fill, uint64_t context) { return made(FillWork{fill, context}); }
WorkPtr host_work(CUhostFn function, void* data, uint64_t context) { return made(HostWork{{function, data}, context}); }
WorkPtr event_work(CUevent event, bool wait) { return made(EventWork{event, wait}); }
WorkPtr value_work(CUdeviceptr address, cuuint32_t value, unsigned flags, bool wait, uint64_t context) {
  CUstreamBatchMemOpParams v{};
  v.waitValue.operation = wait ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
  v.waitValue.address = address;
  v.waitValue.value = value;
  v.waitValue.flags = flags;
  return made(ValuesWork{{v}, 0, context});
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
      return static_cast<CUresult>(not_supported("cuGraphAddNode", "external semaphores"));
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult run_work(const Work& work, CUstream stream) {
  const uint64_t context = std::visit(ContextOf{}, work);
  if (context == 0 || context == current_context()) return std::visit(Run{stream}, work);
  const InContext here(context);
  return here.status != CUDA_SUCCESS ? here.status : std::visit(Run{stream}, work);
}

}  // namespace sluice::guest

using namespace sluice::guest;

namespace {

// A box outside of graphs: its slices, one after the other, in the stream.
CUresult copy_box(const CUDA_MEMCPY3D* box, CUstream stream, bool wait) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (box == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (box->WidthInBytes == 0 || box->Height == 0 || box->Depth == 0) return CUDA_SUCCESS;
  CUresult r = each_slice(*box, [](const Copy& copy, End dst, End src) { return check_copy(copy, dst, src); });
  if (r != CUDA_SUCCESS) return r;
  if (const auto captured = capture_node(stream, [&] { return made(CopyWork{*box, e.context}); })) return *captured;
  return each_slice(*box, [&](Copy copy, End dst, End src) {
    copy.stream = stream;
    copy.wait = wait;
    return run_copy(e, copy, dst, src);
  });
}

}  // namespace

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return copy_box(copy, nullptr, true); }
CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) { return copy_box(copy, stream, false); }
