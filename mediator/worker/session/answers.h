// SPDX-License-Identifier: Apache-2.0
// Answers: what a session sends to its program: answers to calls, and before each of them what its
// kernels have printed since the last, in order.
//
// Owned by the WorkerSession; any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "abi/wire.h"
#include "mediator/base/fd.h"
#include "mediator/gpu/driver_api.h"
#include "mediator/worker/process/printed.h"
#include "mediator/worker/session/replies.h"

namespace sluice::worker {

class Answers {
 public:
  // `pipe`: Printed::capture()'s.
  Answers(RingProducer ring, Fd pipe) : replies(std::move(ring)), printed(std::move(pipe)) {}

  Replies replies;
  Printed printed;

  void send_output() {
    std::lock_guard lock(order_);
    send_text(printed.take(), SLUICE_PRINTED_OUTPUT);
  }
  void send_assertions() {
    std::lock_guard lock(order_);
    send_text(printed.take_assertions(), SLUICE_PRINTED_ERROR);
  }

 private:
  void send_text(const std::string& text, sluice_printed_to to);  // with `order_` held

  std::mutex order_;  // of pieces of text; taken last
};

}  // namespace sluice::worker
