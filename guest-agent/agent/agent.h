// SPDX-License-Identifier: Apache-2.0
// sluice-agent's work: hands the vGPU's slots to the programs of this VM and reports their ends.
//
// For each program: it joins over a Unix socket, the agent asks sluiced for a slot (control ring),
// and passes on the descriptors by which the program reaches its worker by itself. From then on the
// agent only watches: the program's connection and its pidfd (a forked child may keep the
// connection open), and the host's news. One thread, one poll loop, and others for closes that may
// hang (closer.h); costs one wake-up a second when idle.
//
// What it does not do: it sees none of the programs' calls or data.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "guest-agent/agent/agent_state.h"
#include "guest-agent/agent/closer.h"
#include "guest-agent/agent/vgpu_device.h"
#include "mediator/ring/ring.h"

namespace sluice::guest {

class Agent {
 public:
  // `listener`: a listening SOCK_SEQPACKET socket. Announces itself to the host with a new epoch.
  Agent(VgpuDevice& device, Fd listener);
  // Goes on where another agent stopped: the host sees no change but the release.
  Agent(VgpuDevice& device, AgentState inherited);
  ~Agent();

  // One round: waits at most `timeout_ms` for anything, handles it. `extra_fd` (or -1): also
  // returns when that is readable. Error: the vGPU is gone, with a DeviceProblem.
  Result<void> step(int timeout_ms, int extra_fd = -1);

  // For another agent to go on with; this one is over. Not while messages wait for room in the ring
  // to the host: then after a later step.
  bool can_hand_over() const { return backlog_.empty(); }
  AgentState hand_over();

  size_t programs() const { return state_.programs.size(); }
  uint64_t epoch() const { return state_.epoch; }

 private:
  void announce();
  void go_on();
  void open_rings();
  // step()'s parts.
  struct Polled {
    std::vector<pollfd> fds;
    std::vector<Program*> owners;  // each has two descriptors, after the fixed ones
  };
  void gather(Polled& to, int extra_fd);
  int wait_ms_within(int timeout_ms) const;
  void read_programs(const Polled& polled);
  void watch_host(uint64_t now_ns);
  int pause_ms() const;
  void beat(uint64_t now_ns);
  Result<void> check_host();
  void accept_programs(uint64_t now_ns);
  void read_join(Program& program);
  void program_ended(Program& program);
  void close_socket(Program& program);
  void remove_finished_programs();
  void ask(Program& program);
  void refuse(Program& program, int error, const std::string& reason);
  void tell(const Program& program, int error, const std::string& reason);
  void read_control();
  void on_opened(const sluice_control_message& message);
  void on_closed(const sluice_control_message& message);
  void send(uint16_t opcode, const sluice_control_message& message);
  void flush();

  VgpuDevice& device_;
  AgentState state_;
  Closer closer_;
  uint64_t next_beat_ns_ = 0;
  uint64_t host_beat_ = 0, host_beat_ns_ = 0;
  bool host_silent_ = false;
  RingProducer to_host_;
  RingConsumer from_host_;
  RecordBuffer buffer_;
  std::deque<std::pair<uint16_t, sluice_control_message>> backlog_;
};

}  // namespace sluice::guest
