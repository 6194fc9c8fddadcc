// SPDX-License-Identifier: Apache-2.0
// Cgroups: one cgroup v2 folder for all workers of this runtime directory, and one in it per
// worker. A cgroup ends as a whole, whatever the processes in it have made of themselves.
//
// Owned by the spawner, one thread. Needs no controller. Without a cgroup2 mount that can be
// written there is none of it, and `open` says why. Works on open folders, so it goes on after a
// change of root.
#pragma once

#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::spawner {

class Cgroups {
 public:
  // In the spawner's own cgroup; `tag` tells the folders of several sluiced apart. What an earlier
  // one left there is there still: see `end_all`.
  static Result<Cgroups> open(const std::string& tag);

  const std::string& path() const { return path_; }
  // A new one, as a descriptor for CLONE_INTO_CGROUP.
  Result<Fd> make(const std::string& name);
  void kill(const std::string& name);
  // Removes an empty one; false: something in it is still dying.
  bool remove(const std::string& name);
  // Ends all that runs in any of them and removes them. Returns how many processes there were.
  size_t end_all();

 private:
  std::string path_;
  Fd folder_;
};

// The same for the folder of an earlier sluiced, which may be elsewhere; only a folder that has
// such a name is touched.
size_t end_cgroups_at(const std::string& path);

}  // namespace sluice::spawner
