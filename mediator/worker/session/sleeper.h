// SPDX-License-Identifier: Apache-2.0
// Sleeper: one of the session's threads as the others see it: for how long it is about to sleep,
// and how to wake it, at most once each time. The decoder and the engine thread have one each.
//
// The descriptor: any thread. The rest: under the session's lock.
#pragma once

#include <cstdint>
#include <limits>

#include "mediator/base/check.h"
#include "mediator/base/fd.h"
#include "mediator/base/unix_socket.h"
#include "mediator/ring/wait.h"

namespace sluice::worker {

inline constexpr uint64_t kForeverNs = std::numeric_limits<uint64_t>::max();

class Sleeper {
 public:
  Sleeper() {
    auto fd = make_eventfd();
    SLUICE_CHECK(fd.ok());
    bell_ = std::move(*fd);
  }

  // It will sleep for so long. 0: it is awake; kForeverNs: until it is woken.
  void about_to_sleep(uint64_t ns) {
    sleep_ns_ = ns;
    woken_ = false;
  }
  // It is not to sleep for longer than this long.
  void wake_from(uint64_t longest_ns) {
    if (sleep_ns_ <= longest_ns || woken_) return;
    woken_ = true;
    wake();
  }
  void wake() { signal_eventfd(bell_.get()); }
  // Readable once it is woken; it drains it.
  int bell() const { return bell_.get(); }

 private:
  Fd bell_;
  uint64_t sleep_ns_ = 0;
  bool woken_ = false;
};

}  // namespace sluice::worker
