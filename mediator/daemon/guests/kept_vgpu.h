// SPDX-License-Identifier: Apache-2.0
// What sluiced writes down of its vGPUs and groups for the sluiced that comes after it
// (io/fd_store.h), as text. Pure. The text is read by sluiced only, of this version or of one
// around it: what it does not know makes a parcel useless, and its vGPU is then gone as without a
// store.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/core/penalty.h"
#include "policies/policy.h"

namespace sluice {

struct KeptVgpu {
  std::string name;
  policy::VgpuShare share;  // but for its group
  std::string group;        // by name; empty: the root
  uint64_t memory_bytes = 0;
  std::string socket;
  std::string owner;
  std::string mode;  // that it insists on; empty: none
  uint64_t region_bytes = 0;
  uint32_t slots = 0;
  bool paused = false;
  core::Penalty::Owed owed;  // an earlier sluiced may not have noted it
  // Of the connection; not read again. A text with another one is of other descriptors.
  uint64_t life = 0;
};

struct KeptGroup {
  std::string name;
  std::string parent;  // by name; empty: the root. Earlier in the list.
  policy::GroupShare share;
};

std::string kept_text(const KeptVgpu& vgpu);
std::string kept_text(const std::vector<KeptGroup>& groups);
Result<KeptVgpu> read_kept_vgpu(const std::string& text);
Result<std::vector<KeptGroup>> read_kept_groups(const std::string& text);

}  // namespace sluice
