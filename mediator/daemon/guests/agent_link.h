// SPDX-License-Identifier: Apache-2.0
// AgentLink: sluiced's end of the two control rings of a vGPU's channel, spoken with sluice-agent
// in the guest. Owned by the vGPU, used from sluiced's one thread. It copies and bounds what the
// agent wrote and hands it on as calls; it decides nothing about sessions.
//
// The agent is the guest and so hostile. A broken ring, an unknown message or an agent that asks
// and never reads its answers makes the link broken: its owner ends the vGPU's sessions of that
// agent, and the link stays dumb until a new agent epoch appears, which finds the ring empty.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "abi/channel.h"
#include "mediator/daemon/guests/channel.h"
#include "mediator/io/fd_watch.h"
#include "mediator/io/loop_budget.h"
#include "mediator/ring/ring.h"

namespace sluice {

class AgentLink {
 public:
  class Owner {
   public:
    virtual void on_agent_started(uint64_t agent_epoch) = 0;  // new epoch: all before it is over
    virtual void on_agent_open(uint64_t request, const std::string& program,
                               uint32_t guest_pid) = 0;
    virtual void on_agent_close(uint32_t guest_slot, uint64_t guest_epoch) = 0;
    virtual void on_agent_broken(const std::string& why) = 0;

   protected:
    ~Owner() = default;
  };

  // `loop_time`: its vGPU's, on which messages and bells draw. Not `fresh`: the rings were used
  // before, and go on from where they stand.
  AgentLink(boost::asio::io_context& io, Channel& channel, Owner& owner,
            std::shared_ptr<io::LoopBudget> loop_time, bool fresh = true);

  // Answers and news for the agent. They wait here while its ring is full. `flags`:
  // SLUICE_JOINED_*.
  void send_opened(uint64_t request, uint32_t slot, uint64_t slot_epoch, uint32_t flags);
  void send_refused(uint64_t request, int status, const std::string& reason);
  void send_closed(uint32_t slot, uint64_t slot_epoch, const std::string& reason);

  // Looks at the rings without having been rung (an agent that has no doorbell yet). Also called by
  // the bell.
  void poll();
  // What it last saw, for people: the agent's epoch (0: none) and whether its beat has moved
  // lately.
  uint64_t agent_epoch() const { return agent_epoch_; }
  bool silent(uint64_t now_ns);
  std::string agent_release() const;  // of its package; empty: not known

 private:
  // False: a new agent is there, and taken up later.
  bool take_epoch();
  void poll_again(uint64_t ns);
  void break_link(const std::string& why);
  bool handle(const RecordBuffer& record);
  void send(uint16_t opcode, const sluice_control_message& message);
  void flush();

  Channel& channel_;
  Owner& owner_;
  std::shared_ptr<io::LoopBudget> loop_time_;
  io::Timer again_;  // something is left in the ring
  RingConsumer from_agent_;
  RingProducer to_agent_;
  RecordBuffer buffer_;
  std::deque<std::pair<uint16_t, sluice_control_message>> backlog_;
  uint64_t agent_epoch_ = 0, agent_since_ns_ = 0;
  uint64_t last_beat_ = 0, last_beat_ns_ = 0;
  bool broken_ = false;
  bool space_armed_ = false;
  io::FdWatch bell_watch_;
};

}  // namespace sluice
