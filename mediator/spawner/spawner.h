// SPDX-License-Identifier: Apache-2.0
// Spawner: starts workers behind the walls of prison.h, hands sluiced a pidfd of each, ends them,
// reaps them and reports their exit. A child of the keeper (keeper.h), which has its Setup.
//
// One thread, blocking sends: sluiced is the only one that it serves, and it reads no byte that a
// worker has written. It ends, and all workers with it, when sluiced closes the connection or
// breaks the protocol; should it die itself, the kernel ends its children (PR_SET_PDEATHSIG).
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/spawner_protocol.h"
#include "mediator/spawner/kernel_log.h"
#include "mediator/spawner/running_file.h"
#include "mediator/spawner/switch_recorder.h"
#include "mediator/spawner/walls/cgroups.h"
#include "mediator/spawner/walls/prison.h"

namespace sluice::spawner {

class Spawner {
 public:
  // `sluiced`: the process at the other end of `control`, for the file of what runs.
  Spawner(Fd control, spawner_protocol::Packet setup, pid_t sluiced)
      : control_(std::move(control)), setup_(std::move(setup)), sluiced_(sluiced) {}
  // Serves until the connection ends. The exit status of the program.
  int run();

 private:
  struct Worker {
    uint64_t id = 0;
    uint32_t slot = 0;   // which uid of the range
    std::string cgroup;  // its name
    Prison::Started process;
    std::optional<size_t> code;  // which cache of machine code is its vGPU's
  };

  // The steps of set_up(): what sluiced has asked for, what an earlier one left, why there is no
  // kernel log (empty: there is one).
  Result<void> set_up();
  Result<void> send_hello(const std::string& no_log, bool counts_starved);
  Result<PrisonSpec> read_setup();
  Result<void> end_earlier_workers(const std::string& runtime_dir, std::string* no_cgroups);
  std::string open_kernel_log();
  void start_switch_recorder();
  void open_code_caches(const spawner_protocol::UidRange& uids);
  Result<void> serve();
  Result<void> on_packet();
  // `asked.flag`: its region, which the cgroup that touches it first is charged for.
  Result<void> spawn(const spawner_protocol::Header& asked, int control, int output);
  std::optional<CodeCaches::Place> take_code_cache(uint64_t vgpu);
  void leave_code_cache(const Worker& worker);
  CgroupLimits limits_of(uint32_t shared_mib) const;
  void kill(pid_t pid, Worker& worker);
  Result<void> reap();
  Result<void> answer_starved(uint64_t id);
  Result<void> read_kernel_log();
  void end_all();
  std::optional<uint32_t> free_slot();
  Result<void> send(const spawner_protocol::Packet& packet, std::span<const int> fds = {});
  Result<void> send_failed(uint64_t id, int code, const std::string& why);

  Fd control_, signals_, proc_;
  spawner_protocol::Packet setup_;
  pid_t sluiced_;
  uint32_t slots_ = 0, next_slot_ = 0;
  std::string no_code_cache_;   // why there are none; empty: there are
  uint64_t worker_memory_ = 0;  // of one worker, without what it shares; 0: no limit
  std::optional<RunningFile> file_;
  std::optional<Cgroups> cgroups_;
  std::optional<Prison> prison_;
  std::optional<KernelLog> kernel_log_;
  std::optional<SwitchRecorder> switch_recorder_;
  std::string no_switch_log_;  // why there is none
  std::map<pid_t, Worker> workers_;
  struct Dying {
    uint32_t slot;
    std::string cgroup;  // not empty yet
  };
  std::list<Dying> dying_;
};

}  // namespace sluice::spawner
