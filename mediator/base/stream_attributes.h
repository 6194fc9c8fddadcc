// SPDX-License-Identifier: Apache-2.0
// What attributes CUDA streams have, and their first values (CUDA driver API, CUlaunchAttributeID).
// For the guest's library and for the software GPU, which both keep them.
#pragma once

#include <cstring>

#include "abi/cuda_graph.h"

namespace sluice {

inline bool is_stream_attribute(CUstreamAttrID attr) {
  return attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
         attr == CU_LAUNCH_ATTRIBUTE_PRIORITY || attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
         attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

// Before the program sets anything.
inline CUstreamAttrValue initial_stream_attribute(CUstreamAttrID attr) {
  CUstreamAttrValue value;
  std::memset(&value, 0, sizeof value);
  constexpr int kWaitAutomatically = 1;  // CU_SYNC_POLICY_AUTO
  if (attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.priority = kWaitAutomatically;
  if (attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.pad[1] = 1;  // remote: domain 1
  return value;
}

}  // namespace sluice
