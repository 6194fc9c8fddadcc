// SPDX-License-Identifier: Apache-2.0
// SpawnerLink: sluiced's end of its connection to sluice-spawner, the privileged process that
// starts and ends workers (mediator/core/spawner_protocol.h). Owned by the Daemon, used from
// sluiced's one thread.
//
// Nothing here blocks but `start`, which waits for the spawner's first message, and the destructor.
// Should the spawner die, the kernel ends all workers; each Client hears of it when its worker is
// gone, and the keeper starts a new spawner. A keeper that dies is started anew as long as sluiced
// has the privileges that it began with; see `gave_up_privileges`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"
#include "mediator/core/spawner_protocol.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/host_report.h"

namespace sluice::io {

struct SpawnerSpec {
  std::string path;         // the program
  std::string runtime_dir;  // exists
  std::string worker;
  std::string library;
  std::vector<std::string> see;          // more that workers may read
  std::vector<std::string> environment;  // of workers
  std::string mps;
  std::string kernel_log;  // for faults of workers; empty: not read
  bool nvidia = false;
  bool switch_log = false;  // to be recorded (spawner/switch_recorder.h)
  std::string uids;
  uint64_t worker_memory_bytes = 0;  // of one worker, its region apart; 0: no limit
  uint64_t code_cache_bytes = 0;     // of one vGPU; 0: none
  uint32_t hello_ms =
      60000;  // how long it may take to begin: it may have to end workers of an earlier one
};

class SpawnerLink {
 public:
  class Client {
   public:
    // It exists, and runs its program from now on. Called at most once, before the others.
    virtual void on_spawned(pid_t pid, Fd pidfd) = 0;
    // It does not run and never will. The last call.
    virtual void on_spawn_failed(const Error& error) = 0;
    // It is gone and reaped. The last call.
    virtual void on_exited(bool signaled, int value) = 0;
    // The kernel's log has a fault of it. Any number of times between the first call and the last.
    virtual void on_xid(int number) = 0;
    // The answer to ask_starved().
    virtual void on_starved(uint64_t ns) = 0;
    // The spawner has died; the worker with it, or in a moment: its pidfd will tell. The last call.
    virtual void on_spawner_lost() = 0;

   protected:
    ~Client() = default;
  };

  static Result<std::unique_ptr<SpawnerLink>> start(boost::asio::io_context& io, SpawnerSpec spec);
  ~SpawnerLink();
  // From now on a keeper would start without privileges, so none is: `beyond_repair` is called
  // where one would be needed.
  void gave_up_privileges(std::function<void()> beyond_repair) {
    beyond_repair_ = std::move(beyond_repair);
  }

  // Of one vGPU: its workers share a cgroup, and a cache of the machine code that the GPU's driver
  // makes.
  class Vgpu {
   public:
    explicit Vgpu(SpawnerLink& spawner) : spawner_(spawner), number_(spawner.next_vgpu_++) {}
    ~Vgpu() { spawner_.forget_vgpu(number_); }
    Vgpu(const Vgpu&) = delete;
    Vgpu& operator=(const Vgpu&) = delete;
    uint64_t number() const { return number_; }

   private:
    SpawnerLink& spawner_;
    uint64_t number_;
  };

  // Returns the worker's id. `client` outlives it, or forgets it. `vgpu`: its number; 0: none.
  uint64_t spawn(Client& client, uint64_t region_bytes, uint64_t vgpu, Fd control, Fd output);
  void kill(uint64_t id);
  // For how long nothing of it ran although something of it could have: Client::on_starved().
  void ask_starved(uint64_t id);
  // The client hears no more of it. It is killed.
  void forget(uint64_t id);

  // Of the last spawner that has begun.
  const HostReport& host() const { return host_; }
  // The GPU's context-switch log, as the last spawner's recorder hands it on.
  struct SwitchLog {
    Fd ring, control;  // none: see `why`
    std::string why;
  };
  // `call` gets the present one at once, and each later spawner's.
  void on_switch_log(std::function<void(SwitchLog)> call);
  // Whether this is, or was not long ago, a worker: what it has asked for may lie in a socket
  // still.
  bool is_worker(pid_t pid) const;
  const spawner_protocol::UidRange& uids() const { return uids_; }
  pid_t pid() const { return pid_; }

 private:
  struct Outgoing {
    std::string bytes;
    std::vector<Fd> fds;
  };
  SpawnerLink(boost::asio::io_context& io, SpawnerSpec spec);
  Result<void> start_keeper();
  Result<void> launch();
  Result<void> wait_for_launched(uint64_t end_ns);
  Result<void> wait_for_hello(uint64_t end_ns);
  Result<void> send_to_keeper(const std::string& bytes);
  Result<void> take_launched();
  void on_link();
  void close_keeper();
  void again();
  Result<void> on_hello(const spawner_protocol::Packet& packet, std::vector<Fd> fds);
  void forget_vgpu(uint64_t number);
  void send(spawner_protocol::Type type, uint64_t id);
  void send(const spawner_protocol::Packet& packet, std::vector<Fd> fds);
  void flush();
  void on_readable();
  void on_packet(const spawner_protocol::Packet& packet, std::vector<Fd> fds, bool lost_fds);
  void give_up(uint64_t id);
  void lost(const std::string& why);
  void reap();

  boost::asio::io_context& io_;
  SpawnerSpec spec_;
  spawner_protocol::UidRange uids_;
  pid_t pid_ = -1, keeper_ = -1;
  Fd link_, socket_;  // to the keeper, to the spawner
  FdWatch link_watch_, watch_;
  std::function<void()> beyond_repair_;
  Timer again_, send_again_;
  bool waits_to_write_ = false, said_hello_ = false;
  uint64_t launched_ns_ = 0;
  std::deque<Outgoing> outgoing_;
  std::map<uint64_t, Client*> clients_;
  std::deque<pid_t> pids_;  // the last of all workers that there were
  uint64_t next_id_ = 1, next_vgpu_ = 1;
  HostReport host_;
  SwitchLog switch_log_;
  std::function<void(SwitchLog)> on_switch_log_;
};

}  // namespace sluice::io
