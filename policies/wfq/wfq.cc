// SPDX-License-Identifier: Apache-2.0
// wfq: weighted fair queuing over measured GPU time. The default policy.
//
// It has a form for each way of sharing a GPU, and make_wfq() picks one:
//   one vGPU at a time   whole.h, which has the terms and the rules; this file adds none
//   side by side         spatial.cc, where parts of the GPU can be given
//   hardware slices      slices.cc, on a proportional preemptor
#include "policies/parts/in_units.h"
#include "policies/parts/share_tree.h"
#include "policies/wfq/forms.h"
#include "policies/wfq/whole.h"

namespace sluice::policy {
namespace {

class Wfq final : public WfqWhole {
 public:
  explicit Wfq(const Config& config) : WfqWhole(config) {}
  std::string_view name() const override { return "wfq"; }
};

}  // namespace

std::unique_ptr<Policy> make_wfq(const Config& config) {
  if (config.machine.preemptor == PreemptorKind::kProportional)
    return share_tree(config, make_wfq_slices(config));
  if (config.machine.spatial && config.machine.sm_count > 1)
    return in_units(config, make_wfq_spatial);  // with its own tree, behind units and pauses
  return share_tree(config, std::make_unique<Wfq>(config));
}

}  // namespace sluice::policy
