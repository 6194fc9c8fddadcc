// SPDX-License-Identifier: Apache-2.0
// Green contexts of a guest's own: parts of the GPU's SMs, contexts of them, and their streams.
//
// The driver's resources never leave the worker. A guest says how the SMs were split, and which of
// the groups it wants; the split is made anew for each call (abi/wire.h). A green context belongs
// to the device's primary context, and so do the functions, memory and events that are used in it:
// only its streams are its own, and none of them waits for any default stream, as on an H200
// (tests/conformance/green/h200.txt).
//
// To sluiced a launch in one is a launch like others, which needs a grant and can be evicted. What
// a green context takes is charged until its context ends, as streams are. Jobs, without the
// session's lock.
#include <algorithm>
#include <utility>

#include "mediator/base/check.h"
#include "mediator/worker/calls/custom_calls.h"
#include "mediator/worker/calls/generic_calls.h"
#include "mediator/worker/limits.h"

namespace sluice::worker {

namespace {

struct Parts {
  CUdevResource all{}, rest{};
  std::vector<CUdevResource> groups;
};

sluice_sms sms_of(const CUdevResource& r) {
  if (r.type != CU_DEV_RESOURCE_TYPE_SM) return {};
  return {r.sm.smCount, r.sm.minSmPartitionSize, r.sm.smCoscheduledAlignment};
}

// What the guest names, as the driver has it; how many groups there can be where it only asks.
CUresult find_parts(const gpu::DriverApi& api, const GreenObject* base, const sluice_green& guest,
                    Parts* to, uint32_t* groups) {
  *groups = 0;
  CUresult r = base ? api.cuGreenCtxGetDevResource(base->cu, &to->all, CU_DEV_RESOURCE_TYPE_SM)
                    : api.cuDeviceGetDevResource(guest.device, &to->all, CU_DEV_RESOURCE_TYPE_SM);
  if (r != CUDA_SUCCESS || !(guest.flags & SLUICE_GREEN_SPLIT)) return r;
  unsigned count = guest.groups;
  to->groups.resize(count);
  r = api.cuDevSmResourceSplitByCount(count == 0 ? nullptr : to->groups.data(), &count, &to->all,
                                      &to->rest, guest.how, guest.min_count);
  if (r != CUDA_SUCCESS) return r;
  if (to->groups.size() > count) to->groups.resize(count);
  *groups = count;
  return CUDA_SUCCESS;
}

// What a guest has chosen of a split: the driver's resources, and which SMs of what was split, were
// they counted through group by group.
struct Chosen {
  std::vector<CUdevResource> resources;
  SmSet places;

  void add(const CUdevResource& r, uint32_t first) {
    resources.push_back(r);
    places = places | SmSet(first, first + r.sm.smCount);
  }
};
CUresult choose(const sluice_green& guest, const Parts& parts, Chosen* to) {
  if (!(guest.flags & SLUICE_GREEN_SPLIT)) to->add(parts.all, 0);
  uint32_t first = 0;
  for (uint32_t i = 0; i < SLUICE_GREEN_GROUPS; ++i) {
    const bool wanted = guest.chosen[i / 64] >> i % 64 & 1;
    if (wanted && i >= parts.groups.size()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (wanted) to->add(parts.groups[i], first);
    if (i < parts.groups.size()) first += parts.groups[i].sm.smCount;
  }
  if (guest.flags & SLUICE_GREEN_REST) to->add(parts.rest, first);
  return to->resources.empty() ? CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION : CUDA_SUCCESS;
}

// The same of the GPU: `places` count the SMs of `base`, where there is one.
SmSet of_gpu(const SmSet& places, const GreenObject* base) {
  if (!base) return places;
  SmSet sms;
  uint32_t place = 0;
  for (uint32_t sm = 0; sm < SmSet::kMax; ++sm)
    if (base->sms.contains(sm) && places.contains(place++)) sms.add(sm);
  return sms;
}

bool well_formed(const sluice_green& guest) {
  return (guest.flags & ~(SLUICE_GREEN_SPLIT | SLUICE_GREEN_REST)) == 0 &&
         guest.groups <= SLUICE_GREEN_GROUPS &&
         ((guest.flags & SLUICE_GREEN_SPLIT) || !(guest.flags & SLUICE_GREEN_REST));
}

// The green context whose SMs are split; null: the device's are.
CUresult find_base(WorkerSession& s, const sluice_green& guest, std::shared_ptr<GreenObject>* to) {
  if (guest.base == 0) return CUDA_SUCCESS;
  std::lock_guard lock(s.mutex);
  *to = s.handles.find<GreenObject>(SLUICE_HANDLE_GREEN, guest.base);
  return *to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

void split(WorkerSession& s, const Call& call, const sluice_green& guest) {
  std::shared_ptr<GreenObject> base;
  CUresult r = find_base(s, guest, &base);
  Parts parts;
  sluice_green_reply reply{};
  if (r == CUDA_SUCCESS) r = find_parts(s.api, base.get(), guest, &parts, &reply.groups);
  if (r != CUDA_SUCCESS) return s.answer(call, r);
  reply.all = sms_of(parts.all);
  reply.rest = sms_of(parts.rest);
  if (!parts.groups.empty()) reply.group = sms_of(parts.groups[0]);
  s.answer(call, r, std::as_bytes(std::span(&reply, 1)));
}

// With its default stream.
CUresult make_green(WorkerSession& s, const Call& call, const sluice_green& guest,
                    std::shared_ptr<GreenObject>* out, sluice_green_reply* reply) {
  const std::shared_ptr<ContextObject>& c = call.context;
  std::shared_ptr<GreenObject> base;
  CUresult r = find_base(s, guest, &base);
  if (r == CUDA_SUCCESS) r = make_current(s.api, c->cu);
  Parts parts;
  Chosen chosen;
  CUdevResourceDesc desc = nullptr;
  if (r == CUDA_SUCCESS) r = find_parts(s.api, base.get(), guest, &parts, &reply->groups);
  if (r == CUDA_SUCCESS) r = choose(guest, parts, &chosen);
  if (r == CUDA_SUCCESS)
    r = s.api.cuDevResourceGenerateDesc(&desc, chosen.resources.data(),
                                        static_cast<unsigned>(chosen.resources.size()));
  if (r != CUDA_SUCCESS) return r;
  auto green = std::make_shared<GreenObject>(s.api, c);
  green->sms = of_gpu(chosen.places, base.get());
  r = s.api.cuGreenCtxCreate(&green->cu, desc, c->device, CU_GREEN_CTX_DEFAULT_STREAM);
  CUdevResource its{};
  if (r == CUDA_SUCCESS)
    r = s.api.cuGreenCtxGetDevResource(green->cu, &its, CU_DEV_RESOURCE_TYPE_SM);
  if (r != CUDA_SUCCESS) return r;
  reply->all = sms_of(its);
  green->default_stream =
      s.make_stream(c, StreamKind::kNonBlocking, CU_STREAM_DEFAULT, 0, &r, green);
  *out = std::move(green);
  return r;
}

void create(WorkerSession& s, const Call& call, const sluice_green& guest) {
  std::shared_ptr<GreenObject> green;
  sluice_green_reply reply{};
  CUresult r = call.context->closed ? CUDA_ERROR_INVALID_CONTEXT
                                    : make_green(s, call, guest, &green, &reply);
  if (r == CUDA_SUCCESS) {
    std::lock_guard lock(s.mutex);
    reply.handle = s.handles.add(SLUICE_HANDLE_GREEN, green);
    SLUICE_CHECK(reply.handle != 0);  // price() saw room, and only jobs take it
  }
  s.answer(call, r,
           r == CUDA_SUCCESS ? std::as_bytes(std::span(&reply, 1)) : std::span<const std::byte>());
}

// What one more takes beyond what has been paid. kMostGreens, with those whose jobs wait for a
// lease, is far below the handles that there are.
CUresult price(WorkerSession& s, ContextObject& c, uint64_t* bytes) {
  std::lock_guard lock(s.mutex);
  const uint64_t live = c.charged.greens_live.load() + 1;
  if (live > kMostGreens || !s.handles.has_room(SLUICE_HANDLE_GREEN))
    return CUDA_ERROR_OUT_OF_MEMORY;
  *bytes = live * kGreenBytes > c.charged.greens ? kGreenBytes : 0;
  return CUDA_SUCCESS;
}

}  // namespace

void handle_green_split(WorkerSession& s, const Call& call, const sluice_green& guest,
                        std::span<const std::byte>) {
  if (!well_formed(guest)) return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  if (!s.api.green_contexts) return s.answer(call, CUDA_ERROR_NOT_SUPPORTED);
  s.jobs.post([&s, call, guest] { split(s, call, guest); });
}

void handle_green_create(WorkerSession& s, const Call& call, const sluice_green& guest,
                         std::span<const std::byte>) {
  if (!well_formed(guest)) return s.answer(call, CUDA_ERROR_INVALID_VALUE);
  if (!s.api.green_contexts) return s.answer(call, CUDA_ERROR_NOT_SUPPORTED);
  if (!call.context || !call.context->primary || guest.device != call.context->device)
    return s.answer(call, CUDA_ERROR_INVALID_CONTEXT);
  s.jobs.post([&s, call, guest] {
    uint64_t bytes = 0;
    if (const CUresult r = price(s, *call.context, &bytes); r != CUDA_SUCCESS)
      return s.answer(call, r);
    if (bytes == 0) return create(s, call, guest);
    s.charges.with_context_place([&s, call, guest, bytes](bool placed) {
      if (!placed) return s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
      s.charges.with_device_memory(
          bytes, ChargeKind::kContexts, [&s, call, guest, bytes](bool charged) {
            {
              std::lock_guard lock(s.mutex);
              if (!charged) s.control.release_places(1);
              if (charged) {
                call.context->charged.own += bytes;
                call.context->charged.greens += bytes;
                ++call.context->charged.places;
              }
            }
            charged ? create(s, call, guest) : s.answer(call, CUDA_ERROR_OUT_OF_MEMORY);
          });
    });
  });
}

// What is queued in its streams still runs.
CUresult GenericCalls::cuGreenCtxDestroy(GreenHandle handle) {
  std::vector<std::shared_ptr<HandleObject>> dead;  // outlives the lock
  std::lock_guard lock(s.mutex);
  const auto green = s.handles.find<GreenObject>(SLUICE_HANDLE_GREEN, handle.value);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  dead.push_back(s.handles.remove(SLUICE_HANDLE_GREEN, handle.value));
  std::vector<uint64_t> its;
  s.handles.for_each(SLUICE_HANDLE_STREAM, [&](uint64_t h, const auto& o) {
    if (static_cast<StreamObject&>(*o).of == green) its.push_back(h);
  });
  for (const uint64_t stream : its) {
    dead.push_back(s.handles.remove(SLUICE_HANDLE_STREAM, stream));
    s.work.engine.remove_stream(static_cast<StreamObject&>(*dead.back()).id);
  }
  if (const auto own = std::exchange(green->default_stream, nullptr)) {
    dead.push_back(own);
    s.work.engine.remove_stream(own->id);
  }
  return CUDA_SUCCESS;
}

CUresult GenericCalls::cuGreenCtxStreamCreate(StreamHandle* out, GreenHandle handle, unsigned flags,
                                              int priority) {
  if (!out || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<GreenObject> green;
  {
    std::lock_guard lock(s.mutex);
    green = s.handles.find<GreenObject>(SLUICE_HANDLE_GREEN, handle.value);
  }
  if (!green || green->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
  return make_stream(out, StreamKind::kNonBlocking, flags, priority, green);
}

}  // namespace sluice::worker
