#include "mediator/io/peer_thread.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"

namespace sluice::io {

namespace asio = boost::asio;

namespace {
std::atomic<size_t> abandoned_threads{0};
}  // namespace

// Shared by the object and its thread; the thread keeps it when the object goes.
struct PeerThread::State : std::enable_shared_from_this<State> {
  struct Job {
    Work work;
    Work then;
  };
  enum class Life {
    kNotStarted,
    kRunning,  // the thread runs and the object is there
    kLeaving,  // the object has gone; the thread ends when nothing is queued
  };

  explicit State(asio::io_context& context) : io(context) {}

  bool push(Job job, bool always) {
    std::unique_lock lock(mutex);
    if (life == Life::kLeaving || (!always && jobs.size() >= limits::kMaxPeerWork)) return false;
    if (life == Life::kNotStarted && !start()) return false;
    jobs.push_back(std::move(job));
    lock.unlock();
    more.notify_one();
    return true;
  }

  bool start() {
    // Signals are the loop's: a thread that starts with all of them blocked never takes one.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
      life = Life::kRunning;
    } catch (const std::system_error& e) {
      log::error("no thread for a vGPU's peers: {}", e.what());
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return life == Life::kRunning;
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "peer");
    std::unique_lock lock(mutex);
    for (;;) {
      more.wait(lock, [&] { return !jobs.empty() || life == Life::kLeaving; });
      if (jobs.empty()) break;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      busy_since_ns = monotonic_ns();
      lock.unlock();
      job.work();
      job.work = nullptr;  // what it holds is released here, too
      lock.lock();
      busy_since_ns = 0;
      // Under the lock: the io_context is there as long as the object has not gone.
      if (job.then && life == Life::kRunning)
        asio::post(io, [self = shared_from_this(), then = std::move(job.then)] {
          if (self->life_on_loop != Life::kLeaving) then();
        });
    }
    if (was_abandoned) --abandoned_threads;
  }

  asio::io_context& io;
  std::mutex mutex;
  std::condition_variable more;
  std::deque<Job> jobs;
  Life life = Life::kNotStarted;
  Life life_on_loop = Life::kRunning;  // the io_context's thread only
  uint64_t busy_since_ns = 0;          // 0: no call is under way
  bool was_abandoned = false;
};

PeerThread::PeerThread(asio::io_context& io) : state_(std::make_shared<State>(io)) {}

PeerThread::~PeerThread() {
  state_->life_on_loop = State::Life::kLeaving;
  {
    std::lock_guard lock(state_->mutex);
    const bool started = state_->life == State::Life::kRunning;
    state_->life = State::Life::kLeaving;
    if (started && state_->busy_since_ns != 0) {
      state_->was_abandoned = true;
      ++abandoned_threads;
    }
  }
  state_->more.notify_one();
}

bool PeerThread::post(Work work, Work then) {
  return state_->push({std::move(work), std::move(then)}, false);
}

void PeerThread::close(Fd fd) {
  if (!fd) return;
  // std::function wants what it holds to be copyable.
  auto held = std::make_shared<Fd>(std::move(fd));
  if (state_->push({[held]() mutable { held->reset(); }, nullptr}, true)) return;
  // The thread has gone or cannot be had: a leaked descriptor harms less than a loop that waits.
  log::error("a peer's descriptor stays open: there is no thread to close it");
  (void)held->release();
}

size_t PeerThread::queued() const {
  std::lock_guard lock(state_->mutex);
  return state_->jobs.size();
}

uint64_t PeerThread::blocked_for_ms() const {
  std::lock_guard lock(state_->mutex);
  return state_->busy_since_ns ? (monotonic_ns() - state_->busy_since_ns) / 1'000'000 : 0;
}

bool PeerThread::saturated() const {
  std::lock_guard lock(state_->mutex);
  return state_->jobs.size() >= limits::kMaxPeerWork;
}

size_t PeerThread::abandoned() { return abandoned_threads; }

// ---- bells -----------------------------------------------------------------------------------

struct PeerBell::State {
  Fd eventfd;
  std::atomic<bool> waiting{false};  // queued on the thread, and not begun
};

PeerBell::PeerBell(PeerThread& thread, Fd eventfd)
    : thread_(thread.state_), state_(std::make_shared<State>()) {
  state_->eventfd = std::move(eventfd);
}

// A ring that is blocked because the peer has filled the counter goes on; the descriptor is closed
// by whoever holds it last. (The last close of an eventfd never waits.)
PeerBell::~PeerBell() { drain(); }

void PeerBell::ring() {
  if (state_->waiting.exchange(true)) return;
  const bool taken = thread_->push(
      {[bell = state_] {
         bell->waiting = false;  // before the write: what happens from here on rings again
         const uint64_t one = 1;
         (void)!::write(bell->eventfd.get(), &one, sizeof one);
       },
       nullptr},
      true);
  if (!taken) state_->waiting = false;
}

bool PeerBell::drain() { return drain_shared_eventfd(state_->eventfd.get()); }
int PeerBell::fd() const { return state_->eventfd.get(); }

bool drain_shared_eventfd(int fd) {
  uint64_t count;
  iovec to{&count, sizeof count};
  // Kernels from 5.12 on know RWF_NOWAIT for eventfds. Before, an error: the count stays, and the
  // watch, which is level triggered, asks again; docs/internals/channel.md says what needs that
  // kernel.
  return ::preadv2(fd, &to, 1, -1, RWF_NOWAIT) == static_cast<ssize_t>(sizeof count);
}

}  // namespace sluice::io
