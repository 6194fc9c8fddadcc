// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/side_by_side.h"

#include <unistd.h>

#include "mediator/daemon/scheduling/sharing_checks.h"
#include "mediator/gpu/soft_gpu.h"

namespace sluice {
namespace {

Error refuse_turns(const std::string& why) { return Error{EINVAL, "scheduler.turns: " + why}; }

std::string soft_not_side_by_side(const Config& c, const std::vector<std::string>& environment) {
  if (const std::string mode = value_of(environment, "SLUICE_SOFT_MODE"); mode != "mps")
    return "SLUICE_SOFT_MODE is \"" + mode +
           "\" in the workers' environment; contexts run side by side only in \"mps\"";
  // Whoever makes the file decides; one that the configuration names may be there.
  if (c.soft_file.empty() || ::access(c.soft_file.c_str(), F_OK) != 0) return "";
  auto gpu = gpu::SoftGpu::open(c.soft_file, false);
  if (!gpu) return gpu.error().message;
  if ((*gpu)->info().mode == SLUICE_SOFT_MPS) return "";
  return c.soft_file +
         " is a software GPU whose contexts take turns; remove it, and a new one is made";
}

}  // namespace

std::string not_side_by_side(const Config& c, bool nvidia,
                             const std::vector<std::string>& environment) {
  if (!nvidia) return soft_not_side_by_side(c, environment);
  return mps_missing(value_of(environment, kMpsPipes));
}

std::string mps_missing(const std::string& pipes) {
  if (::access((pipes + "/control").c_str(), F_OK) == 0) return "";
  return "there is no MPS server at " + pipes +
         ", and without it NVIDIA's contexts take turns; start one (`systemctl start sluice-mps`), "
         "or name the pipe folder of your own as device.mps_pipes";
}

Result<void> check_turns(const Config& c, bool nvidia,
                         const std::vector<std::string>& environment) {
  if (!c.turns_by_priority) return {};
  if (c.spatial || c.slices)
    return refuse_turns(
        "turns are of the whole GPU; unset scheduler.spatial and scheduler.slices, or set "
        "scheduler.turns to \"eviction\"");
  const auto can = [](const policy::Registration& row) { return row.exclusive; };
  if (!policy_can(c.policy, can))
    return refuse_turns("policy " + c.policy +
                        " gives no turns; those that do are: " + policies_that(can));
  if (const std::string why = not_side_by_side(c, nvidia, environment); !why.empty())
    return refuse_turns(why);
  return {};
}

}  // namespace sluice
