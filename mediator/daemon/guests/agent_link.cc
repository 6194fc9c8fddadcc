// SPDX-License-Identifier: Apache-2.0
#include "mediator/daemon/guests/agent_link.h"

#include <cstring>
#include <utility>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/core/names.h"
#include "mediator/io/loop_meter.h"
#include "mediator/ring/wait.h"

namespace sluice {
namespace {

// An agent whose beat has not moved for this long counts as silent.
constexpr uint64_t kSilentNs = 5'000'000'000;

constexpr uint64_t kPauseNs = limits::kAgentPauseMs * 1'000'000;
constexpr io::Pace kBellPace{limits::kAgentBellsPerSecond, limits::kAgentBellBurst};

sluice_channel_header& header(const Channel& channel) {
  return *static_cast<sluice_channel_header*>(channel.region());
}

}  // namespace

AgentLink::AgentLink(boost::asio::io_context& io, Channel& channel, Owner& owner,
                     std::shared_ptr<io::LoopBudget> loop_time, bool fresh)
    : channel_(channel),
      owner_(owner),
      loop_time_(std::move(loop_time)),
      again_(io),
      from_agent_(control_to_host(channel.region()), Bell::for_ringer(channel.guest_ringer(0)),
                  fresh),
      to_agent_(control_to_agent(channel.region()), Bell::for_ringer(channel.guest_ringer(0)),
                fresh) {
  bell_watch_ = io::FdWatch(
      io, channel.host_bell(0), kBellPace,
      [this] {
        drain_shared_eventfd(channel_.host_bell(0));
        poll();
      },
      loop_time_);
  if (!from_agent_.arm()) poll_again(0);
}

// By timer. What that takes of the loop is paid back before the next such poll, as after a bell.
void AgentLink::poll_again(uint64_t ns) {
  again_.at_ns(monotonic_ns() + ns, [this] {
    uint64_t cost_ns = 0;
    {
      io::LoopMeter::Call call(typeid(*this), &cost_ns);
      poll();
    }
    const uint64_t rest_ns = loop_time_->take(monotonic_ns(), cost_ns);
    if (again_.pending() && rest_ns > kPauseNs) poll_again(rest_ns);
  });
}

bool AgentLink::take_epoch() {
  const uint64_t guest_epoch = load_shared(header(channel_).agent_epoch, std::memory_order_acquire);
  if (guest_epoch == agent_epoch_ || guest_epoch == 0) return true;
  // A guest may write one after another: the next is read later.
  const uint64_t now = monotonic_ns();
  if (agent_epoch_ != 0 && now - agent_since_ns_ < limits::kAgentStartMs * 1'000'000) {
    if (!again_.pending()) poll_again(limits::kAgentStartMs * 1'000'000);
    return false;
  }
  agent_since_ns_ = now;
  agent_epoch_ = guest_epoch;
  backlog_.clear();
  if (broken_) {
    // The indices are taken over as they stand, and bounded like everything.
    broken_ = false;
    const Bell bell = Bell::for_ringer(channel_.guest_ringer(0));
    from_agent_ = RingConsumer(control_to_host(channel_.region()), bell, false);
    if (to_agent_.broken())
      to_agent_ = RingProducer(control_to_agent(channel_.region()), bell, false);
  }
  owner_.on_agent_started(guest_epoch);
  return true;
}

void AgentLink::poll() {
  // What a new agent asks for would be taken for the old one's, and end with it.
  if (!take_epoch() || broken_) return;
  from_agent_.disarm();
  for (size_t i = 0; i < limits::kAgentBurst; ++i) {
    switch (from_agent_.pop(buffer_)) {
      case Pop::kRecord:
        if (!handle(buffer_)) return;
        continue;
      case Pop::kBroken:
        return break_link(from_agent_.broken_reason());
      case Pop::kEmpty:
        break;
    }
    flush();
    if (broken_) return;
    if (from_agent_.arm()) return;  // asleep; otherwise something came meanwhile
  }
  from_agent_.release();
  // More than a burst: the others first.
  poll_again(kPauseNs);
}

bool AgentLink::handle(const RecordBuffer& record) {
  sluice_control_message guest_message;
  if (record.body().size() < sizeof guest_message) {
    break_link("control message is too short");
    return false;
  }
  std::memcpy(&guest_message, record.body().data(), sizeof guest_message);
  switch (record.record().opcode) {
    case SLUICE_CONTROL_OPEN:
      owner_.on_agent_open(guest_message.request,
                           clean_text(guest_message.text, sizeof guest_message.text),
                           guest_message.guest_pid);
      return !broken_;
    case SLUICE_CONTROL_CLOSE:
      owner_.on_agent_close(guest_message.slot, guest_message.epoch);
      return !broken_;
    default:
      break_link("unknown control message " + std::to_string(record.record().opcode));
      return false;
  }
}

void AgentLink::break_link(const std::string& why) {
  if (broken_) return;
  broken_ = true;
  backlog_.clear();
  // All that this agent wrote is dropped, here and not when the next one shows up: that one's first
  // words may be in the ring before we see its epoch.
  sluice_ring& ring = *control_to_host(channel_.region()).indices;
  store_shared(ring.tail, load_shared(ring.head, std::memory_order_acquire),
               std::memory_order_release);
  owner_.on_agent_broken(why);
}

void AgentLink::send_opened(uint64_t request, uint32_t slot, uint64_t slot_epoch, uint32_t flags) {
  sluice_control_message m{};
  m.slot = slot;
  m.request = request;
  m.epoch = slot_epoch;
  m.flags = flags;
  send(SLUICE_CONTROL_OPENED, m);
}

void AgentLink::send_refused(uint64_t request, int status, const std::string& reason) {
  sluice_control_message m{};
  m.status = static_cast<uint32_t>(status);
  m.request = request;
  std::strncpy(m.text, reason.c_str(), sizeof m.text - 1);
  send(SLUICE_CONTROL_OPENED, m);
}

void AgentLink::send_closed(uint32_t slot, uint64_t slot_epoch, const std::string& reason) {
  sluice_control_message m{};
  m.slot = slot;
  m.epoch = slot_epoch;
  std::strncpy(m.text, reason.c_str(), sizeof m.text - 1);
  send(SLUICE_CONTROL_CLOSED, m);
}

void AgentLink::send(uint16_t opcode, const sluice_control_message& message) {
  if (broken_) return;
  if (backlog_.size() >= limits::kMaxAgentBacklog)
    return break_link("the agent does not read its answers");
  backlog_.emplace_back(opcode, message);
  flush();
}

void AgentLink::flush() {
  constexpr uint32_t kBytes = record_bytes(sizeof(sluice_control_message));
  if (space_armed_) to_agent_.disarm_space();
  space_armed_ = false;
  while (!backlog_.empty()) {
    sluice_record header{};
    header.opcode = backlog_.front().first;
    header.call_id = backlog_.front().second.request;
    std::span body(reinterpret_cast<const std::byte*>(&backlog_.front().second),
                   sizeof(sluice_control_message));
    if (to_agent_.push(header, body)) {
      backlog_.pop_front();
      continue;
    }
    if (to_agent_.broken()) return break_link(to_agent_.broken_reason());
    space_armed_ = to_agent_.arm_space(kBytes);
    if (space_armed_) break;  // the agent rings when it has read
  }
  to_agent_.publish();
}

std::string AgentLink::agent_release() const {
  char guest_release[sizeof(sluice_channel_header::agent_release)];
  std::memcpy(guest_release, header(channel_).agent_release, sizeof guest_release);
  return clean_text(guest_release, sizeof guest_release);
}

bool AgentLink::silent(uint64_t now_ns) {
  const uint64_t guest_beat = load_shared(header(channel_).agent_beat);
  if (guest_beat != last_beat_ || last_beat_ns_ == 0) {
    last_beat_ = guest_beat;
    last_beat_ns_ = now_ns;
  }
  return now_ns - last_beat_ns_ > kSilentNs;
}

}  // namespace sluice
