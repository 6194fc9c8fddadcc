// SPDX-License-Identifier: Apache-2.0
// VgpuServer: one virtual GPU: its two sockets, its channel with the guest's agent, one with each
// local program, its sessions and its memory quota. Owned by the Daemon, used from sluiced's one
// thread. What its guest does wrong ends here: sessions, connection or agent link of this vGPU,
// never anything of another.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mediator/daemon/guests/agent_link.h"
#include "mediator/daemon/guests/back_off.h"
#include "mediator/daemon/guests/channel.h"
#include "mediator/daemon/guests/guest_session.h"
#include "mediator/daemon/guests/region_memory.h"
#include "mediator/daemon/guests/start_queue.h"
#include "mediator/daemon/scheduling/grant_executor.h"
#include "mediator/daemon/setup/socket_access.h"
#include "mediator/io/peers/ivshmem_server.h"
#include "mediator/io/peers/local_server.h"
#include "mediator/io/peers/peer_thread.h"

namespace sluice {

struct VgpuSpec {
  std::string name;
  policy::VgpuShare share;
  uint64_t memory_bytes = 0;  // 0: no limit
  std::string socket;         // QEMU's
  std::string local_socket;   // local programs'
  std::string owner;          // who removes it: "libvirt:UUID" of its domain, or empty
  std::string mode;           // "strict", "shared": what its host must be; empty: either
  ChannelGeometry geometry;
  ListenOptions socket_options;  // of `socket`
  unsigned local_socket_mode = 0660;
  const SocketAccess* access = nullptr;  // who may play the virtual machine; the Daemon's
  uint32_t join_ms = 10000;
};

class VgpuServer final : private io::IvshmemServer::Owner,
                         private io::LocalServer::Owner,
                         private AgentLink::Owner,
                         private StartQueue::Owner,
                         private GuestSession::Owner {
 public:
  // The connection of a virtual machine, and what it got, from an earlier sluiced.
  struct Connection {
    Fd peer;
    Channel::Descriptors channel;
  };
  static Result<std::unique_ptr<VgpuServer>> make(SessionServices& services, VgpuSpec spec,
                                                  std::optional<Connection> connection = {});
  ~VgpuServer();

  void set_share(const policy::VgpuShare& share);
  void set_memory_limit(uint64_t bytes);
  // Its virtual machine is paused, or goes on. Ends when another one connects.
  void set_paused(bool paused) { back_off_->set_paused(paused); }
  bool paused() const { return back_off_->paused(); }
  // Ends every session, tells the guest, and calls `gone` when the last worker is reaped; then it
  // may be destroyed. No new sessions from now on.
  // `kept`: the connection goes on under another sluiced, and the guest keeps the vGPU.
  void close(const std::string& reason, std::function<void()> gone, bool kept = false);
  void beat(uint64_t count);

  const VgpuSpec& spec() const { return spec_; }
  uint64_t memory_used_bytes() const { return services_.memory.held_by_vgpu(*id_); }
  uint64_t host_memory_used_bytes() const { return services_.host_memory.held_by_vgpu(*id_); }
  core::VgpuId id() const { return *id_; }
  const std::vector<std::unique_ptr<GuestSession>>& sessions() const { return sessions_; }
  const Channel& channel() const { return *channel_; }
  const RegionPool& shared_memory() const { return *memory_.pool(); }  // of all its regions
  uint32_t slots_in(SlotState state) const;                            // likewise
  const FileId& socket_file() const { return ivshmem_->file(); }
  // Descriptors of a Connection, in its order; empty: nobody is connected, or not yet to the end.
  std::vector<int> connection() const;
  uint64_t host_epoch() const { return host_epoch_; }  // another one for each connection
  // Before somebody else gets the connection's descriptors, too. False: not now.
  bool keep_connection();
  void keep(SocketNote note) { socket_note_ = std::move(note); }  // as long as its socket
  AgentLink& agent() { return *agent_; }
  bool has_live_peer() const { return ivshmem_ && ivshmem_->has_live_peer(); }
  bool closing() const { return static_cast<bool>(gone_); }
  uint64_t sessions_started() const { return sessions_started_; }
  // What its faults have cost others, and who waits for that.
  const core::Penalty& penalty() const { return back_off_->penalty(); }
  // What its contexts and modules have.
  const core::StallBudget& stall_budget() const { return back_off_->stall_budget(); }
  // Before it has a session: what an earlier vGPU of the same owner still owes.
  void take_over_debts(const core::Penalty& faults, const core::StallBudget& stalls) {
    back_off_->take_over(faults, stalls);
  }
  // The same, of what an earlier sluiced noted.
  void take_over_debt(const core::Penalty::Owed& owed) { back_off_->take_over(owed); }
  size_t waiting_programs() const { return starts_.size(); }
  // For how long programs that ask now would wait for the back-off; 0: not at all.
  uint64_t back_off_ns() const override { return back_off_->wait_ns(); }

 private:
  VgpuServer(SessionServices& services, VgpuSpec spec);
  Result<void> new_life();
  Result<void> adopt(Channel::Descriptors channel);
  void start_life(std::shared_ptr<Channel> channel, bool fresh);
  uint32_t slots_in_use() const;
  Result<std::shared_ptr<Channel>> channel_for(const GuestSession::Origin& origin);
  void drop_local_channel(io::LocalServer::ConnectionId connection);
  void on_memory_freed();
  void check_local_regions();
  void open_session(GuestSession::Origin origin, const std::string& program, uint32_t guest_pid);
  void refuse(const GuestSession::Origin& origin, int status, const std::string& reason);
  void end_guest_sessions(const std::string& reason, bool now);

  Result<void> may_connect(const PeerCredentials& peer, const std::vector<gid_t>& groups) override;
  Result<io::IvshmemMemory> on_peer_connected(const PeerCredentials& peer) override;
  void on_peer_reset() override;
  void on_peer_gone() override;
  void on_join(io::LocalServer::ConnectionId connection, const std::string& program,
               const PeerCredentials& peer) override;
  void on_left(io::LocalServer::ConnectionId connection) override;
  void on_start_waits(const StartQueue::Request& first) override;
  bool start_session(const StartQueue::Request& request) override;
  void on_agent_started(uint64_t agent_epoch) override;
  void on_agent_open(uint64_t request, const std::string& program, uint32_t guest_pid) override;
  void on_agent_close(uint32_t guest_slot, uint64_t guest_epoch) override;
  void on_agent_broken(const std::string& why) override;
  void on_session_open(GuestSession& session) override;
  void on_session_offence(GuestSession& session, core::Offence offence, uint64_t cost_ns,
                          bool more) override;
  uint64_t stall_wait_ns() const override { return back_off_->stall_wait_ns(); }
  void on_session_stalls(uint64_t cost_ns) override { back_off_->on_stall(cost_ns); }
  void on_session_over(GuestSession& session) override;

  GrantExecutor& executor() const { return services_.executor; }

  SessionServices& services_;
  VgpuSpec spec_;
  std::optional<core::VgpuId> id_;         // nothing: not yet among the scheduler's
  std::shared_ptr<io::PeerThread> peers_;  // does what its peers can make block
  io::SpawnerLink::Vgpu spawner_vgpu_;     // by which the spawner knows its workers
  std::shared_ptr<core::Shares> shares_;   // memory that several of its programs have
  RegionMemory memory_;
  std::optional<BackOff> back_off_;  // from make() on
  StartQueue starts_;
  uint64_t sessions_started_ = 0;
  std::vector<std::unique_ptr<GuestSession>> sessions_;

  // The virtual machine.
  std::unique_ptr<io::IvshmemServer> ivshmem_;
  uint64_t host_epoch_;
  std::shared_ptr<Channel> channel_;
  std::unique_ptr<AgentLink> agent_;
  bool connection_kept_ = false;  // keep_connection()

  // Local programs; channels by connection, as long as that lasts: also after the session's end.
  std::unique_ptr<io::LocalServer> local_;
  std::map<io::LocalServer::ConnectionId, std::shared_ptr<Channel>> local_channels_;

  SocketNote socket_note_;
  std::function<void()> gone_;  // close()'s
};

}  // namespace sluice
