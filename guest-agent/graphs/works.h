// SPDX-License-Identifier: Apache-2.0
// Nodes' works: from a program's parameters, and from what streams capture. Any thread; without the
// graphs' lock, because they call the driver.
#pragma once

#include "guest-agent/graphs/graph.h"

namespace sluice::graphs {

// Checked as CUDA checks it at the call; the program's memory is not read later. `before`: the
// work that it is to take the place of, or null. Not for children. An allocation's address is
// written to `params`.
CUresult make_work(CUgraphNodeParams& params, const Work* before, WorkPtr* to);

// Of calls that have been checked.
WorkPtr box_work(const CUDA_MEMCPY3D& box, uint64_t context);
WorkPtr fill_work(const CUDA_MEMSET_NODE_PARAMS& fill, uint64_t context);
WorkPtr host_work(CUhostFn function, void* data, uint64_t context);
WorkPtr event_work(CUevent event, bool wait);
// Of a stream's call on one value, or of one of several in a batch.
WorkPtr value_work(const CUstreamBatchMemOpParams& value, uint64_t context);
CUresult run_value(const CUstreamBatchMemOpParams& value, CUstream stream);
// The bytes that it writes or waits for; 0: neither.
unsigned value_bytes(CUstreamBatchMemOpType operation);
WorkPtr alloc_work(std::shared_ptr<GraphMemory> memory, size_t bytes);
WorkPtr free_work(std::shared_ptr<GraphMemory> memory);

}  // namespace sluice::graphs
