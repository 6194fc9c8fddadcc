// SPDX-License-Identifier: Apache-2.0
// How a new sluice-agent takes the place of one that runs, after an upgrade of its package: in the
// same process, by execve(2). Descriptors stay open, so nothing ends: neither the device, nor the
// programs' connections, nor their sessions on the host. All else that the new one has to know is
// text in an anonymous file, whose descriptor it is given as an argument.
//
// One thread. The text is our own: it is checked so that another release's is refused, not because
// somebody could forge it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "guest-agent/agent/agent_state.h"
#include "guest-agent/agent/vgpu_device.h"

namespace sluice::guest {

Result<Fd> write_state(const VgpuDevice& device, const AgentState& state);

struct Inherited {
  std::unique_ptr<VgpuDevice> device;  // mapped anew
  AgentState state;
};
// Takes the descriptors that are named there. Error: the caller starts as if there had been no
// agent before, or ends.
Result<Inherited> read_state(Fd text);

// Runs `program` in this process's place with the descriptors of both, and `--successor N` behind
// `arguments`. Returns only where that fails, with everything as it was.
Error start_successor(const std::string& program, const std::vector<std::string>& arguments,
                      const VgpuDevice& device, const AgentState& state);

}  // namespace sluice::guest
