// SPDX-License-Identifier: Apache-2.0
// What kernels print, and what their assertions say when they fail. Both go to the program's own
// standard output and error, before the answer of the call that the program waits for.
//
// Drivers write the former to the standard output of their process: here that is a pipe. They write
// the latter to the C library's `stderr`: here that is a stream that keeps such lines and passes on
// all others to the worker's log, which descriptor 2 stays.
//
// One per process, because there is one standard output. capture() before the driver is loaded; the
// rest any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "mediator/base/fd.h"
#include "mediator/base/result.h"

namespace sluice::worker {

class Printed {
 public:
  // What a program that does not wait for anything can have waiting; the rest is lost, as in the
  // driver's own buffer.
  static constexpr size_t kMostBytes = 1u << 20;
  // Of the lines of assertions; the rest is lost.
  static constexpr size_t kMostAssertionBytes = 64 * 1024;

  // The process's standard output becomes a pipe, whose other end this returns; `stderr` that
  // stream.
  static Result<Fd> capture();

  // `pipe`: capture()'s; without one nothing is ever printed.
  explicit Printed(Fd pipe);

  // A module whose kernels print is loaded: from here on somebody has to read, or a kernel that
  // prints more than a pipe holds would not end.
  void start();
  bool started() const { return started_.load(std::memory_order_acquire); }

  // All that was written before this call and was not taken yet.
  std::string take();
  // The lines of failed assertions, likewise.
  static std::string take_assertions();

 private:
  // Outlives this: the reading thread ends with the process.
  struct Buffer {
    Fd pipe;
    std::mutex mutex;
    std::string text;  // under mutex
    size_t lost = 0;   // bytes, likewise
    void drain();      // with mutex held; does not wait
  };
  std::shared_ptr<Buffer> buffer_;
  std::atomic<bool> started_{false};
};

}  // namespace sluice::worker
