// SPDX-License-Identifier: Apache-2.0
// The driver API's green contexts: groups of SMs, contexts and streams that have only those (CUDA
// Driver API, "Green Contexts"). All else of such a context is the primary context's: memory,
// functions, events, its slot in the GPU file. A resource is a value in the program's hands, so it
// is signed, and one that was not made here is refused. Group k of a split into groups of n has the
// SMs k * n to k * n + n - 1 of what was split, or others (Config::green): on an H200 they come in
// an order of the chip's.
#include <algorithm>
#include <cstring>

#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

// What CUdevResource::internal holds.
struct Mark {
  uint64_t key;    // of this process
  uint64_t split;  // of which it is a part, and may not be split again; 0: none
  GroupRule rule;  // of the split, and so of a context's resources
  uint64_t sms[kSmWords];
  uint64_t check;  // over all of the resource but this
};
static_assert(sizeof(Mark) <= sizeof(CUdevResource::internal));

uint64_t check_of(const CUdevResource& resource, Mark mark) {
  mark.check = 0;
  uint64_t hash = 0xcbf2'9ce4'8422'2325;
  const auto add = [&hash](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 0x100'0000'01b3;
  };
  add(&mark, sizeof mark);
  add(&resource.sm, sizeof resource.sm);
  return hash;
}

uint32_t group_size(GroupRule rule, uint32_t wanted) {
  const uint32_t most = std::max({wanted, rule.least, 1u});
  return (most + rule.multiple - 1) / rule.multiple * rule.multiple;
}

// As the manual tells of the compute capabilities, or the smallest that the GPU has. A GPU that has
// fewer SMs than that is one group.
GroupRule group_rule(const State& s, unsigned flags) {
  const uint32_t smallest = s.gpu->info().sm_group, major = s.gpu->model().major;
  if ((flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) != 0) return {smallest, smallest};
  GroupRule rule = major >= 9 ? GroupRule{8, 8} : major == 8 ? GroupRule{4, 2} : GroupRule{2, 2};
  if (rule.least < smallest || rule.multiple < smallest)
    rule = {std::max(rule.least, smallest), smallest};
  return s.runner.sms() < rule.least ? GroupRule{s.runner.sms(), s.runner.sms()} : rule;
}

CUdevResource make_resource(const State& s, const SmSet& sms, GroupRule rule, uint64_t split) {
  CUdevResource resource;
  std::memset(&resource, 0, sizeof resource);
  if (sms.none()) return resource;  // CU_DEV_RESOURCE_TYPE_INVALID
  resource.type = CU_DEV_RESOURCE_TYPE_SM;
  resource.sm.smCount = static_cast<uint32_t>(sms.count());
  if (split == 0) {  // parts of a split have none, as they cannot be split
    resource.sm.minSmPartitionSize = rule.least;
    resource.sm.smCoscheduledAlignment = rule.multiple;
  }
  Mark mark{s.resource_key, split, rule, {}, 0};
  for (uint32_t sm = 0; sm < kMaxSms; ++sm)
    if (sms[sm]) mark.sms[sm / 64] |= uint64_t{1} << sm % 64;
  mark.check = check_of(resource, mark);
  std::memcpy(resource.internal, &mark, sizeof mark);
  return resource;
}

CUresult read_resource(const State& s, const CUdevResource& resource, Mark& mark, SmSet& sms) {
  if (resource.type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  std::memcpy(&mark, resource.internal, sizeof mark);
  if (mark.key != s.resource_key || mark.check != check_of(resource, mark))
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  for (uint32_t sm = 0; sm < kMaxSms; ++sm) sms[sm] = mark.sms[sm / 64] >> sm % 64 & 1;
  return CUDA_SUCCESS;
}

// The manual's oldest is compute capability 6.
bool offered(const State& s) { return s.gpu->info().sm_group != 0 && s.gpu->model().major >= 6; }

CUresult give_resource(State& s, const SmSet& sms, GroupRule rule, CUdevResource* out,
                       CUdevResourceType type) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  if (!offered(s)) return CUDA_ERROR_NOT_SUPPORTED;
  *out = make_resource(s, sms, rule, 0);
  return CUDA_SUCCESS;
}

SmSet first_sms(uint32_t count) {
  SmSet set;
  for (uint32_t sm = 0; sm < count; ++sm) set.set(sm);
  return set;
}

// In which order SMs go to groups (Config::green): by their numbers; the smallest groups with odd
// numbers first; or one of the lower half, one of the upper half, and so on.
std::vector<uint32_t> split_order(const State& s, const SmSet& sms) {
  std::vector<uint32_t> sorted;
  for (uint32_t sm = 0; sm < kMaxSms; ++sm)
    if (sms[sm]) sorted.push_back(sm);
  std::vector<uint32_t> order = sorted;
  if (s.config.green == GreenContexts::kPermuted) {
    const size_t group = s.gpu->info().sm_group, groups = sorted.size() / group, odd = groups / 2;
    for (size_t i = 0; i < groups * group; ++i) {
      const size_t at = i / group;
      order[i] = sorted[(at < odd ? 2 * at + 1 : 2 * (at - odd)) * group + i % group];
    }
  } else if (s.config.green == GreenContexts::kScattered) {
    const size_t half = (sorted.size() + 1) / 2;
    for (size_t i = 0; i < sorted.size(); ++i) order[i] = sorted[i / 2 + (i % 2 == 0 ? 0 : half)];
  }
  return order;
}

// Of a handle that names none: one that did once is known by its type.
CUresult no_green(const State& s, CUgreenCtx handle) {
  return s.tables.greens.is_of_type(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                            : CUDA_ERROR_INVALID_CONTEXT;
}

// Runs f(State&, GreenContext&) for a green context that is there and has not failed.
template <class F>
CUresult with_green(CUgreenCtx handle, F f) {
  return with_state([&](State& s) -> CUresult {
    const std::shared_ptr<GreenContext> green = s.tables.greens.find(handle);
    if (!green) return no_green(s, handle);
    if (green->gone()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (const int error = green->context->error.load(); error != 0)
      return static_cast<CUresult>(error);
    return f(s, green);
  });
}

}  // namespace

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  return with_state([&](State& s) {
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    return give_resource(s, first_sms(s.runner.sms()), group_rule(s, 0), resource, type);
  });
}

CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  return with_state([&](State& s) {
    const Current named = find_context(s, handle);
    if (!named) return CUDA_ERROR_INVALID_CONTEXT;
    if (named.green) return give_resource(s, named.green->sms, named.green->rule, resource, type);
    return give_resource(s, s.runner.sms_of(named.context->slot), group_rule(s, 0), resource, type);
  });
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource,
                                  CUdevResourceType type) {
  return with_green(handle, [&](State& s, const std::shared_ptr<GreenContext>& green) {
    return give_resource(s, green->sms, green->rule, resource, type);
  });
}

// Clusters of thread blocks are not offered, so there are no groups that suit them better.
CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups,
                                     const CUdevResource* input, CUdevResource* remaining,
                                     unsigned int flags, unsigned int min_count) {
  return with_state([&](State& s) -> CUresult {
    // As an H200's driver (580): flags that it does not know are none.
    constexpr unsigned kBoth = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                               CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    if (groups == nullptr || input == nullptr || (flags & kBoth) == kBoth)
      return CUDA_ERROR_INVALID_VALUE;
    if ((flags & CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE) != 0 &&
        s.gpu->model().major < 9)
      return CUDA_ERROR_INVALID_VALUE;
    Mark mark;
    SmSet all;
    if (const CUresult r = read_resource(s, *input, mark, all); r != CUDA_SUCCESS) return r;
    const auto there = static_cast<uint32_t>(all.count());
    if (mark.split != 0 || min_count > there) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result != nullptr && *groups == 0) return CUDA_ERROR_INVALID_VALUE;
    const GroupRule rule = group_rule(s, flags);
    const uint32_t size = std::min(group_size(rule, min_count), there);
    const uint32_t possible = there / size;
    if (result == nullptr) {  // only asked
      *groups = possible;
      return CUDA_SUCCESS;
    }
    const uint32_t made = std::min(*groups, possible);
    const uint64_t split = s.next_split_id.fetch_add(1, std::memory_order_relaxed);
    const std::vector<uint32_t> order = split_order(s, all);
    for (uint32_t group = 0; group < made; ++group) {
      SmSet its;
      for (uint32_t i = 0; i < size; ++i) its.set(order[group * size + i]);
      result[group] = make_resource(s, its, rule, split);
      all &= ~its;
    }
    if (remaining != nullptr) *remaining = make_resource(s, all, rule, split);
    *groups = made;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                   unsigned int count) {
  return with_state([&](State& s) -> CUresult {
    if (out == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
    auto desc = std::make_shared<ResourceDesc>();
    uint64_t split = 0;
    for (unsigned i = 0; i < count; ++i) {
      Mark mark;
      SmSet sms;
      if (const CUresult r = read_resource(s, resources[i], mark, sms); r != CUDA_SUCCESS) return r;
      if (i == 0) {
        split = mark.split;
        desc->rule = mark.rule;
      }
      // More than one: different parts of one split.
      if (i != 0 && (split == 0 || mark.split != split || (desc->sms & sms).any()))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      desc->sms |= sms;
    }
    *out = s.tables.resource_descs.add(std::move(desc));
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc handle, CUdevice device,
                          unsigned int flags) {
  return with_state([&](State& s) -> CUresult {
    const std::shared_ptr<ResourceDesc> desc = s.tables.resource_descs.find(handle);
    if (out == nullptr || !desc || flags != CU_GREEN_CTX_DEFAULT_STREAM)
      return CUDA_ERROR_INVALID_VALUE;
    if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (s.config.green == GreenContexts::kFail) return CUDA_ERROR_OUT_OF_MEMORY;
    auto green = std::make_shared<GreenContext>();
    green->context = retain_primary(s);
    if (green->context == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    if (const int error = green->context->error.load(); error != 0) {
      release_primary(s, green->context.get(), false);
      return static_cast<CUresult>(error);
    }
    green->sms = desc->sms;
    green->rule = desc->rule;
    {
      std::lock_guard lock(s.mutex);
      green->id = s.next_context_id++;
      ++s.green_contexts;
    }
    green->default_stream = make_stream(s, green->context, green, CU_STREAM_DEFAULT, 0);
    green->view = s.tables.green_views.add(green);
    green->handle = s.tables.greens.add(green);
    *out = green->handle;
    return CUDA_SUCCESS;
  });
}

// Waits for its work, as the end of any context. Its streams' handles stay, and tell that it is
// gone.
CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  return with_state([&](State& s) {
    const std::shared_ptr<GreenContext> green = s.tables.greens.remove(handle);
    if (!green) return no_green(s, handle);
    const bool was_gone = green->context->destroyed.load();
    green->destroyed.store(true);
    s.tables.green_views.remove(green->view);
    s.scheduler.wait(*green);
    s.scheduler.remove_streams(*green);
    {
      std::lock_guard lock(s.mutex);
      --s.green_contexts;
    }
    release_primary(s, green->context.get(), false);
    return was_gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
  });
}

CUresult cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  return with_green(handle, [&](State&, const std::shared_ptr<GreenContext>& green) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = green->view;
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx handle, unsigned int flags,
                                int priority) {
  return with_green(handle, [&](State& s, const std::shared_ptr<GreenContext>& green) {
    if (out == nullptr || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *out = s.tables.streams.add(make_stream(s, green->context, green, flags, priority));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* out) {
  return with_stream(handle, [&](State&, Context&, Stream& stream) {
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto green = stream.green.lock();
    *out = green ? green->handle : nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event_handle) {
  return with_green(handle, [&](State& s, const std::shared_ptr<GreenContext>& green) {
    const std::shared_ptr<Event> event = s.tables.events.find(event_handle);
    if (!event || event->context.lock() != green->context) return CUDA_ERROR_INVALID_HANDLE;
    auto operation = std::make_shared<Operation>();
    std::lock_guard lock(event->mutex);  // as cuEventRecord
    s.scheduler.enqueue(*green, operation);
    event->recorded = std::move(operation);
    return CUDA_SUCCESS;
  });
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event_handle) {
  return with_green(handle, [&](State& s, const std::shared_ptr<GreenContext>& green) {
    const std::shared_ptr<Event> event = s.tables.events.find(event_handle);
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    OperationRef before;
    {
      std::lock_guard lock(event->mutex);
      before = event->recorded;
    }
    if (before && !before->is_done()) s.scheduler.hold_up(*green, before);
    return CUDA_SUCCESS;
  });
}
