// SPDX-License-Identifier: Apache-2.0
// sluice-agent's work: hands the vGPU's slots to the programs of this VM and reports their ends.
//
// For each program: it joins over a Unix socket, the agent asks sluiced for a slot (control ring),
// and passes on the descriptors by which the program reaches its worker by itself. From then on the
// agent only watches: the program's connection and its pidfd (a forked child may keep the
// connection open), and the host's news. One thread, one poll loop; costs one wake-up a second when
// idle.
//
// What it does not do: it sees none of the programs' calls or data.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "guest-agent/agent/vgpu_device.h"
#include "mediator/ring/ring.h"

namespace sluice::guest {

class Agent {
 public:
  // `listener`: a listening SOCK_SEQPACKET socket. Announces itself to the host with a new epoch.
  Agent(VgpuDevice& device, Fd listener);
  ~Agent();

  // One round: waits at most `timeout_ms` for anything, handles it. `extra_fd` (or -1): also
  // returns when that is readable. Error: the vGPU is gone, with a DeviceProblem.
  Result<void> step(int timeout_ms, int extra_fd = -1);

  size_t programs() const { return programs_.size(); }
  uint64_t epoch() const { return epoch_; }

 private:
  //   from      read_join   OPENED       CLOSED    the program's end
  //   joining   asked                              over
  //   asked                 open, over             deserted
  //   deserted              over (CLOSE)
  //   open                               ended     over (CLOSE)
  //   ended                                        over (CLOSE)
  enum class State {
    kJoining,
    kAsked,     // OPEN has been sent, its answer not seen
    kDeserted,  // likewise, and the program has gone
    kOpen,      // has slot and slot_epoch
    kEnded,     // the host ended its session; the program may still read the slot's memory
    kOver,      // nothing of it is left, or it is refused: to be forgotten
  };
  struct Program {
    Fd socket, process;
    uint32_t pid = 0;
    std::string name;
    State state = State::kJoining;
    uint64_t request = 0;
    uint32_t slot = 0;
    uint64_t slot_epoch = 0;
    uint64_t deadline_ns = 0;  // for joining
  };

  void announce();
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
  void ask(Program& program);
  void refuse(Program& program, int error, const std::string& reason);
  void read_control();
  void on_opened(const sluice_control_message& message);
  void on_closed(const sluice_control_message& message);
  void send(uint16_t opcode, const sluice_control_message& message);
  void flush();

  VgpuDevice& device_;
  Fd listener_;
  uint64_t epoch_ = 0;
  uint64_t host_epoch_ = 0;
  uint64_t next_beat_ns_ = 0, beat_ = 0;
  uint64_t host_beat_ = 0, host_beat_ns_ = 0;
  bool host_silent_ = false;
  uint64_t next_request_ = 0;
  RingProducer to_host_;
  RingConsumer from_host_;
  RecordBuffer buffer_;
  std::deque<std::pair<uint16_t, sluice_control_message>> backlog_;
  std::list<Program> programs_;
};

}  // namespace sluice::guest
