// SPDX-License-Identifier: Apache-2.0
// The errors of programs that cannot join a channel.
#include "guest-agent/transport/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "mediator/base/unix_socket.h"

namespace sluice::guest {
namespace {

// Whether the user nobody gets an error with `words`.
bool nobody_is_told(const std::string& path, const std::string& words) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    auto joined = Channel::join(path, "test");
    ::_exit(!joined && joined.error().message.find(words) != std::string::npos ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

TEST(Channel, WhoMayNotJoinIsToldWhatToDo) {
  char name[] = "/tmp/sluice-join-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string folder = name, path = folder + "/agent.sock";
  ::chmod(name, 0755);
  EXPECT_TRUE(nobody_is_told(path, "is sluice-agent (in a VM) or sluiced running"));
  auto listener = listen_unix(path, SOCK_SEQPACKET, 0);
  ASSERT_TRUE(listener) << listener.error().message;
  EXPECT_TRUE(nobody_is_told(path, "adduser USER sluice"));
  std::filesystem::remove_all(folder);
}

// As programs meet it that start while sluiced is started anew: its socket is gone, or left behind.
TEST(Channel, ARestartOfThePeerIsWaitedFor) {
  char name[] = "/tmp/sluice-join-XXXXXX";
  ASSERT_NE(::mkdtemp(name), nullptr);
  const std::string folder = name, path = folder + "/vgpu.local";
  for (const bool left_behind : {false, true}) {
    if (left_behind) {
      ASSERT_TRUE(listen_unix(path, SOCK_SEQPACKET, 0600));
    }
    std::thread peer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::filesystem::remove(path);
      auto listener = listen_unix(path, SOCK_SEQPACKET, 0600);
      if (!listener) return;
      pollfd comes{.fd = listener->get(), .events = POLLIN, .revents = 0};
      ::poll(&comes, 1, 5000);
      const Fd program(::accept(listener->get(), nullptr, nullptr));
      char join[512];
      EXPECT_GT(::recv(program.get(), join, sizeof join, 0), 0);
      std::filesystem::remove(path);
    });
    auto joined = Channel::join(path, "test");
    EXPECT_NE(joined.error().message.find("closed"), std::string::npos) << joined.error().message;
    peer.join();
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::guest
