// SPDX-License-Identifier: Apache-2.0
// Prison: the walls around workers. `prepare` finds out which of them this host allows and puts up
// those that all workers share; `start` makes a new process behind all of them.
//
// Owned by the spawner, one thread (a process is made by clone3, so no other may run). A wall that
// cannot be had is left out, with the reason; nothing here decides whether that is good enough.
//
//   The spawner is           Walls
//   root, or CAP_SYS_ADMIN   all
//   allowed user namespaces  it enters one of its own, in which it is root; then all. Without
//                            CAP_SETUID workers keep our uid: Wall::kUser is missing
//   neither                  a uid of its own if CAP_SETUID, a cgroup if one can be written,
//                            Landlock
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/spawner_protocol.h"
#include "mediator/spawner/code_caches.h"
#include "mediator/spawner/walls/landlock.h"
#include "mediator/spawner/walls/root.h"

namespace sluice::spawner {

using spawner_protocol::Wall;

struct PrisonSpec {
  std::string runtime_dir;
  std::string worker;                    // the program
  std::string library;                   // a path, or a soname: then it is in a system folder
  std::vector<std::string> see;          // more files and folders to show, read-only
  std::vector<std::string> environment;  // NAME=value
  std::string mps;                       // NVIDIA's MPS: its pipe folder; empty: not used
  bool nvidia = false;
  spawner_protocol::UidRange uids;
};

// What a worker gets of the environment `given` (NAME=value). With a root folder of its own, its
// home and temporary files are there, NVIDIA's cache of machine code included, unless its vGPU has
// one (`code`). Without such a root it has no cache: workers would share it, and one would choose
// what another one runs.
std::vector<std::string> worker_environment(const std::vector<std::string>& given, bool own_root,
                                            const CodeCaches::Place* code = nullptr);

class Prison {
 public:
  // To be called once. `no_cgroups`: why there are none; empty: there are.
  static Prison prepare(PrisonSpec spec, const std::string& no_cgroups);

  // Goes through all of `start` but the program; a wall that stops it is left out. To be called
  // once, before any start.
  void rehearse(int cgroup);

  bool has(Wall wall) const { return missing_.count(wall) == 0; }
  const std::map<Wall, std::string>& missing() const { return missing_; }
  void lacks(Wall wall, const std::string& why) { missing_.emplace(wall, why); }

  struct Started {
    pid_t pid = -1;
    Fd pidfd;
    Fd go;      // a byte written here lets it run the program; closed without, it ends
    Fd failed;  // a Failure comes here, or the end of file when the program runs
  };
  struct Failure {
    Wall wall = Wall::kCount;  // kCount: not a wall's fault
    int code = 0;
    char what[56] = {};
  };
  // Before any start: the cache that each worker gets may be of this many bytes. Why there are
  // none: `bytes` is 0, or the host does not allow them.
  Result<void> open_code_caches(uint64_t bytes, spawner_protocol::UidRange ids);
  // Null: there are none.
  CodeCaches* code_caches() { return codes_ ? &*codes_ : nullptr; }

  // `n`: which uid of the range; `code`: its vGPU's cache of machine code, whose uid it has then;
  // or null. `cgroup`: -1: none.
  Result<Started> start(uint32_t n, int control, int output, int cgroup,
                        const CodeCaches::Place* code = nullptr);

 private:
  explicit Prison(PrisonSpec spec) : spec_(std::move(spec)) {}
  bool beside_mps() const { return spec_.nvidia && !spec_.mps.empty(); }
  // The steps of prepare(): what the host refuses, what workers see, going there.
  void find_missing_walls();
  RootSpec plan_root();
  void move_into(RootSpec root);
  Result<void> enter_user_namespace();
  Failure rehearse_once(int cgroup);
  uint64_t namespaces() const;

  // What a new process does: become_worker() and its steps, in this order. A step that fails ends
  // the process; `fail` is what reports why.
  struct Fail;
  [[noreturn]] void become_worker(uint32_t n, int control, int output, int go, int failed,
                                  bool rehearsal, const CodeCaches::Place* code);
  void mount_own_folders(uid_t id, const CodeCaches::Place* code, const Fail& fail) const;
  bool be_ended_first() const;
  void limit_resources() const;
  void become_user(uid_t id, uint64_t threads, const Fail& fail) const;
  void check_files(bool rehearsal, const Fail& fail) const;
  void wait_for_go(int go, const Fail& fail) const;
  void place_descriptors(int control, int output, Fail& fail) const;
  [[noreturn]] void run_program(const CodeCaches::Place* code, const Fail& fail) const;

  PrisonSpec spec_;
  LandlockPaths landlock_;
  std::optional<CodeCaches> codes_;
  Fd program_;  // the worker's: an upgrade puts another release's in its place
  Fd proc_;     // the host's /proc, opened before any wall
  Fd self_;     // a pidfd of the spawner: its children see by it whether it has gone
  std::map<Wall, std::string> missing_;
  bool in_user_namespace_ = false;
};

}  // namespace sluice::spawner
