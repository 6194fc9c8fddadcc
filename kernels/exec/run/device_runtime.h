// SPDX-License-Identifier: Apache-2.0
// CUDA's device runtime, as far as it is there: launches of kernels by kernels, with what programs
// call around them. Internal to kernels/exec; one thread at a time.
#pragma once

#include <optional>

#include "kernels/exec/program/inst.h"
#include "kernels/exec/run/lane_call.h"

namespace sluice::exec::detail {

// One lane's call. The result, of as many bytes as the function's has; nothing: the lane has
// faulted, and `detail` says why.
std::optional<uint64_t> call_device_runtime(Builtin function, const LaneMemory& memory,
                                            const Parameters& parameters, std::string& detail);

}  // namespace sluice::exec::detail
