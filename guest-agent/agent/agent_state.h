// SPDX-License-Identifier: Apache-2.0
// What sluice-agent knows of the programs of its VM, and all that another agent needs to go on
// where it stopped (handover.h). Plain data; owned by the agent, one thread.
#pragma once

#include <cstdint>
#include <list>
#include <string>

#include "mediator/base/fd.h"

namespace sluice::guest {

// The states of a program, and what moves it to which other.
//
//   from      read_join   OPENED       CLOSED    the program's end
//   joining   asked                              over
//   asked                 open, over             deserted
//   deserted              over (CLOSE)
//   open                               ended     over (CLOSE)
//   ended                                        over (CLOSE)
enum class ProgramState {
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
  ProgramState state = ProgramState::kJoining;
  uint64_t request = 0;
  uint32_t slot = 0;
  uint64_t slot_epoch = 0;
  uint64_t deadline_ns = 0;   // for joining
  bool sends_no_fds = false;  // the kernel lets no descriptor into its socket
};

struct AgentState {
  Fd listener;  // SOCK_SEQPACKET; programs connect to it
  uint64_t epoch = 0, host_epoch = 0;
  uint64_t beat = 0;
  uint64_t next_request = 0;
  std::list<Program> programs;
};

}  // namespace sluice::guest
