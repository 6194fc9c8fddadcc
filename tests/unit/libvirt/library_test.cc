// SPDX-License-Identifier: Apache-2.0
// What is said where libvirt is not reached, its own reason and what to do about it; and what is
// done where it does not answer.
#include "mediator/libvirt/api/library.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <thread>

#include "mediator/libvirt/api/patience.h"

namespace sluice::libvirt {
namespace {

const char* reason = "";

TEST(Library, ARefusedConnectionSaysWhatToDo) {
  Library lib{};
  lib.virGetLastErrorMessage = [] { return reason; };
  const struct {
    const char *reason, *mend;
  } cases[] = {
      {"Failed to connect socket to '/run/x': Permission denied", "; 'adduser YOU libvirt'"},
      {"authentication unavailable: no polkit agent available to authenticate action "
       "'org.libvirt.unix.manage'",
       "; 'adduser YOU libvirt'"},
      {"access denied by policy: polkit: not authorized", "; 'adduser YOU libvirt'"},
      {"Failed to connect socket to '/run/x': No such file or directory",
       "; 'systemctl start libvirtd'"},
      {"Failed to connect socket to '/run/x': Connection refused", "; 'systemctl start libvirtd'"},
  };
  for (const auto& c : cases) {
    reason = c.reason;
    const std::string said = lib.not_connected("qemu:///system").message;
    EXPECT_TRUE(said.starts_with(std::string("connect to qemu:///system: ") + c.reason)) << said;
    EXPECT_NE(said.find(c.mend), said.npos) << said;
  }
}

// 'sluicectl list' ended with a broken heap once: what libraries keep for a thread was freed while
// the program ended.
TEST(Within, TheThreadHasEndedBehindAnAnswer) {
  static std::atomic<bool> freed{false};
  struct KeptForAThread {
    ~KeptForAThread() {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      freed = true;
    }
  };
  const auto answer = within<int>(60, [] {
    thread_local KeptForAThread kept;
    (void)&kept;
    return Result<int>(7);
  });
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, 7);
  EXPECT_TRUE(freed);
}

// As writing a domain's memory does: it takes as long as it needs.
TEST(WhileAnswering, WaitsAsLongAsThePingHasAnAnswer) {
  std::promise<int> written;
  const auto answer = while_answering<int>(
      5, [&] { return Result<int>(written.get_future().get()); },
      [&]() -> Result<void> {
        written.set_value(7);
        return Error{EIO, "an answer, although an error"};
      });
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, 7);
}

TEST(WhileAnswering, EndsWhenThePingHasNone) {
  std::promise<void> later;
  const auto silent = [end = later.get_future().share()] {
    end.wait();
    return Result<void>();
  };
  const auto answer = while_answering<void>(1, silent, silent);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ETIMEDOUT);
  later.set_value();
}

}  // namespace
}  // namespace sluice::libvirt
