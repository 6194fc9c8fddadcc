// SPDX-License-Identifier: Apache-2.0
// LoopMeter: how long sluiced's one thread was kept by a single call of its loop. Each call by a
// descriptor or a timer (fd_watch.h) is measured, by the clock and by the processor time it took;
// the difference is time in which the thread waited, for a processor or in the kernel.
//
// One for each thread that runs an io_context. Nobody else reads it. Times are in ns.
#pragma once

#include <cstdint>
#include <string>
#include <typeinfo>

namespace sluice::io {

class LoopMeter {
 public:
  struct Stall {
    uint64_t wall_ns = 0, cpu_ns = 0;
    const std::type_info* callback =
        nullptr;  // of what was called: its name says where it was made
    std::string where() const;
  };
  struct Figures {
    uint64_t calls = 0;
    uint64_t over_10_ms = 0, over_50_ms = 0;  // by the clock
    Stall longest;                            // by the clock
    Stall busiest;                            // by processor time
  };

  static const Figures& figures();
  static void forget();
  // A loop that polls instead of sleeping calls this before each poll: what it spent until now, in
  // which nothing came, is no call's cost.
  static void before_poll();

  // Measures its own life. At its end the processor time that it took, with what the loop took to
  // come to it (from the end of the call before, or from before_poll(): epoll, timers), is in
  // `*cost_ns`, if given.
  class Call {
   public:
    explicit Call(const std::type_info& callback, uint64_t* cost_ns = nullptr);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    const std::type_info& callback_;
    uint64_t wall_ns_, cpu_ns_;
    uint64_t* cost_ns_;
  };
};

}  // namespace sluice::io
