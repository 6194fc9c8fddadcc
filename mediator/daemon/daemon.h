// SPDX-License-Identifier: Apache-2.0
// Daemon: sluiced without its main(): configuration to running services. Owns everything, lives in
// one thread around one io_context. Tests run it in a temporary directory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "mediator/daemon/admin/admin_server.h"
#include "mediator/daemon/admin/events.h"
#include "mediator/daemon/admin/json_rpc.h"
#include "mediator/daemon/guests/guest_session.h"
#include "mediator/daemon/guests/vgpu_server.h"
#include "mediator/daemon/scheduling/grant_executor.h"
#include "mediator/daemon/setup/config.h"
#include "mediator/daemon/setup/group_file.h"
#include "mediator/daemon/setup/identity.h"
#include "mediator/daemon/setup/socket_access.h"
#include "mediator/io/fd_store.h"

namespace sluice {

class Daemon {
 public:
  // Makes the runtime directory, the executor and the admin socket; the event log starts here.
  // `identity`: who this process becomes on the way, for good (identity.h). `store`: where vGPUs
  // and groups outlive this process; those that are there are the first.
  // For --check-config: what keeps this host's sluiced from starting and can be found out without
  // starting it, as names of users, groups and policies that there are not.
  static Result<void> check(const Config& config);
  static Result<std::unique_ptr<Daemon>> make(boost::asio::io_context& io, const Config& config,
                                              const std::optional<Identity>& identity = {},
                                              io::FdStore store = {});
  ~Daemon();

  // Room for "libvirt:" and a UUID. An owner is repeated in each answer that describes a vGPU.
  static constexpr size_t kMaxOwnerBytes = 64;
  struct CreateRequest {
    std::string name;
    uint32_t weight = 0;  // 0: the configured default
    uint64_t memory_bytes = 0;
    uint32_t priority = 0;
    policy::VgpuShare limits;   // latency, target, minimum, maximum and group of it
    std::string socket;         // empty: <runtime_dir>/vgpu/<name>.sock
    uint64_t region_bytes = 0;  // 0: the configured default
    uint32_t slots = 0;         // 0: the configured default
    std::string owner;          // who removes it again; empty: whoever created it by hand
    std::string mode;           // "strict", "shared": what this host must be; empty: either
  };
  // Groups live as long as sluiced and its store, or in `state_dir`. The name is checked as a
  // vGPU's is.
  struct Group {
    policy::GroupId id;
    std::string parent;
    policy::GroupShare share;
  };
  // In force when it returns; `kept`, if any, is called as GroupFile::save() says.
  Result<void> set_group(const std::string& name, const Group& group,
                         GroupFile::Then kept = nullptr);
  const std::map<std::string, Group>& groups() const { return groups_; }
  // "" is the root.
  Result<policy::GroupId> group_id(const std::string& name) const;
  std::string group_name(policy::GroupId id) const;
  // `connection`: of its virtual machine, from an earlier sluiced.
  Result<VgpuServer*> create(const CreateRequest& request,
                             std::optional<VgpuServer::Connection> connection = {});
  // `done` when its last worker is gone.
  Result<void> remove(const std::string& name, std::function<void()> done);
  VgpuServer* find(const std::string& name);
  // Ends all sessions and calls `done` when every worker is gone. No requests are served any more.
  // Virtual machines whose connections are kept see no end of their vGPUs.
  void shut_down(std::function<void()> done);
  // Calls as soon as no program has a session, and not within a second: the time for an upgrade's
  // sluiced. Until then nothing changes.
  void when_idle(std::function<void()> call);
  bool awaits_idle() const { return idle_ != nullptr; }
  // Whether its loop should poll rather than sleep until then: an urgent vGPU probably rings.
  uint64_t expects_ring_until_ns() const { return executor_->expects_ring_until_ns(); }
  // Called where only a new sluiced helps: it can start workers no more.
  void on_beyond_repair(std::function<void()> call) { beyond_repair_ = std::move(call); }

  const std::map<std::string, std::unique_ptr<VgpuServer>>& vgpus() const { return vgpus_; }
  const Config& config() const { return config_; }
  const EventLog& events() const { return events_; }
  GrantExecutor& executor() { return *executor_; }
  bool nvidia() const { return services_->settings.nvidia(); }
  const io::SpawnerLink& spawner() const { return *spawner_; }
  const std::string& library() const {
    return nvidia() ? config_.nvidia_library : config_.soft_library;
  }
  uint64_t started_ns() const { return started_ns_; }

 private:
  Daemon(boost::asio::io_context& io, const Config& config);
  // start() and its steps, in this order. `sms`, `unit`: spatial.h.
  Result<void> start(const std::optional<Identity>& identity);
  void record_events();
  void choose_slices(bool nvidia, const std::vector<std::string>& environment);
  void load_groups();
  void save_groups(GroupFile::Then kept = nullptr);
  Result<void> add_group(const std::string& name, const Group& group);
  Result<void> start_spawner(bool nvidia, const std::vector<std::string>& environment,
                             const std::string& library);
  Result<void> start_executor(bool nvidia, uint32_t sms, uint32_t unit);
  std::unique_ptr<TimeSlices> make_time_slices(bool nvidia);
  Result<void> give_up_privileges(const Identity& identity);
  // create()'s steps: whether the request can be carried out; what it asks for with our defaults;
  // whether that can be had.
  Result<void> check(const CreateRequest& request) const;
  VgpuSpec spec_of(const CreateRequest& request) const;
  Result<void> check(const VgpuSpec& spec) const;
  void beat();
  void call_if_idle();
  // keeping.cc. restore(): once, before there are others. keep(): whatever differs from what is
  // kept; with each beat, and before the end.
  void restore();
  void restore_groups(const std::string& text);
  Result<void> restore_vgpu(io::FdStore::Parcel parcel);
  void keep();
  bool is_kept(const VgpuServer& vgpu) const;
  void remember_debts(const VgpuServer& vgpu);

  boost::asio::io_context& io_;
  Config config_;
  uint64_t started_ns_;
  io::Timer beat_timer_;
  io::Timer idle_timer_;  // until it fires, when_idle() waits
  uint64_t beats_ = 0;
  EventLog events_;
  SocketAccess access_;
  std::shared_ptr<SwitchLogFeed> switch_log_;  // null: the GPU's is not read
  std::unique_ptr<io::SpawnerLink> spawner_;
  std::unique_ptr<GrantExecutor> executor_;
  std::unique_ptr<SessionServices> services_;
  RpcDispatcher dispatcher_;
  std::map<std::string, std::unique_ptr<VgpuServer>> vgpus_;
  // What deleted vGPUs owe, by name, until it is forgiven: one that is made anew for the same owner
  // takes it over. Of those that somebody made by hand, nothing.
  struct Debts {
    std::string owner;
    core::Penalty faults;
    core::StallBudget stalls;
  };
  std::map<std::string, Debts> debts_;
  std::map<std::string, Group> groups_;
  std::unique_ptr<GroupFile> group_file_;
  io::FdStore store_;
  std::map<std::string, std::string> kept_;  // text of each parcel in the store
  bool keeping_fails_ = false;
  std::unique_ptr<AdminServer> admin_;
  bool shutting_down_ = false;
  std::function<void()> beyond_repair_;
  std::function<void()> idle_;  // null: nobody waits for it
};

// The methods of the admin socket (rpc_methods.h). `daemon` outlives the dispatcher.
void add_rpc_methods(RpcDispatcher& dispatcher, Daemon& daemon);

// Whether an NVIDIA GPU can be used here, without loading its driver library.
bool nvidia_gpu_present();

// The environment of workers: a few variables of ours, then those of the configuration.
std::vector<std::string> worker_environment(const Config& config, bool nvidia);

}  // namespace sluice
