// SPDX-License-Identifier: Apache-2.0
// The root folder that workers see: a small tree in memory with read-only binds of what the loader
// and the driver's libraries need, the GPU's device files, and nothing of the host besides. No
// /etc/shadow, no /home, no socket of sluiced.
//
// Built once by the spawner, which then lives in it itself; each worker gets a copy of this mount
// namespace, so that starting one costs no more than its own /proc and /tmp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mediator/base/result.h"

namespace sluice::spawner {

struct RootSpec {
  std::string runtime_dir;         // hidden under the new root while that is built
  std::vector<std::string> read;   // files and folders to show, read-only, where they are
  std::vector<std::string> write;  // folders to share as they are (MPS)
  bool nvidia = false;
  bool own_proc = true;  // each worker mounts its own; else the host's is shown, read-only
};

// Where a worker's own tmpfs goes, of which it may write; TMPDIR and HOME say so.
inline constexpr char kOwnFolder[] = "/run/worker";

// What of the host every worker needs to read: libraries, the loader's cache, and NVIDIA's few
// files. Of /sys what describes devices: cgroups and the kernel's own there name other guests.
std::vector<std::string> system_paths(bool nvidia);
// Whether a name in /dev is one of NVIDIA's that programs compute with.
bool computes(std::string_view name);
// Device files: the harmless ones, and those.
std::vector<std::string> device_paths(bool nvidia);

// In a mount namespace of this process's own. Afterwards `/` is that root.
Result<void> enter_root(const RootSpec& spec);

}  // namespace sluice::spawner
