// SPDX-License-Identifier: Apache-2.0
// Attributes that programs set on streams. The priority counts for what is queued from then on;
// the others are kept to be asked for.
#include <algorithm>
#include <cstring>

#include "abi/cuda_graph.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

namespace {

bool is_of_streams(CUstreamAttrID attr) {
  return attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         attr == CU_LAUNCH_ATTRIBUTE_PRIORITY || attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

// What a stream has before the program sets anything.
CUstreamAttrValue initial_value(CUstreamAttrID attr) {
  CUstreamAttrValue value;
  std::memset(&value, 0, sizeof value);
  constexpr int kWaitAutomatically = 1;  // CU_SYNC_POLICY_AUTO
  if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.priority = kWaitAutomatically;
  if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.pad[1] = 1;  // remote: domain 1
  return value;
}

}  // namespace

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) {
  return with_stream(handle, [&](State&, Context& context, Stream& stream) {
    if (value == nullptr || !is_of_streams(attr)) return CUDA_ERROR_INVALID_VALUE;
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      stream.priority = std::clamp(value->priority, kGreatestPriority, kLeastPriority);
      return CUDA_SUCCESS;
    }
    std::lock_guard lock(context.mutex);
    stream.attributes[attr] = *value;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetAttribute(CUstream handle, CUstreamAttrID attr, CUstreamAttrValue* value) {
  return with_stream(handle, [&](State&, Context& context, Stream& stream) {
    if (value == nullptr || !is_of_streams(attr)) return CUDA_ERROR_INVALID_VALUE;
    *value = initial_value(attr);
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) value->priority = stream.priority;
    std::lock_guard lock(context.mutex);
    if (const auto set = stream.attributes.find(attr); set != stream.attributes.end())
      *value = set->second;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  return with_stream(from, [&](State&, Context& context, Stream& source) {
    const int priority = source.priority;
    std::unique_lock lock(context.mutex);
    const auto copy = source.attributes;
    lock.unlock();
    return with_stream(to, [&](State&, Context& of_target, Stream& target) {
      target.priority = priority;
      std::lock_guard again(of_target.mutex);
      target.attributes = copy;
      return CUDA_SUCCESS;
    });
  });
}
