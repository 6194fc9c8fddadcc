// SPDX-License-Identifier: Apache-2.0
#include "mediator/softgpu/grid/stream_scheduler.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "mediator/base/clock.h"
#include "mediator/base/process/without_signals.h"
#include "mediator/softgpu/grid/faults.h"
#include "mediator/softgpu/state/objects.h"

namespace sluice::softgpu {
namespace {

// Transfers up to this size run in whatever thread makes them ready: some 10 us, less than handing
// them to another thread costs.
constexpr size_t kInlineTransferBytes = 64 * 1024;
// How often memory words that streams wait for are polled: often at first, then less and less,
// because a wait may last as long as the program likes.
constexpr useconds_t kShortestPoll_us = 10;
constexpr useconds_t kLongestPoll_us = 200;

}  // namespace

StreamScheduler::~StreamScheduler() { stop(); }

void StreamScheduler::add_stream(Context& context, std::shared_ptr<Stream> stream) {
  std::lock_guard lock(mutex_);
  std::erase_if(context.streams,
                [](const auto& s) { return s->closed && (!s->last || s->last->is_done()); });
  context.streams.push_back(std::move(stream));
}

void StreamScheduler::remove_stream(Context& context, Stream& stream) {
  std::lock_guard lock(mutex_);
  stream.closed = true;
  std::erase_if(context.streams,
                [](const auto& s) { return s->closed && (!s->last || s->last->is_done()); });
}

void StreamScheduler::add_edge(const OperationRef& before, const OperationRef& after) {
  if (!before || before->is_done() || before == after) return;
  before->dependents.push_back(after);
  ++after->waits_for;
}

// Under mutex_.
void StreamScheduler::insert(Stream& stream, const OperationRef& operation,
                             const OperationRef& after, Ready& ready) {
  operation->context = stream.context.lock();
  const std::shared_ptr<GreenContext> green = stream.green.lock();
  if (!operation->context || operation->context->destroyed.load() ||
      (stream.green_id != 0 && (!green || green->destroyed.load()))) {
    // Its context went while the call was under way: nothing of it may run any more.
    operation->context = nullptr;
    operation->done.store(1, std::memory_order_release);
    return;
  }
  add_edge(stream.last, operation);
  add_edge(after, operation);
  if (green) add_edge(green->barrier, operation);
  Context& context = *operation->context;
  if (stream.legacy) {
    // The legacy stream waits for all blocking streams and they wait for it (CUDA programming
    // guide, "Default Stream").
    for (const std::shared_ptr<Stream>& other : context.streams) {
      if (other->blocking && other.get() != &stream) add_edge(other->last, operation);
    }
  } else if (stream.blocking) {
    add_edge(context.legacy->last, operation);
  }
  stream.last = operation;
  if (operation->waits_for == 0) ready.push_back(operation);
}

void StreamScheduler::enqueue(Stream& stream, const OperationRef& operation,
                              const OperationRef& after) {
  Ready ready;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    insert(stream, operation, after, ready);
  }
  start(ready, false);
}

void StreamScheduler::enqueue_and_wait(Stream& stream, const OperationRef& operation) {
  Ready ready;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    insert(stream, operation, nullptr, ready);
  }
  start(ready, true);
  operation->wait();
}

// Starts what is ready and what becomes ready by that.
void StreamScheduler::start(Ready& ready, bool here) {
  while (!ready.empty()) {
    const OperationRef operation = std::move(ready.front());
    ready.pop_front();
    if (start_one(operation, here)) finish(operation, ready);
    here = false;
  }
}

bool StreamScheduler::start_one(const OperationRef& operation, bool here) {
  using Kind = Operation::Kind;
  Context& context = *operation->context;
  if (context.error.load() != 0 && !operation->even_after_error) return true;
  switch (operation->kind) {
    case Kind::kMarker:
      return true;
    case Kind::kKernel:
      operation->grid->on_done = [this, operation](const exec::Fault& fault) {
        if (fault.kind != exec::FaultKind::kNone) {
          operation->context->fail(to_result(fault.kind), fault.describe());
        }
        complete(operation);
      };
      runner_.submit(operation->grid);
      return false;
    case Kind::kTransfer:
      if (here || operation->bytes <= kInlineTransferBytes) {
        operation->run();
        return true;
      }
      if (operation->to_host) {
        give(downloads_, operation, "softgpu-copyout");
      } else {
        give(uploads_, operation, "softgpu-copyin");
      }
      return false;
    case Kind::kHostFunction:
      give(host_, operation, "softgpu-host");
      return false;
    case Kind::kWriteValue:
      operation->run();
      return true;
    case Kind::kWaitValue:
      if (operation->satisfied()) return true;
      std::lock_guard lock(mutex_);
      polled_.push_back(operation);
      if (!poller_.joinable()) launch_thread(poller_, "softgpu-poll", [this] { poll_main(); });
      polled_filled_.notify_one();
      return false;
  }
  return true;
}

// Marks the end and collects what waited for it.
void StreamScheduler::finish(const OperationRef& operation, Ready& ready) {
  std::shared_ptr<Context> context;  // let go of outside the lock
  {
    std::lock_guard lock(mutex_);
    operation->done_ns = monotonic_ns();
    operation->done.store(1, std::memory_order_release);
    for (OperationRef& dependent : operation->dependents) {
      if (--dependent->waits_for == 0) ready.push_back(std::move(dependent));
    }
    operation->dependents.clear();
    context = std::move(operation->context);
  }
  operation->done.notify_all();
  // Nobody else touches these any more; what they hold must not live as long as the stream.
  operation->run = nullptr;
  operation->satisfied = nullptr;
  operation->grid = nullptr;
}

void StreamScheduler::complete(const OperationRef& operation) {
  Ready ready;
  finish(operation, ready);
  start(ready, false);
}

void StreamScheduler::launch_thread(std::thread& thread, const char* name,
                                    std::function<void()> body) {
  const WithoutSignals threads;
  thread = std::thread([name, body = std::move(body)] {
    ::pthread_setname_np(::pthread_self(),
                         name);  // from inside: needs no /proc, which may be closed off
    body();
  });
}

void StreamScheduler::give(Lane& lane, const OperationRef& operation, const char* name) {
  std::lock_guard lock(mutex_);
  if (stop_) return;
  lane.queue.push_back(operation);
  if (!lane.thread.joinable()) launch_thread(lane.thread, name, [this, &lane] { lane_main(lane); });
  lane.filled.notify_one();
}

void StreamScheduler::lane_main(Lane& lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    lane.filled.wait(lock, [&] { return stop_ || !lane.queue.empty(); });
    if (stop_) return;
    const OperationRef operation = std::move(lane.queue.front());
    lane.queue.pop_front();
    lock.unlock();
    operation->run();
    complete(operation);
    lock.lock();
  }
}

void StreamScheduler::poll_main() {
  useconds_t pause_us = kShortestPoll_us;
  std::unique_lock lock(mutex_);
  for (;;) {
    polled_filled_.wait(lock, [&] { return stop_ || !polled_.empty(); });
    if (stop_) return;
    std::vector<OperationRef> over;
    std::erase_if(polled_, [&](const OperationRef& operation) {
      if (operation->context->error.load() == 0 && !operation->satisfied()) return false;
      over.push_back(operation);
      return true;
    });
    lock.unlock();
    for (const OperationRef& operation : over) complete(operation);
    if (over.empty()) {
      ::usleep(pause_us);
      pause_us = std::min(pause_us + pause_us / 4, kLongestPoll_us);
    } else {
      pause_us = kShortestPoll_us;
    }
    lock.lock();
  }
}

OperationRef StreamScheduler::last(Stream& stream) {
  {
    std::lock_guard lock(mutex_);
    if (!stream.legacy) return stream.last && !stream.last->is_done() ? stream.last : nullptr;
  }
  if (is_idle(stream)) return nullptr;
  // A marker in the legacy stream ends when all that it waits for has.
  auto marker = std::make_shared<Operation>();
  enqueue(stream, marker);
  return marker;
}

bool StreamScheduler::is_idle(Stream& stream) {
  std::lock_guard lock(mutex_);
  const auto busy = [](const Stream& s) { return s.last && !s.last->is_done(); };
  if (busy(stream)) return false;
  if (!stream.legacy) return true;
  const std::shared_ptr<Context> context = stream.context.lock();
  if (!context) return true;
  return std::none_of(context->streams.begin(), context->streams.end(),
                      [&](const auto& other) { return other->blocking && busy(*other); });
}

void StreamScheduler::wait(Stream& stream) {
  if (const OperationRef operation = last(stream)) operation->wait();
}

// What is last in the streams of one green context (0: of none), or in all. Under mutex_.
std::vector<OperationRef> StreamScheduler::pending(Context& context, uint64_t green_id, bool all) {
  std::vector<OperationRef> found;
  for (const std::shared_ptr<Stream>& stream : context.streams) {
    if ((all || stream->green_id == green_id) && stream->last && !stream->last->is_done())
      found.push_back(stream->last);
  }
  return found;
}

void StreamScheduler::wait(Context& context) {
  std::unique_lock lock(mutex_);
  if (stop_) return;
  const std::vector<OperationRef> all = pending(context, 0, true);
  lock.unlock();
  for (const OperationRef& operation : all) operation->wait();
}

void StreamScheduler::wait(GreenContext& green) {
  std::unique_lock lock(mutex_);
  if (stop_) return;
  const std::vector<OperationRef> its = pending(*green.context, green.id, false);
  lock.unlock();
  for (const OperationRef& operation : its) operation->wait();
}

void StreamScheduler::enqueue(GreenContext& green, const OperationRef& operation) {
  Ready ready;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    operation->context = green.context;
    for (const OperationRef& last : pending(*green.context, green.id, false))
      add_edge(last, operation);
    add_edge(green.barrier, operation);
    if (operation->waits_for == 0) ready.push_back(operation);
  }
  start(ready, false);
}

void StreamScheduler::hold_up(GreenContext& green, const OperationRef& before) {
  auto barrier = std::make_shared<Operation>();
  Ready ready;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    barrier->context = green.context;
    add_edge(before, barrier);
    add_edge(green.barrier, barrier);
    if (barrier->waits_for == 0) ready.push_back(barrier);
    green.barrier = barrier;
  }
  start(ready, false);
}

void StreamScheduler::remove_streams(GreenContext& green) {
  std::lock_guard lock(mutex_);
  std::erase_if(green.context->streams, [&](const auto& s) {
    if (s->green_id != green.id) return false;
    s->closed = true;
    return !s->last || s->last->is_done();
  });
}

void StreamScheduler::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stop_) return;
    stop_ = true;
    uploads_.filled.notify_all();
    downloads_.filled.notify_all();
    host_.filled.notify_all();
    polled_filled_.notify_all();
  }
  for (std::thread* thread : {&uploads_.thread, &downloads_.thread, &host_.thread, &poller_}) {
    if (!thread->joinable()) continue;
    if (thread->get_id() == std::this_thread::get_id()) {
      thread->detach();
    } else {
      thread->join();
    }
  }
}

}  // namespace sluice::softgpu
