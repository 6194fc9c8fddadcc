// SPDX-License-Identifier: Apache-2.0
// What graphs need of this library (graphs/driver.h), from the worker's calls.
#include "guest-agent/graphs/driver.h"
#include "guest-agent/shim/calls/host_func.h"
#include "guest-agent/shim/calls/launches.h"
#include "guest-agent/shim/memory/boxes.h"
#include "guest-agent/shim/state/api.h"

namespace sluice::guest {

namespace {

class GraphDriver : public graphs::Driver {
 public:
  graphs::Caller caller() override {
    const Entered e = enter();
    return {e.link != nullptr, e.status, e.context};
  }
  bool has_device(CUdevice device) override {
    const Entered e = enter();
    return e && is_device(*e.link, device);
  }
  bool has_context(uint64_t context) override { return state().context(context).has_value(); }
  bool has_event(CUevent event) override { return state().events.find(wire(event)) != nullptr; }
  graphs::StreamFacts stream(CUstream stream) override {
    if (resolve_stream(stream) != CUDA_SUCCESS) return {};
    const StreamInfo* info = state().streams.find(wire(stream));
    if (info == nullptr) return {stream, true, true, 0};
    return {stream, true, (info->flags & CU_STREAM_NON_BLOCKING) == 0, info->context};
  }
  bool is_kernel(CUfunction function) override {
    return SLUICE_HANDLE_KIND(wire(function)) == SLUICE_HANDLE_KERNEL;
  }
  CUresult refuse(const char* function, const char* what) override {
    return static_cast<CUresult>(not_supported(function, what));
  }

  CUresult allocate(size_t bytes, CUdeviceptr* address) override {
    const Entered e = enter_context();
    if (!e) return e.status;
    const CUresult r = SLUICE_CALL(cuMemAlloc_v2, *e.link, e.context, address, bytes);
    if (r != CUDA_SUCCESS) return r;
    Range range;
    range.base = *address;
    range.bytes = bytes;
    range.context = e.context;
    state().pointers.add(range);
    return CUDA_SUCCESS;
  }
  void release(uint64_t context, CUdeviceptr address) override {
    state().pointers.remove(address);
    const Entered e = enter();
    if (e) (void)SLUICE_CALL(cuMemFree_v2, *e.link, context, address);
  }
  bool is_memory(CUdeviceptr address, size_t bytes) override {
    return state().pointers.find(address, bytes).has_value();
  }
  bool is_fill(const CUDA_MEMSET_NODE_PARAMS& fill) override {
    return valid_fill(fill.dst, fill.pitch, fill.elementSize, fill.width, fill.height);
  }
  CUresult check_box(const CUDA_MEMCPY3D& box) override { return guest::check_box(box); }
  CUresult run_box(const CUDA_MEMCPY3D& box, CUstream stream) override {
    const Entered e = enter_context();
    if (!e) return e.status;
    Copy how;
    how.stream = stream;
    how.in_graph = true;
    return guest::run_box(e, box, how);
  }
  CUresult read_word(CUdeviceptr address, CUstream stream, uint32_t* value) override {
    const Entered e = enter_context();
    if (!e) return e.status;
    Copy copy;
    copy.dst = reinterpret_cast<uint64_t>(value);
    copy.src = address;
    copy.width = sizeof *value;
    copy.stream = stream;
    copy.wait = true;
    return run_copy(e, copy, End::kHost, End::kDevice);
  }

  CUresult pack(KernelLaunch* launch, void** params, void** extra) override {
    return keep_launch(launch, params, extra);
  }
  CUresult read_attributes(KernelLaunch* launch) override {
    return flags_of_attributes(launch->attributes.data(), launch->attributes.size(), &launch->flags,
                               nullptr);
  }
  CUresult check(const KernelLaunch& launch) override { return check_kept(launch); }
  std::vector<void*> parameter_pointers(const KernelLaunch& launch) override {
    return guest::parameter_pointers(launch);
  }
  CUresult run(const KernelLaunch& launch, CUstream stream) override {
    return run_launch(launch, stream);
  }

  CUresult order(CUstream before, CUevent event, CUstream stream) override {
    const Entered e = enter_context();
    if (!e) return e.status;
    const auto queue = [&](uint16_t opcode, CUstream where, KnownIdle::Mark* mark) {
      sluice_stream_event body{};
      body.stream = wire(where);
      body.event = wire(event);
      return e.link->post(opcode, e.context, body, mark);
    };
    EventInfo* info = state().events.find(wire(event));
    const CUresult r =
        queue(SLUICE_CALL_EVENT_RECORD, before, info != nullptr ? &info->mark : nullptr);
    return r == CUDA_SUCCESS ? queue(SLUICE_CALL_STREAM_WAIT, stream, nullptr) : r;
  }
  CUresult call_back(CUstream stream, CUstreamCallback callback, void* data) override {
    return callback_beside_captures(stream, callback, data);
  }
  void synchronize() override {
    const Entered e = enter_context();
    sluice_synchronize body{};
    body.what = SLUICE_SYNC_CONTEXT;
    if (e) (void)e.link->call(SLUICE_CALL_SYNCHRONIZE, e.context, body);
  }
};

}  // namespace

}  // namespace sluice::guest

namespace sluice::graphs {

Driver& driver() {
  static auto* it = new guest::GraphDriver;
  return *it;
}

}  // namespace sluice::graphs
