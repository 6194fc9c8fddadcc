// SPDX-License-Identifier: Apache-2.0
// LoopPriority: sluiced's loop goes before the workers that keep the processors busy, as a gate
// that opens late is GPU time lost for everybody. One for the process: of the thread that calls
// raise(). Threads and processes that it starts have the ordinary priority.
//
//   ordinary     neither is allowed here
//   nice         as `nice` of the configuration says; its session, too, where that is a group of
//                its own to the scheduler (autogroup)
//   real time    SCHED_RR, the lowest priority of it, within a budget
//   spent        nice, until the next beat: the budget was used up
//
//   ordinary -- raise --> nice, or real time <--> spent -- refused: logged --> nice
//
// The budget: guests decide how much sluiced has to do, so real time ends for the rest of a second
// when the loop has run kRunMs without sleeping (RLIMIT_RTTIME and its signal), or more than
// kShare of the second before. Without it a flood could keep a processor from everybody else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mediator/base/result.h"

namespace sluice::io {

class LoopPriority {
 public:
  enum class State : uint8_t { kOrdinary, kNice, kRealTime, kSpent };
  static constexpr std::string_view kNames[] = {"ordinary", "nice", "real time", "spent"};

  // Lower shares: turns of a busy host are decided late every other second. More: what the kernel
  // itself allows to real time, 95 % of a processor.
  static constexpr double kShare = 0.5;
  // Less: one honest burst of a thousand sessions is over it.
  static constexpr uint64_t kRunMs = 200;

  // Once, before the thread gives up privileges. Takes what is allowed of what is asked for; the
  // error says what is not.
  static Result<void> raise(int nice, bool real_time);
  // About once a second, by that thread.
  static void on_beat();

  // By that thread: for work that others' processors are not to be taken for, as polling is, it
  // leaves real time until step_forward(), and what it does meanwhile costs no budget. False: it
  // could not have real time again, and has to go on as it is.
  static bool stand_back();
  static void step_forward();

  static State state();
  // How often it was spent.
  static uint64_t times_spent();
  // Why real time, which was asked for, is not had; otherwise empty. By that thread.
  static const std::string& refusal();

  // What follows a beat, when the loop was busy for so much of the time since the last one.
  static State after(State now, uint64_t busy_ns, uint64_t elapsed_ns);
};

}  // namespace sluice::io
