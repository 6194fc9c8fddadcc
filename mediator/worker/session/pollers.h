// SPDX-License-Identifier: Apache-2.0
// Pollers: the decoder and the engine thread as sleepers, and which of them polls the stream engine
// while work is in flight. It is the decoder as long as that is awake: waking the engine thread
// costs more than a launch, and on two processors that thread would displace another one.
//
//   the decoder ...                 polls the engine
//   is awake, or sleeps in short    the decoder
//   sleeps until it is woken        the engine thread
//
// Owned by the WorkerSession, used under its lock, but for wake() and the descriptors.
#pragma once

#include <cstdint>

#include "mediator/worker/session/sleeper.h"

namespace sluice::worker {

class Pollers {
 public:
  Sleeper decoder, engine_thread;

  // The decoder is about to sleep for `sleep_ns` (0: it is awake).
  void decoder_sleeps(bool polls, uint64_t sleep_ns) {
    decoder_polls_ = polls;
    decoder.about_to_sleep(sleep_ns);
  }
  bool decoder_polls() const { return decoder_polls_; }
  // Work is in flight: the thread that polls may sleep for `longest_ns` at most.
  void wake_from(uint64_t longest_ns) {
    (decoder_polls_ ? decoder : engine_thread).wake_from(longest_ns);
  }

 private:
  bool decoder_polls_ = true;
};

}  // namespace sluice::worker
