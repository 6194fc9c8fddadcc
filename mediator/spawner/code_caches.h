// SPDX-License-Identifier: Apache-2.0
// CodeCaches: folders in which NVIDIA's driver keeps the machine code that it made of PTX, one for
// each vGPU. All workers of a vGPU share it, so that a kernel is assembled once and not by every
// program; those of two vGPUs never do, because who writes there chooses what others run.
//
//   take(n)    of vGPU n: its folder, made if it has none
//   forget(n)  its folder goes: from view at once, its memory when its last worker has ended
//
// A folder is a tmpfs, so that a vGPU that fills it harms nobody else. It belongs to a user id that
// only its workers have: the driver lets no other user read what it makes there. There are as many
// folders as ids. One vGPU more takes the folder that has been out of use for longest; what was in
// it goes.
//
// Owned by the Spawner, its one thread. Needs CAP_SYS_ADMIN over its mount namespace, whose root is
// the workers' (root.h).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mediator/base/result.h"
#include "mediator/core/spawner_protocol.h"

namespace sluice::spawner {

// Where a worker sees its own, and CUDA_CACHE_PATH says so.
inline constexpr char kCodeCache[] = "/run/code";
// Where the spawner has all of them; a worker sees an empty folder there.
inline constexpr char kCodeCaches[] = "/run/codes";

class CodeCaches {
 public:
  // `ids`: of the folders. `own_ids`: false where workers have no ids of their own.
  static Result<CodeCaches> open(uint64_t bytes, spawner_protocol::UidRange ids, bool own_ids);

  struct Place {
    size_t folder = 0;  // which
    std::string path;
    uid_t id = 0;
    uint64_t bytes = 0;
  };
  // For one worker, until it leaves the folder. EAGAIN: all folders are in use.
  Result<Place> take(uint64_t number);
  void leave(size_t folder) { --folders_[folder].workers; }
  void forget(uint64_t number);

 private:
  struct Folder {
    uint64_t number = 0;  // of its vGPU; 0: nobody's
    uint64_t taken = 0;   // when it was last; grows
    uint32_t workers = 0;
    bool mounted = false;
  };
  Folder* find(uint64_t number);
  Folder* free_folder();
  std::string path_of(const Folder& folder) const;
  void clear(Folder& folder);

  uint64_t bytes_ = 0, taken_ = 0;
  spawner_protocol::UidRange ids_;
  bool own_ids_ = true;
  std::vector<Folder> folders_;
};

}  // namespace sluice::spawner
