// SPDX-License-Identifier: Apache-2.0
// StreamScheduler: streams and what stands in them. Each operation waits for those before it: its
// stream's last one, what CUDA's legacy default stream adds to that, and events. One that has
// nothing left to wait for is started: kernels by the grid runner, copies on one of two copy
// threads, to the host and all others (small ones where they are), host functions on a thread of
// their own; waits for memory words are polled by a fourth.
//
// Owned by the library's state. Any thread may call; the four threads are started when first
// needed and sleep when they have nothing to do. It does not look into operations and knows no CUDA
// handles.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "mediator/softgpu/grid/grid_runner.h"

namespace sluice::softgpu {

struct Context;
struct GreenContext;
struct Stream;

// One operation in a stream. Made by the API functions, then the scheduler's.
struct Operation {
  enum class Kind : uint8_t {
    kMarker,        // nothing; its end is the end of all before it
    kKernel,        // `grid`
    kTransfer,      // `run`: a copy or fill of `bytes`
    kHostFunction,  // `run`: calls the program
    kWriteValue,    // `run`: stores a word
    kWaitValue,     // until `satisfied` says true
  };
  Kind kind = Kind::kMarker;
  bool to_host = false;           // a transfer's direction: each has a copy engine of its own
  bool even_after_error = false;  // run although the context has failed (stream callbacks)
  std::shared_ptr<Grid> grid;
  std::function<void()> run;
  std::function<bool()> satisfied;
  size_t bytes = 0;

  // Ends: 1 once it is over, also when it was skipped because its context had failed. done_ns
  // (CLOCK_MONOTONIC) is valid then.
  std::atomic<uint32_t> done{0};
  uint64_t done_ns = 0;
  void wait() const { done.wait(0, std::memory_order_acquire); }
  bool is_done() const { return done.load(std::memory_order_acquire) != 0; }

 private:
  friend class StreamScheduler;
  std::shared_ptr<Context> context;  // while it is pending; kept alive by it
  unsigned waits_for = 0;
  std::vector<std::shared_ptr<Operation>> dependents;
};
using OperationRef = std::shared_ptr<Operation>;

class StreamScheduler {
 public:
  explicit StreamScheduler(GridRunner& runner) : runner_(runner) {}
  ~StreamScheduler();

  // A context's list of streams. A removed stream's work still runs to its end.
  void add_stream(Context& context, std::shared_ptr<Stream> stream);
  void remove_stream(Context& context, Stream& stream);

  // Puts `operation` at the end of `stream`. It also waits for `after`, if that is not null.
  void enqueue(Stream& stream, const OperationRef& operation, const OperationRef& after = nullptr);
  // As enqueue, but a transfer that could start at once runs in the calling thread; waits for its
  // end.
  void enqueue_and_wait(Stream& stream, const OperationRef& operation);
  // The last operation of a stream; for a legacy stream, of all that it waits for. Null: none
  // pending.
  OperationRef last(Stream& stream);
  void wait(Stream& stream);
  bool is_idle(Stream& stream);
  // Everything queued in `context` up to now, its green contexts too; or in one of them.
  void wait(Context& context);
  void wait(GreenContext& green);
  // Green contexts. Puts `operation` behind all that is in its streams now, into none of them.
  void enqueue(GreenContext& green, const OperationRef& operation);
  // All that is put into its streams from now on, new ones too, waits for `before`.
  void hold_up(GreenContext& green, const OperationRef& before);
  // It gets no more work: its streams leave the context's list.
  void remove_streams(GreenContext& green);
  void stop();

 private:
  using Ready = std::deque<OperationRef>;
  // A thread with a queue of operations that it runs one after the other.
  struct Lane {
    std::deque<OperationRef> queue;
    std::condition_variable filled;
    std::thread thread;
  };

  std::vector<OperationRef> pending(Context& context, uint64_t green_id, bool all);
  void add_edge(const OperationRef& before, const OperationRef& after);
  void insert(Stream& stream, const OperationRef& operation, const OperationRef& after,
              Ready& ready);
  void start(Ready& ready, bool here);
  bool start_one(const OperationRef& operation, bool here);  // true: it is over already
  void finish(const OperationRef& operation, Ready& ready);
  void complete(const OperationRef& operation);
  void give(Lane& lane, const OperationRef& operation, const char* name);
  void lane_main(Lane& lane);
  void poll_main();
  void launch_thread(std::thread& thread, const char* name, std::function<void()> body);

  GridRunner& runner_;
  std::mutex mutex_;
  bool stop_ = false;
  Lane uploads_, downloads_, host_;
  std::vector<OperationRef> polled_;
  std::condition_variable polled_filled_;
  std::thread poller_;
};

}  // namespace sluice::softgpu
