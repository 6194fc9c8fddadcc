// SPDX-License-Identifier: Apache-2.0
// What every file with driver functions needs. The functions themselves are declared in
// abi/cuda_driver.h and described in NVIDIA's CUDA Driver API reference; comments here tell only
// what is ours. Any thread may call any of them.
#pragma once

#include "abi/cuda_driver.h"
#include "guest-agent/shim/session/call_stub.h"
#include "guest-agent/shim/session/log.h"
#include "guest-agent/shim/session/worker_link.h"
#include "guest-agent/shim/state/default_stream.h"
#include "guest-agent/shim/state/state.h"
