// SPDX-License-Identifier: Apache-2.0
#include "guest-agent/shim/calls/stream_attributes.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "abi/cuda_graph.h"
#include "guest-agent/shim/state/api.h"
#include "mediator/base/stream_attributes.h"

namespace sluice::guest {

namespace {

using Attributes = std::map<CUstreamAttrID, CUstreamAttrValue>;

struct AllAttributes {
  std::mutex mutex;
  std::map<CUstream, Attributes> streams;  // the legacy stream as null
};
AllAttributes& all_attributes() {
  static auto* it = new AllAttributes;
  return *it;
}

CUstream key_of(CUstream stream) { return stream == CU_STREAM_LEGACY ? nullptr : stream; }

}  // namespace

std::optional<int> later_priority(CUstream stream) {
  std::lock_guard lock(all_attributes().mutex);
  const auto of_stream = all_attributes().streams.find(key_of(stream));
  if (of_stream == all_attributes().streams.end()) return std::nullopt;
  const auto set = of_stream->second.find(CU_LAUNCH_ATTRIBUTE_PRIORITY);
  if (set == of_stream->second.end()) return std::nullopt;
  return set->second.priority;
}

CUresult clamp_priority(int& priority) {
  if (priority == 0) return CUDA_SUCCESS;
  int least = 0, greatest = 0;
  const CUresult bad = cuCtxGetStreamPriorityRange(&least, &greatest);
  if (bad == CUDA_SUCCESS) priority = std::clamp(priority, greatest, least);
  return bad;
}

void forget_attributes(CUstream stream) {
  std::lock_guard lock(all_attributes().mutex);
  all_attributes().streams.erase(stream);
}

}  // namespace sluice::guest

using namespace sluice::guest;

CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID attr,
                              const CUstreamAttrValue* value) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (value == nullptr || !sluice::is_stream_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  CUstreamAttrValue kept = *value;
  if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
    if (const CUresult bad = clamp_priority(kept.priority); bad != CUDA_SUCCESS) return bad;
  std::lock_guard lock(all_attributes().mutex);
  all_attributes().streams[key_of(stream)][attr] = kept;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID attr, CUstreamAttrValue* value) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (value == nullptr || !sluice::is_stream_attribute(attr)) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  *value = sluice::initial_stream_attribute(attr);
  if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) return cuStreamGetPriority(stream, &value->priority);
  std::lock_guard lock(all_attributes().mutex);
  const auto of_stream = all_attributes().streams.find(key_of(stream));
  if (of_stream == all_attributes().streams.end()) return CUDA_SUCCESS;
  const auto set = of_stream->second.find(attr);
  if (set != of_stream->second.end()) *value = set->second;
  return CUDA_SUCCESS;
}

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
  const Entered e = enter_context();
  if (!e) return e.status;
  for (CUstream* stream : {&dst, &src})
    if (const CUresult bad = resolve_stream(*stream); bad != CUDA_SUCCESS) return bad;
  std::lock_guard lock(all_attributes().mutex);
  auto& streams = all_attributes().streams;
  const auto from = streams.find(key_of(src));
  const Attributes copy = from == streams.end() ? Attributes{} : from->second;
  streams[key_of(dst)] = copy;
  return CUDA_SUCCESS;
}
