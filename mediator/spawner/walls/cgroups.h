// SPDX-License-Identifier: Apache-2.0
// Cgroups: one cgroup v2 folder for all workers of this runtime directory, in it one for each vGPU
// that has workers, and in that one for each worker. A cgroup ends as a whole, whatever the
// processes in it have made of themselves.
//
// Limits: what a worker may take at most is enforced by the controllers memory, pids and cpu, where
// the host delegates them to the folder above. A folder that has processes of its own cannot hand
// on memory, so sluiced stands in a folder beside the workers' (kHostFolder, DelegateSubgroup= of
// its unit). A controller that is missing leaves its limit out, and `missing_limits` says why.
//
//   sluiced.service/          controllers are handed on from here
//     sluice-host/            sluiced, keeper, spawner
//     sluice-workers.TAG/     and from here
//       v1/ v2/ ...           cpu.weight: a vGPU has one share of the processors, whatever its
//                             workers; and from here
//         w0/ w1/ ...         memory.max, pids.max, cpu.weight
//
// A worker's is named "v1/w0"; one that is no vGPU's, "w0".
//
// The folder is locked (flock) as long as the object lives, so that another sluiced can tell
// folders in use from abandoned ones. The next one removes abandoned folders that are empty.
//
// Owned by the spawner, one thread. Needs no controller. Without a cgroup2 mount that can be
// written there is none of it, and `open` says why. Works on open folders, so it goes on after a
// change of root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::spawner {

inline constexpr char kHostFolder[] = "sluice-host";

// What the processes of one worker may take; 0: no limit.
struct CgroupLimits {
  uint64_t memory_bytes = 0;
  uint64_t threads = 0;
};

class Cgroups {
 public:
  // In the spawner's own cgroup; `tag` tells the folders of several sluiced apart. What an earlier
  // one left there is there still: see `end_all`.
  static Result<Cgroups> open(const std::string& tag);

  // The same in this folder, for tests.
  static Result<Cgroups> open_in(const std::string& parent, const std::string& tag);

  const std::string& path() const { return path_; }
  // "memory: why", one for each controller that the workers' cgroups do not have.
  const std::vector<std::string>& missing_limits() const { return missing_limits_; }
  // A new one, and its vGPU's where there is none, as a descriptor for CLONE_INTO_CGROUP. A limit
  // that cannot be set is an error. Where somebody has removed the folder, it is made again, with
  // the limits that there were.
  Result<Fd> make(const std::string& name, const CgroupLimits& limits = {});
  void kill(const std::string& name);
  // For how long nothing of its vGPU ran although something could have (cpu.pressure, "full"), each
  // processor by its part: who has its own workers take its share starves by itself. Nothing: the
  // kernel does not count that.
  std::optional<uint64_t> starved_ns(const std::string& name) const;
  // Removes an empty one, and its vGPU's if that was the last; false: something in it is still
  // dying.
  bool remove(const std::string& name);
  // Ends all that runs in any of them and removes them. Returns how many processes there were.
  size_t end_all();
  // The same, and the folder itself. Nothing can be made in it any more.
  void end();

 private:
  enum Controller { kMemory, kPids, kCpu, kControllers };
  Result<void> make_folder();
  Result<void> make_folder_again();
  Result<void> make_vgpu(const std::string& name);
  void remove_dead() const;
  void hand_on_controllers(const std::string& parent);
  static void weigh_host(const std::string& parent);
  Result<void> set_limits(int folder, const CgroupLimits& limits) const;

  bool has_[kControllers] = {};
  std::vector<std::string> missing_limits_;
  std::string path_, name_;
  Fd parent_, folder_;
};

// The same for the folder of an earlier sluiced, which may be elsewhere; only a folder that has
// such a name is touched.
size_t end_cgroups_at(const std::string& path);

}  // namespace sluice::spawner
