// SPDX-License-Identifier: Apache-2.0
// Lingering: a socket that a hostile peer passes to who should not close it in its loop.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "mediator/base/fd.h"

namespace sluice::test {

inline constexpr std::chrono::seconds kLingers{20};

// A socket whose last close waits: SO_LINGER, and bytes that its peer does not read. The peer's
// end is `silent`: closed, it resets the connection, and the close returns.
struct LingeringPair {
  Fd lingering, silent;
};
inline LingeringPair make_lingering_pair() {
  LingeringPair pair;
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(listener.get(), any, length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), any, &length), 0);
  pair.lingering.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(pair.lingering.get(), any, length), 0);
  pair.silent.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger forever{1, 3600};
  EXPECT_EQ(::setsockopt(pair.lingering.get(), SOL_SOCKET, SO_LINGER, &forever, sizeof forever), 0);
  std::vector<char> bytes(1 << 20);
  while (::send(pair.lingering.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
  }
  return pair;
}

// One to pass to a loop. If it is still open after kLingers, the peer resets it, so that a loop
// that waits comes back and the test fails.
class Lingering {
 public:
  Lingering() {
    watchdog_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (!over_.wait_for(lock, kLingers, [&] { return done_; })) waited_ = true;
      pair_.silent.reset();
    });
  }
  ~Lingering() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    over_.notify_one();
    watchdog_.join();  // has closed the other end: nothing lingers any more
    EXPECT_FALSE(waited_) << "the loop has waited for the close";
  }
  int fd() const { return pair_.lingering.get(); }
  // From here on the receiver has the last reference. Nobody may close it here: it lingers.
  void let_go() { pair_.lingering.reset(); }

 private:
  LingeringPair pair_ = make_lingering_pair();
  std::thread watchdog_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::atomic<bool> waited_{false};
};

}  // namespace sluice::test
