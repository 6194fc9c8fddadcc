// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/vgpu_server.h"

#include <algorithm>
#include <utility>

#include "mediator/base/check.h"
#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"

namespace sluice {
namespace {

// The ledger has limits only; "none" is one that is never met.
uint64_t limit_of(uint64_t memory_bytes) { return memory_bytes ? memory_bytes : UINT64_MAX; }

}  // namespace

VgpuServer::VgpuServer(SessionServices& services, VgpuSpec spec)
    : services_(services),
      spec_(std::move(spec)),
      peers_(std::make_shared<io::PeerThread>(services.io)),
      spawner_vgpu_(*services.spawner),
      shares_(std::make_shared<core::Shares>(
          services.memory, [peers = peers_](Fd file) { peers->close(std::move(file)); })),
      memory_(services.io, spec_.geometry.region_bytes - spec_.geometry.bulk_offset(),
              [this] { on_memory_freed(); }),
      starts_(services.io, *this),
      host_epoch_(monotonic_ns()) {}

Result<std::unique_ptr<VgpuServer>> VgpuServer::make(SessionServices& services, VgpuSpec spec,
                                                     std::optional<Connection> connection) {
  boost::asio::io_context& io = services.io;
  std::unique_ptr<VgpuServer> v(new VgpuServer(services, std::move(spec)));
  const VgpuSpec& s = v->spec_;
  auto id = services.executor.add_vgpu(s.name, s.owner, s.share);
  if (!id) return id.error();
  v->id_ = *id;
  v->back_off_.emplace(services, *id);
  services.memory.add_vgpu(*id, limit_of(s.memory_bytes));
  services.host_memory.add_vgpu(*id, services.settings.host_memory_bytes);
  services.contexts.add_vgpu(*id, UINT64_MAX);
  if (auto life = connection ? v->adopt(std::move(connection->channel)) : v->new_life(); !life)
    return life.error();
  auto ivshmem = io::IvshmemServer::open(io, s.socket, s.socket_options, v->peers_,
                                         services.executor.loop_time(*id), *v);
  if (!ivshmem) return ivshmem.error();
  v->ivshmem_ = std::move(*ivshmem);
  ListenOptions local_options;
  local_options.mode = s.local_socket_mode;
  auto local = io::LocalServer::open(io, s.local_socket, local_options, s.join_ms, v->peers_,
                                     services.executor.loop_time(*id), *v);
  if (!local) return local.error();
  v->local_ = std::move(*local);
  if (connection) {
    log::info("vgpu {}: its virtual machine is connected since before", s.name);
    v->ivshmem_->adopt(std::move(connection->peer));
    v->channel_->guest_ringer(0).ring();  // the agent finds its new life at once
  }
  return v;
}

VgpuServer::~VgpuServer() {
  // No news to the agent or to programs from here on; sessions kill and reap their workers.
  ivshmem_.reset();
  local_.reset();
  agent_.reset();
  sessions_.clear();
  memory_.mute();
  local_channels_.clear();
  channel_.reset();
  memory_.detach();
  if (!id_) return;
  services_.memory.remove_vgpu(*id_);
  services_.neighbours.forget(*id_);
  services_.host_memory.remove_vgpu(*id_);
  services_.contexts.remove_vgpu(*id_);
  executor().remove_vgpu(*id_);
}

Result<void> VgpuServer::new_life() {
  auto channel = Channel::make(spec_.name, spec_.geometry, ++host_epoch_, memory_.pool(), *peers_);
  if (!channel) return Error(channel.error()).with_context("vgpu " + spec_.name);
  start_life(std::move(*channel), true);
  return {};
}

Result<void> VgpuServer::adopt(Channel::Descriptors descriptors) {
  auto channel = Channel::adopt(spec_.name, spec_.geometry, ++host_epoch_, memory_.pool(), *peers_,
                                std::move(descriptors));
  if (!channel) return Error(channel.error()).with_context("vgpu " + spec_.name);
  start_life(std::move(*channel), false);
  return {};
}

void VgpuServer::start_life(std::shared_ptr<Channel> channel, bool fresh) {
  agent_.reset();
  channel_ = std::move(channel);
  agent_ =
      std::make_unique<AgentLink>(services_.io, *channel_, static_cast<AgentLink::Owner&>(*this),
                                  executor().loop_time(*id_), fresh);
}

bool VgpuServer::keep_connection() {
  connection_kept_ |= ivshmem_->make_keepable();
  return connection_kept_;
}

std::vector<int> VgpuServer::connection() const {
  const int peer = ivshmem_ ? ivshmem_->settled_peer() : -1;
  if (peer < 0) return {};
  std::vector<int> fds = {peer, channel_->region_fd()};
  for (const auto& bells : {channel_->host_bells(), channel_->guest_bells()})
    fds.insert(fds.end(), bells.begin(), bells.end());
  return fds;
}

void VgpuServer::set_share(const policy::VgpuShare& share) {
  spec_.share = share;
  executor().set_share(*id_, share);
  for (const auto& session : sessions_) session->set_urgent(is_urgent(share));
}

void VgpuServer::set_memory_limit(uint64_t bytes) {
  spec_.memory_bytes = bytes;
  services_.memory.set_limit(*id_, limit_of(bytes));
}

void VgpuServer::beat(uint64_t count) {
  ivshmem_->check_peer();
  channel_->beat(count);
  agent_->poll();  // a new agent epoch without a ring is found here
  back_off_->set_deadline();
  for (auto& [connection, channel] : local_channels_) channel->beat(count);
  check_local_regions();
  memory_.post_waiting();
}

void VgpuServer::close(const std::string& reason, std::function<void()> gone, bool kept) {
  if (closing()) return;
  gone_ = std::move(gone);
  back_off_->close();
  for (const StartQueue::Request& r : starts_.close()) refuse(r.origin, ESHUTDOWN, reason);
  if (!kept) channel_->set_state(SLUICE_CHANNEL_CLOSED, reason);
  for (auto& [connection, channel] : local_channels_)
    channel->set_state(SLUICE_CHANNEL_CLOSED, reason);
  for (auto& s : sessions_) s->end(0, reason);
  if (sessions_.empty()) {
    auto done = gone_;  // destroys this
    done();
  }
}

// ---- shared memory ----

uint32_t VgpuServer::slots_in(SlotState state) const {
  uint32_t count = channel_->slots_in(state);
  for (const auto& [connection, channel] : local_channels_) count += channel->slots_in(state);
  return count;
}

uint32_t VgpuServer::slots_in_use() const {
  return channel_->slots_in_use() + static_cast<uint32_t>(local_channels_.size());
}

// The channel that serves a program: a local one has a region of its own, so that it can neither
// read nor disturb what others share with their workers.
Result<std::shared_ptr<Channel>> VgpuServer::channel_for(const GuestSession::Origin& origin) {
  if (slots_in_use() >= spec_.geometry.slots)
    return Error{EBUSY,
                 "all " + std::to_string(spec_.geometry.slots) + " slots of the vGPU are in use"};
  if (!origin.local) return channel_;
  const ChannelGeometry geometry{spec_.geometry.region_bytes, 1, false};
  return Channel::make(spec_.name, geometry, ++host_epoch_, memory_.pool(), *peers_);
}

void VgpuServer::on_memory_freed() {
  for (size_t i = 0; i < sessions_.size(); ++i) sessions_[i]->grant_extents();
  if (!closing()) starts_.serve();
}

// A local program can write to all of its region. What it was not given it has no use for, and
// nobody would count it.
void VgpuServer::check_local_regions() {
  for (auto it = local_channels_.begin(); it != local_channels_.end();) {
    const auto [connection, channel] = *it++;
    if (!channel->holds_too_much()) continue;
    GuestSession* session = nullptr;
    for (auto& s : sessions_)
      if (s->origin().local && s->origin().id == connection) session = s.get();
    if (!session) {  // it goes on after its session's end: nothing is kept for it
      local_->close(connection);
      drop_local_channel(connection);
    } else if (session->state() != GuestSession::State::kEnding) {
      session->end(kCudaErrorUnknown, "it wrote to shared memory that was not given to it", true);
    }
  }
}

// ---- sessions ----

void VgpuServer::open_session(GuestSession::Origin origin, const std::string& program,
                              uint32_t guest_pid) {
  if (closing()) return refuse(origin, ESHUTDOWN, "the vGPU is being deleted");
  // A program that opens and closes in a loop must not keep the host busy with starting workers.
  if (starts_.size() >= spec_.geometry.slots)
    return refuse(origin, EBUSY,
                  "too many programs wait for a slot of this vGPU" + back_off_->text());
  starts_.add({origin, program, guest_pid});
  starts_.serve();
}

void VgpuServer::on_session_offence(GuestSession& session, core::Offence offence, uint64_t cost_ns,
                                    bool more) {
  // That would be sluiced's doing. But who shuts its domain off in mid-fault has faulted.
  if (closing() && offence == core::Offence::kForcedEnd) return;
  const BackOff::Effect effect = back_off_->on_offence(offence, cost_ns, more);
  log::warning("vgpu {}: {} ('{}', slot {}): the GPU stood still for {} ms{}", spec_.name,
               core::to_string(offence), session.program(), session.slot(), cost_ns / 1'000'000,
               effect.text);
  if (!effect.ends_all_sessions) return;
  for (auto& s : sessions_)
    if (s.get() != &session && s->state() != GuestSession::State::kEnding)
      s->expel(
          "faults of this vGPU have cost others as much as they may in a minute; all its sessions "
          "are ended");
}

void VgpuServer::on_start_waits(const StartQueue::Request& first) {
  log::info("vgpu {}: '{}' waits for a session{}", spec_.name, first.program, back_off_->text());
}

bool VgpuServer::start_session(const StartQueue::Request& request) {
  const GuestSession::Origin& origin = request.origin;
  const std::string program = request.program.empty() ? "?" : request.program;
  auto start = [&]() -> Result<std::unique_ptr<GuestSession>> {
    auto channel = channel_for(origin);
    if (!channel) return channel.error();
    auto started = GuestSession::start(
        services_,
        {spec_.name, *id_, *channel, peers_, executor().loop_time(*id_), shares_,
         spawner_vgpu_.number(), origin, program, request.guest_pid, is_urgent(spec_.share)},
        *this);
    if (started && origin.local) local_channels_[origin.id] = *channel;
    return started;
  };
  const bool may_change = memory_.pool()->scrubbing != 0;  // a failed attempt scrubs what it took
  auto session = start();
  if (!session) {
    const int code = session.error().code;
    if ((code == EBUSY || code == ENOMEM) && may_change) return false;
    log::warning("vgpu {}: no session for '{}': {}", spec_.name, request.program,
                 session.error().message);
    refuse(origin, session.error().code, session.error().message);
    return true;
  }
  ++sessions_started_;
  services_.neighbours.opened(*id_);
  sessions_.push_back(std::move(*session));
  return true;
}

void VgpuServer::refuse(const GuestSession::Origin& origin, int status, const std::string& reason) {
  if (origin.local)
    local_->reply(origin.id, io::refused_join(status, reason), {});
  else
    agent_->send_refused(origin.id, status ? status : EIO, reason);
}

void VgpuServer::on_session_open(GuestSession& s) {
  if (!s.origin().local) {
    agent_->send_opened(s.origin().id, s.slot(), s.epoch(), services_.settings.joined_flags());
    return;
  }
  sluice_joined joined{};
  joined.magic = SLUICE_JOIN_MAGIC;
  joined.slot = s.slot();
  joined.doorbell_kind = SLUICE_DOORBELL_EVENTFD;
  joined.epoch = s.epoch();
  joined.region_bytes = spec_.geometry.region_bytes;
  joined.can_wait = 1;
  joined.flags = services_.settings.joined_flags();
  const int fds[] = {s.channel().region_fd(), s.pages().bell_fd(), s.pages().wake_fd()};
  local_->reply(s.origin().id, joined, fds);
}

void VgpuServer::on_session_over(GuestSession& s) {
  // Of an earlier life of the channel: nobody is left to be notified.
  const bool current = &s.channel() == channel_.get();
  if (s.origin().local) {
    if (s.was_open()) {
      local_->hang_up(s.origin().id);  // it may read its memory until it closes, too
    } else {
      drop_local_channel(s.origin().id);
      refuse(s.origin(), s.end_status(), s.end_reason());
    }
  } else if (current) {
    if (s.was_open())
      agent_->send_closed(s.slot(), s.epoch(), s.end_reason());
    else
      refuse(s.origin(), s.end_status(), s.end_reason());
  }
  services_.neighbours.closed(*id_, monotonic_ns());
  std::erase_if(sessions_, [&](const std::unique_ptr<GuestSession>& p) { return p.get() == &s; });
  if (sessions_.empty() && gone_) {
    auto done = gone_;  // destroys this
    done();
  }
}

void VgpuServer::end_guest_sessions(const std::string& reason, bool now) {
  starts_.remove_if([](const StartQueue::Request& r) { return !r.origin.local; });
  for (auto& s : sessions_)
    if (!s->origin().local) s->end(0, reason, now);
}

// ---- the guest ----

Result<void> VgpuServer::may_connect(const PeerCredentials& peer,
                                     const std::vector<gid_t>& groups) {
  return spec_.access ? spec_.access->may_connect(peer, groups) : Result<void>();
}

Result<io::IvshmemMemory> VgpuServer::on_peer_connected(const PeerCredentials& peer) {
  if (closing()) return Error{ESHUTDOWN, "the vGPU is being deleted"};
  log::info("vgpu {}: a virtual machine is connected (process {}, uid {})", spec_.name, peer.pid,
            peer.uid);
  io::IvshmemMemory m;
  m.region_fd = channel_->region_fd();
  m.host_bells = channel_->host_bells();
  m.guest_bells = channel_->guest_bells();
  return m;
}

void VgpuServer::on_peer_reset() {
  // At each power-on there is one, and nothing to end.
  log::debug("vgpu {}: the guest was reset or let go of the device", spec_.name);
  end_guest_sessions("the virtual machine was reset", true);
  channel_->all_programs_gone();
}

void VgpuServer::on_peer_gone() {
  log::info("vgpu {}: the virtual machine is gone", spec_.name);
  end_guest_sessions("the virtual machine is gone", true);
  set_paused(false);
  // The next guest gets memory that this one has never seen. Local programs have regions of their
  // own.
  if (closing()) return;
  if (std::exchange(connection_kept_, false)) channel_->free_at_end();
  if (auto life = new_life(); !life) {
    // Without a region the vGPU cannot serve; the old one stays, and with it what the guest left.
    log::error("{}; the old region stays in use", life.error().message);
  }
}

void VgpuServer::on_agent_started(uint64_t agent_epoch) {
  log::info("vgpu {}: the guest's agent is on (epoch {:x})", spec_.name, agent_epoch);
  // What QEMU says of the reboot was sent before this agent began.
  if (ivshmem_) ivshmem_->forget_notifications();
  end_guest_sessions("the guest's agent was started anew", true);
  channel_->all_programs_gone();
}

void VgpuServer::on_agent_open(uint64_t request, const std::string& program, uint32_t guest_pid) {
  open_session({false, request}, program, guest_pid);
}

void VgpuServer::on_agent_close(uint32_t guest_slot, uint64_t guest_epoch) {
  channel_->program_gone(guest_slot, guest_epoch);
  for (auto& s : sessions_)
    if (!s->origin().local && s->slot() == guest_slot && s->epoch() == guest_epoch &&
        &s->channel() == channel_.get())
      return s->end(0, "the program has ended");
  // Its session was over already, or a number that never was: nothing of anybody's to end.
}

void VgpuServer::on_agent_broken(const std::string& why) {
  log::warning("vgpu {}: the guest's agent broke the protocol: {}", spec_.name, why);
  end_guest_sessions("the guest's agent broke the protocol: " + why, true);
}

// ---- local programs ----

void VgpuServer::on_join(io::LocalServer::ConnectionId connection, const std::string& program,
                         const PeerCredentials& peer) {
  open_session({true, connection}, program, static_cast<uint32_t>(peer.pid));
}

void VgpuServer::on_left(io::LocalServer::ConnectionId connection) {
  starts_.remove_if(
      [&](const StartQueue::Request& r) { return r.origin.local && r.origin.id == connection; });
  drop_local_channel(connection);
  for (auto& s : sessions_)
    if (s->origin().local && s->origin().id == connection)
      return s->end(0, "the program has ended");
}

// Its session, if there still is one, keeps it until the worker is gone.
void VgpuServer::drop_local_channel(io::LocalServer::ConnectionId connection) {
  auto it = local_channels_.find(connection);
  if (it == local_channels_.end()) return;
  it->second->all_programs_gone(true);
  local_channels_.erase(it);
}

}  // namespace sluice
