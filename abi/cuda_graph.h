/* CUDA graphs: the part of the driver API that the guest's libcuda.so.1 offers of them, in our own words
 * (NVIDIA, CUDA Driver API, "Graph Management"). Apart from abi/cuda_driver_functions.h, because no graph
 * crosses the channel: the guest captures and replays (guest-agent/shim/capture.h), the worker and its
 * driver see plain calls. C and C++.
 */
#ifndef SLUICE_ABI_CUDA_GRAPH_H
#define SLUICE_ABI_CUDA_GRAPH_H

#include "abi/cuda_driver.h"

typedef struct CUgraphExec_st* CUgraphExec;

/* Of the result only what we set; the fields are the API's. */
typedef struct CUgraphExecUpdateResultInfo_st {
  int result; /* CU_GRAPH_EXEC_UPDATE_* */
  CUgraphNode errorNode;
  CUgraphNode errorFromNode;
} CUgraphExecUpdateResultInfo;
enum { CU_GRAPH_EXEC_UPDATE_SUCCESS = 0, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2 };

/* X(symbol, name, since, parameters), as in abi/cuda_driver_functions.h. */
#define SLUICE_CUDA_GRAPH_FUNCTIONS(X) \
  X(cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode)) \
  X(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph* graph)) \
  X(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph)) \
  X(cuGraphGetNodes, cuGraphGetNodes, 10000, (CUgraph graph, CUgraphNode* nodes, size_t* num_nodes)) \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, \
    (CUgraphExec* exec, CUgraph graph, unsigned long long flags)) \
  X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, \
    (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result)) \
  X(cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream)) \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec exec))
/* Names that mean one of them from a version on. */
#define SLUICE_CUDA_GRAPH_ALIASES(Y) Y(cuGraphInstantiateWithFlags, "cuGraphInstantiate", 12000)

#ifdef __cplusplus
extern "C" {
#endif
#define SLUICE_DECLARE(symbol, name, since, parameters) \
  __attribute__((visibility("default"))) CUresult symbol parameters;
SLUICE_CUDA_GRAPH_FUNCTIONS(SLUICE_DECLARE)
#undef SLUICE_DECLARE
#ifdef __cplusplus
}
#endif
#ifndef SLUICE_CUDA_DRIVER_COMPARE
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuGraphInstantiate cuGraphInstantiateWithFlags
#define cuGraphExecUpdate cuGraphExecUpdate_v2
#endif

#endif /* SLUICE_ABI_CUDA_GRAPH_H */
