// SPDX-License-Identifier: Apache-2.0
// Environment: what a running block asks of the world around it. The owner of the blocks implements
// it; every member is called from the threads that call Block::run, several at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace sluice::exec {

class Checker;

class Environment {
 public:
  virtual ~Environment() = default;
  // %globaltimer, nanoseconds.
  virtual uint64_t global_timer_ns() = 0;
  // Text that kernels print (vprintf), already formatted; one call per thread and call.
  virtual void print(std::string_view text) = 0;
  // The line of an assertion that fails (__assertfail), without its end; one call per thread.
  virtual void assertion_failed(std::string_view) {}
  // Preempt sequence: while blocks run they look at it at back edges, and Block::run returns soon
  // after it has changed (kYielded; it goes on when run again). Null: nobody ever asks. Set before
  // any block runs; the word may lie in memory that other processes write.
  const std::atomic<uint32_t>* preempt_sequence = nullptr;
  // What blocks made for this environment report to. Null: they run unchecked, which costs nothing.
  Checker* checker = nullptr;
  // Faults where the manual calls undefined what GPUs let pass: mbarrier.init on an object that is
  // valid, mbarrier.inval on one that is not.
  bool strict = false;
};

}  // namespace sluice::exec
