// SPDX-License-Identifier: Apache-2.0
#include "mediator/io/peers/peer_thread.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/log.h"
#include "mediator/base/process/processor_time.h"
#include "mediator/ring/wait.h"

namespace sluice::io {

namespace asio = boost::asio;

namespace {
std::atomic<size_t> abandoned_threads{0};

// Ends a system call that waits. Nobody else in sluiced handles it; ignored, it would end nothing.
constexpr int kInterrupt = SIGURG;

void install_interrupt() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_handler = [](int) {};  // no SA_RESTART: the call returns with EINTR
    ::sigaction(kInterrupt, &action, nullptr);
  });
}
}  // namespace

// Whether a thread of ours runs, or would if it had a processor. The kernel waits for nobody to
// answer.
bool could_run(pid_t tid) {
  char text[256] = {};
  const Fd stat(
      ::open(("/proc/self/task/" + std::to_string(tid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!stat || ::read(stat.get(), text, sizeof text - 1) <= 0) return false;
  const char* name_end = std::strrchr(text, ')');
  return name_end && name_end[1] == ' ' && name_end[2] == 'R';
}

// Shared by the object and its threads, which keep it when the object goes.
struct PeerThread::State : std::enable_shared_from_this<State> {
  enum class Kind { kWork, kRing, kClose };
  struct Job {
    Kind kind;
    Work work;
    Work then;
  };
  enum class Life {
    kThere,
    kLeaving,  // the object has gone; a thread ends when nothing is queued
  };
  enum class Does { kIdle, kBusy, kStuck };
  struct Thread {
    pid_t tid = 0;
    Does does = Does::kIdle;
    Kind kind = Kind::kWork;
    uint64_t since_ns = 0;  // busy or stuck since
    bool was_abandoned = false;
  };

  State(asio::io_context& context, const Late& l, const std::optional<Share>& s)
      : io(context), late(l), share(s), check_timer(context) {
    if (share) credit_ns = static_cast<double>(share->burst_ns);
  }

  bool push(Job job, bool always) {
    std::unique_lock lock(mutex);
    if (life == Life::kLeaving || (!always && jobs.size() >= limits::kMaxPeerWork)) return false;
    if (threads.empty() && !start() && !always) return false;
    jobs.push_back(std::move(job));
    lock.unlock();
    more.notify_one();
    supervise();
    return true;
  }

  bool start() {
    // Signals are the loop's: a thread that starts with all of them blocked never takes one.
    sigset_t all, before;
    ::sigfillset(&all);
    ::sigdelset(&all, kInterrupt);
    install_interrupt();
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto me = threads.emplace(threads.end());
    bool started = true;
    try {
      std::thread([self = shared_from_this(), me] { self->run(me); }).detach();
    } catch (const std::system_error&) {
      threads.erase(me);
      started = false;  // the next check tries again
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void run(std::list<Thread>::iterator me) {
    ::pthread_setname_np(::pthread_self(), "peer");
    std::unique_lock lock(mutex);
    me->tid = static_cast<pid_t>(::syscall(SYS_gettid));
    for (;;) {
      more.wait(lock, [&] { return !jobs.empty() || life == Life::kLeaving; });
      if (jobs.empty()) break;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      me->does = Does::kBusy;
      me->kind = job.kind;
      me->since_ns = monotonic_ns();
      lock.unlock();
      const uint64_t cpu_ns = thread_cpu_ns();
      job.work();
      job.work = nullptr;  // what it holds is released here, too
      const uint64_t cost_ns = thread_cpu_ns() - cpu_ns;
      lock.lock();
      // Under the lock: the io_context is there as long as the object has not gone.
      if (job.then && life == Life::kThere)
        asio::post(io, [self = shared_from_this(), then = std::move(job.then)] {
          if (self->life_on_loop == Life::kThere) then();
        });
      if (me->was_abandoned) --abandoned_threads;
      me->was_abandoned = false;
      if (me->does == Does::kStuck) {  // another one has taken over
        --stuck;
        break;
      }
      me->does = Does::kIdle;
      if (const uint64_t rest_ns = pay(cost_ns); rest_ns != 0)
        more.wait_for(lock, std::chrono::nanoseconds(rest_ns),
                      [&] { return life == Life::kLeaving; });
    }
    threads.erase(me);
  }

  // With the lock held: for how long the thread has to rest after what has cost this much.
  uint64_t pay(uint64_t cost_ns) {
    if (!share) return 0;
    const uint64_t now_ns = monotonic_ns();
    if (paid_ns != 0) credit_ns += share->part * static_cast<double>(now_ns - paid_ns);
    credit_ns = std::min(credit_ns, static_cast<double>(share->burst_ns));
    credit_ns -= static_cast<double>(cost_ns);
    paid_ns = now_ns;
    return credit_ns >= 0 ? 0 : static_cast<uint64_t>(-credit_ns / share->part);
  }

  // Checks whether the jobs get on. True: there is something to check again.
  bool check(uint64_t now_ns, bool* new_stuck) {
    std::lock_guard lock(mutex);
    bool served = false, busy = false;
    for (Thread& t : threads) {
      busy |= t.does != Does::kIdle;
      const uint64_t late_ns = 1'000'000 * (t.kind == Kind::kWork ? late.work_ms : late.call_ms);
      const uint64_t took_ns = t.does == Does::kIdle ? 0 : now_ns - t.since_ns;
      if (took_ns > late_ns && t.kind != Kind::kWork) interrupt(t);
      // Interrupted before, without effect.
      if (t.does == Does::kBusy && took_ns > 2 * late_ns && !jobs.empty() &&
          stuck < limits::kMaxStuckPeerThreads && !could_run(t.tid)) {
        t.does = Does::kStuck;
        ++stuck;
        *new_stuck = true;
      }
      served |= t.does != Does::kStuck;
    }
    if (!served && !jobs.empty()) start();
    return busy || !jobs.empty();
  }

  void leave() {
    std::lock_guard lock(mutex);
    life = Life::kLeaving;
    for (Thread& t : threads) {
      if (t.does == Does::kIdle) continue;
      t.was_abandoned = true;
      ++abandoned_threads;
      if (t.kind != Kind::kWork) interrupt(t);
    }
    more.notify_all();
  }

  // Checks after a while, and again as long as something is under way. The loop's thread.
  void supervise();

  static void interrupt(const Thread& t) { ::syscall(SYS_tgkill, ::getpid(), t.tid, kInterrupt); }

  asio::io_context& io;
  const Late late;
  const std::optional<Share> share;
  std::mutex mutex;
  std::condition_variable more;
  std::deque<Job> jobs;
  std::list<Thread> threads;  // at most one is not stuck
  size_t stuck = 0;
  double credit_ns = 0;  // of `share`, ...
  uint64_t paid_ns = 0;  // ... then; 0: nothing was paid yet
  Life life = Life::kThere;
  // The io_context's thread only.
  Life life_on_loop = Life::kThere;
  std::optional<Timer> check_timer;  // the last owner of this may be a thread
};

PeerThread::PeerThread(asio::io_context& io) : PeerThread(io, Late{}) {}
PeerThread::PeerThread(asio::io_context& io, const Late& late, const std::optional<Share>& share)
    : state_(std::make_shared<State>(io, late, share)) {}

PeerThread::~PeerThread() {
  state_->life_on_loop = State::Life::kLeaving;
  state_->check_timer.reset();
  state_->leave();
}

void PeerThread::State::supervise() {
  if (!check_timer || check_timer->pending()) return;
  check_timer->after_ms(late.call_ms, [this] {
    bool new_stuck = false;
    const bool again = check(monotonic_ns(), &new_stuck);
    if (new_stuck) log::warning("a thread hangs on what a vGPU's peer passed; another goes on");
    if (again) supervise();
  });
}

bool PeerThread::post(Work work, Work then) {
  return state_->push({State::Kind::kWork, std::move(work), std::move(then)}, false);
}

void PeerThread::close(Fd fd) {
  if (!fd) return;
  // std::function wants what it holds to be copyable.
  auto held = std::make_shared<Fd>(std::move(fd));
  (void)state_->push({State::Kind::kClose, [held]() mutable { held->reset(); }, nullptr}, true);
}

size_t PeerThread::queued() const {
  std::lock_guard lock(state_->mutex);
  return state_->jobs.size();
}

size_t PeerThread::stuck() const {
  std::lock_guard lock(state_->mutex);
  return state_->stuck;
}

uint64_t PeerThread::blocked_for_ms() const {
  std::lock_guard lock(state_->mutex);
  uint64_t since_ns = UINT64_MAX;
  for (const State::Thread& t : state_->threads)
    if (t.does != State::Does::kIdle) since_ns = std::min(since_ns, t.since_ns);
  return since_ns == UINT64_MAX ? 0 : (monotonic_ns() - since_ns) / 1'000'000;
}

bool PeerThread::saturated() const {
  std::lock_guard lock(state_->mutex);
  return state_->jobs.size() >= limits::kMaxPeerWork ||
         state_->stuck >= limits::kMaxStuckPeerThreads;
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
      {PeerThread::State::Kind::kRing,
       [bell = state_] {
         bell->waiting = false;  // before the write: what happens from here on rings again
         const uint64_t one = 1;
         // EAGAIN, EINTR: the counter is full, so that the bell rings already.
         (void)!::write(bell->eventfd.get(), &one, sizeof one);
       },
       nullptr},
      true);
  if (!taken) state_->waiting = false;
}

bool PeerBell::drain() { return drain_shared_eventfd(state_->eventfd.get()); }
int PeerBell::fd() const { return state_->eventfd.get(); }

}  // namespace sluice::io
