// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run in a stream's order. The worker answers when the stream has got
// there and holds it; a thread of ours runs the function and tells the worker to go on. The thread
// starts with the first such call and sleeps with the session's other waiters.
#include <pthread.h>
#include <signal.h>

#include <deque>
#include <memory>
#include <thread>

#include "guest-agent/graphs/capture.h"
#include "guest-agent/shim/calls/host_func.h"
#include "guest-agent/shim/state/api.h"

using namespace sluice::guest;
namespace graphs = sluice::graphs;

namespace {

struct HostFunc {
  CUhostFn function = nullptr;          // cuLaunchHostFunc: skipped after an error, as CUDA does
  CUstreamCallback callback = nullptr;  // cuStreamAddCallback: gets the error
  CUstream stream = nullptr;
  void* user_data = nullptr;
  uint64_t context = 0;
  uint64_t call_id = 0;
};

// What became of one call, under Helper::mutex.
struct Call {
  bool queued = false;   // in Helper::ready, or taken from there
  bool refused = false;  // the program got an error: its function must not run
};

struct Ready {
  HostFunc func;
  CUresult status = CUDA_SUCCESS;
  std::shared_ptr<Call> call;
};

struct Helper {
  std::mutex mutex;  // taken inside the session's complete lock, never the other way round
  std::deque<Ready> ready;
  size_t outstanding = 0;
  std::condition_variable work;
  bool started = false;

  bool has_ready() {
    std::lock_guard lock(mutex);
    return !ready.empty();
  }
};
Helper& helper() {
  static auto* it = new Helper;
  return *it;
}

void run(WorkerLink& link) {
  pthread_setname_np(pthread_self(), "sluice-hostfn");
  Helper& h = helper();
  for (;;) {
    {
      std::unique_lock lock(h.mutex);
      h.work.wait(lock, [&] { return h.outstanding != 0; });
    }
    link.wait_until([&h] { return h.has_ready(); });
    Ready next;
    {
      std::lock_guard lock(h.mutex);
      if (h.ready.empty()) {
        // Either a spurious wake-up, or the session has ended and its answers are about to come.
        if (link.dead() != CUDA_SUCCESS) std::this_thread::yield();
        continue;
      }
      next = h.ready.front();
      h.ready.pop_front();
      --h.outstanding;
    }
    {
      std::lock_guard lock(WorkerLink::callbacks());
      if (next.func.callback != nullptr)
        next.func.callback(next.func.stream, next.status, next.func.user_data);
      else if (next.status == CUDA_SUCCESS)
        next.func.function(next.func.user_data);
    }
    if (link.dead() == CUDA_SUCCESS)
      link.post(SLUICE_CALL_HOST_FUNC_DONE, next.func.context, next.func.call_id);
  }
}

void start_helper(WorkerLink& link) {
  // The program's signals are for the program's threads: the helper inherits a full mask.
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  std::thread([&link] { run(link); }).detach();
  ++WorkerLink::own_threads();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CUresult queue_host(const Entered& e, HostFunc func);

CUresult launch_host(HostFunc func) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (func.function == nullptr && func.callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = resolve_stream(func.stream); bad != CUDA_SUCCESS) return bad;
  // CUDA's callbacks get a stream's handle, and cannot be in a graph.
  if (func.callback != nullptr) {
    if (const CUresult r = graphs::refuse_in_capture(func.stream); r != CUDA_SUCCESS) return r;
  } else if (const auto r = graphs::capture_node(func.stream, [&] {
               return graphs::host_work(func.function, func.user_data, e.context);
             })) {
    return *r;
  }
  return queue_host(e, func);
}

CUresult queue_host(const Entered& e, HostFunc func) {
  func.context = e.context;
  Helper& h = helper();
  {
    std::lock_guard lock(h.mutex);
    if (!h.started) {
      h.started = true;
      start_helper(*e.link);
    }
    ++h.outstanding;
    h.work.notify_one();
  }
  sluice_synchronize body{};
  body.what = SLUICE_SYNC_STREAM;
  body.handle = wire(func.stream);
  auto call = std::make_shared<Call>();
  const CUresult r =
      e.link->start_detached(SLUICE_CALL_HOST_FUNC, e.context, body,
                             [func, call, &h](uint64_t call_id, CUresult status) mutable {
                               func.call_id = call_id;
                               std::lock_guard lock(h.mutex);
                               if (call->refused) return;
                               call->queued = true;
                               h.ready.push_back({func, status, call});
                             });
  if (r == CUDA_SUCCESS) return r;
  // The program learns of it by this call, not by its function.
  std::lock_guard lock(h.mutex);
  call->refused = true;
  const size_t erased = std::erase_if(h.ready, [&](const Ready& one) { return one.call == call; });
  if (!call->queued || erased != 0) --h.outstanding;
  return r;
}

}  // namespace

CUresult sluice::guest::callback_beside_captures(CUstream stream, CUstreamCallback callback,
                                                 void* data) {
  const Entered e = enter_context();
  if (!e) return e.status;
  if (const CUresult bad = resolve_stream(stream); bad != CUDA_SUCCESS) return bad;
  HostFunc func;
  func.callback = callback;
  func.stream = stream;
  func.user_data = data;
  return queue_host(e, func);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void* user_data) {
  HostFunc func;
  func.function = fn;
  func.stream = stream;
  func.user_data = user_data;
  return launch_host(func);
}

CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* user_data,
                             unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  HostFunc func;
  func.callback = callback;
  func.stream = stream;
  func.user_data = user_data;
  return launch_host(func);
}
