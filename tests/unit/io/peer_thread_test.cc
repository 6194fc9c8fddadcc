// SPDX-License-Identifier: Apache-2.0
// PeerThread: calls that a peer can make block leave the loop alone.
#include "mediator/io/peers/peer_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "mediator/base/clock.h"
#include "mediator/base/limits.h"
#include "mediator/base/process/processor_time.h"
#include "mediator/base/unix_socket.h"
#include "tests/support/lingering.h"

namespace sluice::io {
namespace {

using namespace std::chrono_literals;

// Long enough on any machine; reached only by a failure.
constexpr auto kPatience = 120s;

bool eventually(const std::function<bool()>& condition) {
  for (auto end = std::chrono::steady_clock::now() + kPatience;;) {
    if (condition()) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
}

// What a peer does to sluiced's descriptor: clears O_NONBLOCK and fills the counter.
void make_writes_block(int eventfd) {
  ASSERT_EQ(::fcntl(eventfd, F_SETFL, ::fcntl(eventfd, F_GETFL) & ~O_NONBLOCK), 0);
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(::write(eventfd, &full, sizeof full), 8);
}

// What hangs here hangs until it is released, so a thread may be given up early. Not earlier than
// a ring takes on a busy machine.
constexpr PeerThread::Late kSoon{20, 50};

class PeerThreadTest : public ::testing::Test {
 protected:
  boost::asio::io_context io_;
  std::unique_ptr<PeerThread> thread_ = std::make_unique<PeerThread>(io_, kSoon);
};

TEST_F(PeerThreadTest, WorkRunsElsewhereAndItsEndInTheLoop) {
  std::atomic<bool> ran{false};
  std::thread::id worker, loop;
  ASSERT_TRUE(thread_->post(
      [&] {
        worker = std::this_thread::get_id();
        ran = true;
      },
      [&] { loop = std::this_thread::get_id(); }));
  ASSERT_TRUE(eventually([&] { return ran && io_.poll() > 0; }));
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_EQ(loop, std::this_thread::get_id());
}

TEST_F(PeerThreadTest, WorkBeyondItsShareWaits) {
  constexpr uint64_t kWorkNs = 5'000'000, kTimes = 6;
  thread_ = std::make_unique<PeerThread>(io_, kSoon, PeerThread::Share{0.1, kWorkNs});
  std::atomic<uint64_t> done{0};
  const uint64_t began_ns = monotonic_ns();
  for (uint64_t i = 0; i < kTimes; ++i)
    ASSERT_TRUE(thread_->post([&] {
      const uint64_t from_ns = thread_cpu_ns();
      while (thread_cpu_ns() - from_ns < kWorkNs) {
      }
      ++done;
    }));
  ASSERT_TRUE(eventually([&] { return done == kTimes; }));
  // The first is within the burst; each of the others waits until the one before is paid for.
  EXPECT_GE(monotonic_ns() - began_ns, (kTimes - 2) * 10 * kWorkNs);
}

TEST_F(PeerThreadTest, ABellWhoseWriteBlocksDoesNotBlockWhoRings) {
  Fd eventfd = std::move(*make_eventfd());
  Fd peers(::dup(eventfd.get()));
  make_writes_block(peers.get());
  PeerBell bell(*thread_, std::move(eventfd));
  bell.ring();
  ASSERT_TRUE(eventually([&] { return thread_->blocked_for_ms() > 0; }));
  for (int i = 0; i < 1000; ++i) bell.ring();
  EXPECT_LE(thread_->queued(), 1u) << "a bell that waits is not queued again";
  EXPECT_TRUE(bell.drain()) << "which lets the write go on";
  ASSERT_TRUE(eventually([&] { return thread_->blocked_for_ms() == 0 && thread_->queued() == 0; }));
  EXPECT_TRUE(bell.drain());
  EXPECT_FALSE(bell.drain()) << "an empty counter is no reason to wait, whatever its flags";
}

TEST_F(PeerThreadTest, ItGoesWithoutWaitingForABlockedCall) {
  Fd eventfd = std::move(*make_eventfd());
  Fd peers(::dup(eventfd.get()));
  make_writes_block(peers.get());
  const size_t before = PeerThread::abandoned();
  {
    auto work = [fd = peers.get()] {
      const uint64_t one = 1;
      (void)!::write(fd, &one, sizeof one);
    };
    ASSERT_TRUE(thread_->post(work, [] { FAIL() << "nobody is there to be notified"; }));
    ASSERT_TRUE(eventually([&] { return thread_->blocked_for_ms() > 0; }));
    thread_.reset();
  }
  EXPECT_EQ(PeerThread::abandoned(), before + 1);
  EXPECT_TRUE(drain_shared_eventfd(peers.get()));
  EXPECT_TRUE(eventually([&] { return PeerThread::abandoned() == before; }));
  io_.poll();
}

TEST_F(PeerThreadTest, ALingeringSocketIsClosedElsewhere) {
  auto [lingering, silent] = test::make_lingering_pair();
  thread_->close(std::move(lingering));
  EXPECT_TRUE(eventually([&] { return thread_->blocked_for_ms() > 0; }));
  silent.reset();  // resets the connection, and the close returns
  EXPECT_TRUE(eventually([&] { return thread_->blocked_for_ms() == 0; }));
}

TEST_F(PeerThreadTest, TheQueueIsBounded) {
  std::promise<void> go;
  std::shared_future<void> gone = go.get_future().share();
  std::atomic<bool> begun{false};
  ASSERT_TRUE(thread_->post([&begun, gone] {
    begun = true;
    gone.wait();
  }));
  ASSERT_TRUE(eventually([&] { return begun.load(); }));
  std::atomic<size_t> ran{0};
  for (size_t i = 0; i < limits::kMaxPeerWork; ++i) ASSERT_TRUE(thread_->post([&] { ++ran; }));
  EXPECT_FALSE(thread_->post([&] { ++ran; }));
  EXPECT_TRUE(thread_->saturated());
  go.set_value();
  EXPECT_TRUE(eventually([&] { return ran == limits::kMaxPeerWork; }));
  EXPECT_FALSE(thread_->saturated());
}

// Work that waits until `go`, as a system call does that no signal ends.
class Hangs {
 public:
  PeerThread::Work work() {
    return [this, gone = gone_] {
      ++begun_;
      gone.wait();
    };
  }
  size_t begun() const { return begun_; }
  void go() { go_.set_value(); }

 private:
  std::promise<void> go_;
  std::shared_future<void> gone_ = go_.get_future().share();
  std::atomic<size_t> begun_{0};
};

size_t peer_threads() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name == "peer";
  }
  return count;
}

TEST_F(PeerThreadTest, WhatHangsForGoodKeepsNobodyElseWaiting) {
  Hangs hangs;
  ASSERT_TRUE(thread_->post(hangs.work()));
  ASSERT_TRUE(eventually([&] { return hangs.begun() == 1; }));
  Fd eventfd = std::move(*make_eventfd());
  PeerBell bell(*thread_, std::move(eventfd));
  PeerThread another(io_);
  Fd others = std::move(*make_eventfd());
  PeerBell others_bell(another, std::move(others));
  // Of another vGPU: at once. Of the same: as soon as the hanging thread is given up.
  others_bell.ring();
  EXPECT_TRUE(eventually([&] { return others_bell.drain(); }));
  EXPECT_EQ(thread_->stuck(), 0u);
  bell.ring();
  EXPECT_TRUE(eventually([&] {
    io_.poll();
    return bell.drain();
  }));
  EXPECT_EQ(thread_->stuck(), 1u);
  EXPECT_FALSE(thread_->saturated());
  for (int i = 0; i < 3; ++i) {
    bell.ring();
    EXPECT_TRUE(eventually([&] { return bell.drain(); }));
  }
  hangs.go();
  EXPECT_TRUE(eventually([&] { return thread_->stuck() == 0; }));
}

// As one that has no processor: it is late, and no peer's doing.
TEST_F(PeerThreadTest, WhatCouldRunDoesNotHang) {
  std::atomic<bool> over{false}, done{false};
  ASSERT_TRUE(thread_->post([&] {
    while (!over) {
    }
  }));
  ASSERT_TRUE(thread_->post([&] { done = true; }));
  // Longer than it takes to give up one that hangs.
  const auto end = std::chrono::steady_clock::now() + 5ms * kSoon.work_ms;
  while (std::chrono::steady_clock::now() < end) {
    io_.poll();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(thread_->stuck(), 0u);
  EXPECT_FALSE(done);
  over = true;
  EXPECT_TRUE(eventually([&] { return done.load(); }));
}

TEST_F(PeerThreadTest, ThreadsThatHangAreBounded) {
  // Threads of the tests before end when they have closed what they were given.
  ASSERT_TRUE(eventually([] { return peer_threads() == 0; }));
  const size_t most = limits::kMaxStuckPeerThreads + 1;
  Hangs hangs;
  for (size_t i = 0; i < 2 * most; ++i) ASSERT_TRUE(thread_->post(hangs.work()));
  EXPECT_TRUE(eventually([&] {
    io_.poll();
    return hangs.begun() == most;
  }));
  EXPECT_EQ(thread_->stuck(), limits::kMaxStuckPeerThreads);
  EXPECT_TRUE(thread_->saturated()) << "no new peer is let in";
  // Longer than it takes to give up one more.
  const auto end = std::chrono::steady_clock::now() + 3ms * kSoon.work_ms;
  while (std::chrono::steady_clock::now() < end) {
    io_.poll();
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(hangs.begun(), most);
  EXPECT_EQ(peer_threads(), most);
  // The object goes at once; the threads when they can, after all that was posted.
  thread_.reset();
  EXPECT_EQ(peer_threads(), most);
  hangs.go();
  EXPECT_TRUE(eventually([&] { return hangs.begun() == 2 * most && peer_threads() == 0; }));
}

}  // namespace
}  // namespace sluice::io
