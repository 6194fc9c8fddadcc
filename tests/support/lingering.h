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

// A socket whose last close waits: SO_LINGER, and bytes that its peer does not read. If it is still
// open after kLingers, the peer resets it, so that a loop that waits comes back and the test
// fails.
class Lingering {
 public:
  Lingering() {
    Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener.get(), any, length), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), any, &length), 0);
    socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket_.get(), any, length), 0);
    silent_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger forever{1, 3600};
    EXPECT_EQ(::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &forever, sizeof forever), 0);
    std::vector<char> bytes(1 << 20);
    while (::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    watchdog_ = std::thread([this] {
      std::unique_lock lock(mutex_);
      if (!over_.wait_for(lock, kLingers, [&] { return done_; })) waited_ = true;
      silent_.reset();
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
  int fd() const { return socket_.get(); }
  // From here on the receiver has the last reference. Nobody may close it here: it lingers.
  void let_go() { socket_.reset(); }

 private:
  Fd socket_, silent_;
  std::thread watchdog_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::atomic<bool> waited_{false};
};

}  // namespace sluice::test
