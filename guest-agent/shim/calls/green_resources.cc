// SPDX-License-Identifier: Apache-2.0
// Parts of the SMs of the vGPU's GPU, and what green contexts are made of.
//
// A CUdevResource is a value in the program's hands. It says how its SMs are to be found again: all
// of a device's or a green context's, or which groups of which split of those. Forged, it names
// others of the program's own SMs; the worker checks what it gets.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/calls/green_contexts.h"

using namespace sluice::guest;

namespace {

std::atomic<uint64_t> next_split{1};

// What CUdevResource::internal holds.
struct Mark {
  uint32_t key;         // of this process
  uint32_t place;       // among the groups; kRest
  uint64_t split;       // the call that made it; 0: it is whole
  sluice_green source;  // as the worker gets it, with no group chosen
};
static_assert(sizeof(Mark) <= sizeof(CUdevResource::internal));
constexpr uint32_t kRest = SLUICE_GREEN_GROUPS;
uint32_t own_key() { return static_cast<uint32_t>(reinterpret_cast<uint64_t>(&next_split) >> 4); }

// Descriptors: some resources of one split, or one that is whole. As in CUDA nothing frees one.
std::mutex descs_mutex;
std::vector<std::unique_ptr<sluice_green>>& descs() {
  static auto* all = new std::vector<std::unique_ptr<sluice_green>>;
  return *all;
}

CUdevResource resource(const sluice_sms& sms, const Mark& mark) {
  CUdevResource r;
  std::memset(&r, 0, sizeof r);
  if (sms.count == 0) return r;  // CU_DEV_RESOURCE_TYPE_INVALID
  r.type = CU_DEV_RESOURCE_TYPE_SM;
  r.sm = {sms.count, sms.least, sms.multiple};
  std::memcpy(r.internal, &mark, sizeof mark);
  return r;
}

CUresult read(const CUdevResource& r, Mark* to) {
  if (r.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  std::memcpy(to, r.internal, sizeof *to);
  return to->key == own_key() && to->place <= kRest ? CUDA_SUCCESS
                                                    : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

CUresult whole_device(CUdevice device, CUdevResource* to, CUdevResourceType type) {
  const Entered e = enter();
  if (!e) return e.status;
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Mark mark{own_key(), 0, 0, {}};
  mark.source.device = device;
  sluice_green_reply reply{};
  const CUresult r = ask_for_green(e, SLUICE_CALL_GREEN_SPLIT, mark.source, &reply);
  if (r == CUDA_SUCCESS) *to = resource(reply.all, mark);
  return r;
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* to, CUdevResourceType type) {
  return whole_device(device, to, type);
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource* to, CUdevResourceType type) {
  if (state().greens.find(wire(context)) != nullptr)
    return cuGreenCtxGetDevResource(reinterpret_cast<CUgreenCtx>(context), to, type);
  const auto info = state().context(wire(context));
  if (!info) return enter() ? CUDA_ERROR_INVALID_CONTEXT : enter().status;
  return whole_device(info->device, to, type);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource* to, CUdevResourceType type) {
  const Entered e = enter();
  if (!e) return e.status;
  const GreenInfo* info = state().greens.find(wire(green));
  if (info == nullptr) return no_green(green);
  if (to == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  Mark mark{own_key(), 0, 0, {}};
  mark.source.base = wire(green);
  mark.source.device = info->device;
  *to = resource(info->sms, mark);
  return CUDA_SUCCESS;
}

CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int flags, unsigned int min_count) {
  const Entered e = enter();
  if (!e) return e.status;
  if (groups == nullptr || input == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Mark mark;
  if (const CUresult r = read(*input, &mark); r != CUDA_SUCCESS) return r;
  if (mark.split != 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (result != nullptr && *groups == 0) return CUDA_ERROR_INVALID_VALUE;
  sluice_green& source = mark.source;
  source.flags = SLUICE_GREEN_SPLIT;
  source.groups = result != nullptr ? std::min(*groups, SLUICE_GREEN_GROUPS) : 0;
  source.min_count = min_count;
  source.how = flags;
  sluice_green_reply reply{};
  const CUresult r = ask_for_green(e, SLUICE_CALL_GREEN_SPLIT, source, &reply);
  if (r != CUDA_SUCCESS) return r;
  *groups = source.groups != 0 ? std::min(reply.groups, source.groups) : reply.groups;
  if (result == nullptr) return CUDA_SUCCESS;  // only asked
  mark.split = next_split.fetch_add(1, std::memory_order_relaxed);
  for (mark.place = 0; mark.place < *groups; ++mark.place)
    result[mark.place] = resource(reply.group, mark);
  mark.place = kRest;
  if (remaining != nullptr) *remaining = resource(reply.rest, mark);
  return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                   unsigned int count) {
  const Entered e = enter();
  if (!e) return e.status;
  if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto desc = std::make_unique<sluice_green>();
  uint64_t split = 0;
  for (unsigned i = 0; i < count; ++i) {
    Mark mark;
    if (const CUresult r = read(resources[i], &mark); r != CUDA_SUCCESS) return r;
    if (i == 0) {
      *desc = mark.source;
      split = mark.split;
    }
    // More than one: of one split.
    if (i != 0 && (split == 0 || mark.split != split))
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (mark.place == kRest)
      desc->flags |= SLUICE_GREEN_REST;
    else if (split != 0)
      desc->chosen[mark.place / 64] |= uint64_t{1} << mark.place % 64;
  }
  *out = reinterpret_cast<CUdevResourceDesc>(desc.get());
  std::lock_guard lock(descs_mutex);
  descs().push_back(std::move(desc));
  return CUDA_SUCCESS;
}

namespace sluice::guest {

bool find_desc(CUdevResourceDesc handle, sluice_green* to) {
  std::lock_guard lock(descs_mutex);
  for (const auto& desc : descs()) {
    if (reinterpret_cast<CUdevResourceDesc>(desc.get()) != handle) continue;
    *to = *desc;
    return true;
  }
  return false;
}

CUresult ask_for_green(const Entered& e, uint16_t opcode, const sluice_green& body,
                       sluice_green_reply* to) {
  Pending pending;
  const CUresult r = e.link->call(opcode, e.context, body, pending);
  if (r != CUDA_SUCCESS) return r;
  return pending.read(*to) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

}  // namespace sluice::guest
