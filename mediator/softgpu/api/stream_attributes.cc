// SPDX-License-Identifier: Apache-2.0
// Attributes that programs set on streams. The priority counts for what is queued from then on;
// the others are kept to be asked for.
#include <algorithm>

#include "abi/cuda_graph.h"
#include "mediator/base/stream_attributes.h"
#include "mediator/softgpu/state/state.h"

using namespace sluice;
using namespace sluice::softgpu;

CUresult cuStreamSetAttribute(CUstream handle, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) {
  return with_stream(handle, [&](State&, Context& context, Stream& stream) {
    if (value == nullptr || !is_stream_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
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
    if (value == nullptr || !is_stream_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
    *value = initial_stream_attribute(attr);
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
