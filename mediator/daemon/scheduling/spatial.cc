// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/scheduling/spatial.h"

#include <unistd.h>

#include <algorithm>

#include "mediator/base/sm_set.h"
#include "mediator/daemon/scheduling/sharing_checks.h"
#include "mediator/daemon/scheduling/side_by_side.h"
#include "mediator/gpu/soft_gpu.h"

namespace sluice {
namespace {

Error refuse(const std::string& why) { return Error{EINVAL, "scheduler.spatial: " + why}; }

Result<uint32_t> soft_sms(const Config& c) {
  // Whoever makes the file decides; one that the configuration names may be there.
  if (c.soft_file.empty() || ::access(c.soft_file.c_str(), F_OK) != 0) return c.soft_sms;
  auto gpu = gpu::SoftGpu::open(c.soft_file, false);
  if (!gpu) return refuse(gpu.error().message);
  if (const uint32_t sms = (*gpu)->info().sms; sms != c.soft_sms)
    return refuse(c.soft_file + " has " + std::to_string(sms) + " SMs and device.soft_sms is " +
                  std::to_string(c.soft_sms) + "; remove the file, or set device.soft_sms");
  return c.soft_sms;
}

Result<uint32_t> nvidia_sms(const Config& c) {
  if (c.nvidia_sms == 0)
    return refuse(
        "device.nvidia_sms must say how many SMs the GPU has (`nvidia-smi -q` names the GPU; an "
        "H200 has 132)");
  return c.nvidia_sms;
}

}  // namespace

Result<uint32_t> spatial_sms(const Config& c, bool nvidia,
                             const std::vector<std::string>& environment) {
  if (!c.spatial) return 0u;
  const auto can = [](const policy::Registration& row) { return row.parts && row.exclusive; };
  if (!policy_can(c.policy, can))
    return refuse(
        "policy " + c.policy +
        " gives the GPU to one at a time; those that share it by SMs are: " + policies_that(can));
  auto sms = nvidia ? nvidia_sms(c) : soft_sms(c);
  if (!sms) return sms;
  if (const std::string why = not_side_by_side(c, nvidia, environment); !why.empty())
    return refuse(why);
  if (*sms > SmSet::kMax)
    return refuse("the GPU has more SMs than a grant can name (" + std::to_string(SmSet::kMax) +
                  ")");
  return sms;
}

Result<uint32_t> spatial_unit(const Config& c, uint32_t sms) {
  if (sms == 0) return 1u;
  if (c.sm_unit == 0) return c.green_contexts ? std::min(kSmUnit, sms) : 1;
  if (sms % c.sm_unit != 0)
    return refuse("device.sm_unit is " + std::to_string(c.sm_unit) + ", and the GPU's " +
                  std::to_string(sms) + " SMs are no whole number of such units");
  return c.sm_unit;
}

}  // namespace sluice
